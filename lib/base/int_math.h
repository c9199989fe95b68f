// Whole parts of sizes.
#ifndef HASTE_LIB_BASE_INT_MATH_H_
#define HASTE_LIB_BASE_INT_MATH_H_

#include <stdint.h>

namespace haste {

// Parts of `part` that hold all of `whole`.
constexpr int64_t CeilDiv(int64_t whole, int64_t part) { return (whole + part - 1) / part; }
// The least multiple of `part` that holds it.
constexpr int64_t PadTo(int64_t whole, int64_t part) { return CeilDiv(whole, part) * part; }

}  // namespace haste

#endif  // HASTE_LIB_BASE_INT_MATH_H_
