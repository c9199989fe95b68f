// Parts of `part` that hold all of `whole`.
#ifndef HASTE_LIB_CEIL_DIV_H_
#define HASTE_LIB_CEIL_DIV_H_

#include <stdint.h>

namespace haste {

constexpr int64_t CeilDiv(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

}  // namespace haste

#endif  // HASTE_LIB_CEIL_DIV_H_
