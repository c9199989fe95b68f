// Integer division and padding of sizes.
#pragma once

#include <stdint.h>

namespace haste {

// whole / part, rounded up.
constexpr int64_t CeilDiv(int64_t whole, int64_t part) { return (whole + part - 1) / part; }
// `whole`, rounded up to a multiple of `part`.
constexpr int64_t PadTo(int64_t whole, int64_t part) { return CeilDiv(whole, part) * part; }

}  // namespace haste
