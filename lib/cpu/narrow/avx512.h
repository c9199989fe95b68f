// What AMX shares: packing, and products of few rows, where VNNI is as fast or faster.
#pragma once

#include "lib/cpu/narrow/narrow.h"

namespace haste {

void Avx512Int8Multiply(const NarrowTile&);
void Avx512Int8MultiplyRow(const NarrowRow&);
void Avx512Int8Pack(const NarrowSource&, int64_t groups, void* panel, int32_t* start);
constexpr int kAmxBlock = 16;  // NarrowKernel::block of AMX's bfloat16
void Avx512Bfloat16PackTiles(const NarrowSource&, int64_t groups, void* panel, int32_t* start);

}  // namespace haste
