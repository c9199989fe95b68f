// Which weights of R a thread of the engine `block` has in the tiles that its warp multiplies.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/mma.cuh"
#include "lib/cuda/ptx/vector_access.cuh"

namespace haste {

// kRowGates: gates of a unit that are rows of a tile, 8 rows each; 1: a tile has 16 units of one
// gate. kDepthGates: depths that a unit takes, each of a gate; 1: depths are units.
//
// So a thread's weights lie at regular steps from a few places in R, and pointers to those are made
// once. All loads into registers are unrolled: with each address computed for itself they would be
// most of a kernel.
template <class T, int kGates, int kRowGates, int kDepthGates, bool kBackward>
class BlockWeights {
  static_assert(kRowGates == 1 || kRowGates == 2, "a tile has 16 rows");
  static constexpr bool kHasEmptyRows = kRowGates == 2 && kGates < 4;

 public:
  // r: R of the lane, [H, G, H], which 32 bits can index. unit: of the first row. chunk: the first.
  HASTE_DEVICE BlockWeights(const T* r, int64_t hidden, int unit, int chunk)
      : step_bytes_((kBackward ? 1 : static_cast<uint32_t>(hidden) * kGates) * sizeof(T)),
        none_(kHasEmptyRows ? OpaqueOfThread(0) : 0) {
    const int lane = threadIdx.x % 32, H = static_cast<int>(hidden);
    const int begin = (chunk * kChunkDepth + lane % 4 * 8) / kDepthGates;
    HASTE_UNROLL for (int i = 0; i < 2; ++i) {
      const int of_row = unit + lane / 4 + (kRowGates == 1 ? i * 8 : 0);
      steps_[i] = of_row < H ? H - begin : 0;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        const int from = kBackward ? of_row : begin, to = kBackward ? begin : of_row;
        at_[i][g] = OpaqueGlobal(r + (from * kGates + g) * H + to);
      }
    }
  }

  // The thread's weights in half a chunk of a tile. chunk: after the first. gate: of the tile's
  // first row, where depths are units. make: maps a weight to the value that is multiplied.
  template <class Make>
  HASTE_DEVICE void Load(int chunk, int gate, int half, TileA<T>* tile, const Make& make) const {
    tile->Load(half, [&](int row, int depth) {
      const int g = kBackward ? depth % kDepthGates : kRowGates == 2 ? gate + row : gate;
      const int step = (chunk * kChunkDepth + depth) / kDepthGates;
      // If the assembler knew which registers of R are 0 for want of a gate, it would set them anew
      // for every product.
      const bool there = step < (g < kGates ? steps_[row] : none_);
      const auto* first = reinterpret_cast<const char*>(at_[row][g < kGates ? g : 0]);
      const uint64_t bytes = uint64_t{step_bytes_} * static_cast<uint32_t>(step);
      return make(there ? *reinterpret_cast<const T*>(first + bytes) : FromCompute<T>(0));
    });
  }

 private:
  const T* at_[2][kGates];     // of the tile's row lane / 4, and of the row 8 after it
  int steps_[2];               // from there to the last unit
  const uint32_t step_bytes_;  // from unit to unit
  const int none_;
};

}  // namespace haste
