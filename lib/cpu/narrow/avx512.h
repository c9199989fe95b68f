// For few rows, where VNNI is as fast as AMX or faster.
#pragma once

#include "lib/cpu/narrow/narrow.h"

namespace haste {

void Avx512Int8Multiply(const NarrowTile&);

}  // namespace haste
