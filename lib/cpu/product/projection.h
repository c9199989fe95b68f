// Which way x·W + b is formed. The rest of lib/cpu/product is compiled once a SIMD target.
#pragma once

#include <stdint.h>

namespace haste {

// Up to this many steps of a single row a walk reads W in place: packing costs as much as two
// steps.
inline constexpr int64_t kProjectionStepsInPlace = 4;

}  // namespace haste
