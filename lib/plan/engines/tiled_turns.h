// Where R stays on the chip, backward, in turns: the part of a row tile's product that begins
// early.
#pragma once

#include "lib/plan/engines/tiled.h"

namespace haste {

// Chunks of R, of each half of the warps, that are multiplied with the next tile's operand while
// partial sums are on their way (lib/cuda/tiled/stationary_backward_walk.cuh). That operand is
// still being made, so not more. Measured: 0 where that is slower.
constexpr int EarlyChunks(int gates, bool floats, int rows, bool shares) {
  if (shares) return floats || gates >= 4 ? 4 : 0;
  return !floats && gates >= 4 && rows < kStationaryRows ? 3 : 0;
}

// Chunks of a product from which on it begins early. During a shorter one the next tile's operand
// is not made in time. Measured.
constexpr int kChunksToBegin = 16;

}  // namespace haste
