// The gates' gradients that a block of the backward walk multiplies by its part of Rᵀ: their order,
// and how they get to its shared memory, [split term, chunk, row tile, lane] of 16 bytes.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/fp16_scale.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/ptx/mma.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/plan/engines/persistent.h"

namespace haste {

// A thread's element: its unit in the block, its row in the pass.
struct OperandElement {
  int unit, row;
};

// Loads from[0 … kCount - 1], and 0 from `left` on. aligned: `from` is aligned to kCount numbers,
// and `left` is a multiple of kCount.
template <int kCount, class T>
HASTE_DEVICE void LoadNeighbors(const T* from, int left, bool aligned, T (&to)[kCount]) {
  if (aligned && left > 0) {
    const Fragment<T, kCount> all = LoadFragment<kCount>(from);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) to[i] = all.v[i];
  } else {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) to[i] = i < left ? from[i] : FromCompute<T>(0);
  }
}

// The R of one lane, [H, G, H].
template <class T>
struct PersistentKernel {
  const T* r;
  int hidden;

  // Whether all runs of `units` units are aligned for one load each.
  HASTE_DEVICE bool Aligned(int units) const {
    return hidden % units == 0 && reinterpret_cast<uintptr_t>(r) % (units * sizeof(T)) == 0;
  }
};

// The gates of the block's own units. Depth is gate · units + unit.
template <class T, int kGates, int kTiles>
class OwnOperand {
  static constexpr int kTerms = kMmaTerms<T>;

 public:
  HASTE_DEVICE OwnOperand(const PersistentTiling& t, uint4* words, const OperandElement& e)
      : two_(t.unit_tiles == 2), chunks_(t.chunks), words_(words) {
    mine_ = reinterpret_cast<uint16_t*>(words + e.row / 8 * 32 + e.row % 8 * 4 + e.unit / 8) +
            e.unit % 8;
  }

  // Call before a ClusterSync or __syncthreads. Clears the operand, because gates after the last
  // one of a chunk are multiplied too.
  HASTE_DEVICE void Clear() {
    for (int i = threadIdx.x; i < chunks_ * kTiles * 32 * kTerms; i += kPersistentWarps * 32) {
      words_[i] = make_uint4(0, 0, 0, 0);
    }
  }

  // Called by every thread that has an element.
  HASTE_DEVICE void Set(const float (&dq)[kGates], int, TransactionBarrier*) {
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      // If there is one unit tile, two gates share a chunk.
      const int chunk = two_ ? g : g / 2, eighth = two_ ? 0 : g % 2 * 2;
      uint16_t part[3];
      SplitOperand<T>(dq[g], part);
      HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
        mine_[((s * chunks_ + chunk) * kTiles * 32 + eighth) * 8] = part[s];
      }
    }
  }
  // Called by all threads. Returns the words of all elements.
  HASTE_DEVICE const uint4* Get(int, TransactionBarrier*, uint32_t) const {
    __syncthreads();
    return words_;
  }

  // Loads the weights of R between a row `unit` of dh and eight depths. own: the operand's first
  // unit.
  static HASTE_DEVICE void LoadWeights(const PersistentTiling& t, const PersistentKernel<T>& kernel,
                                       int unit, int own, int depth, T (&to)[8]) {
    const int units = t.units(), gate = depth / units, j = own + depth % units;
    const int left = gate < kGates && unit < kernel.hidden ? kernel.hidden - j : 0;
    LoadNeighbors(kernel.r + (unit * kGates + gate) * kernel.hidden + j, left, kernel.Aligned(8),
                  to);
  }

 private:
  const bool two_;
  const int chunks_;
  uint4* const words_;
  uint16_t* mine_;  // this thread's gate 0
};

// The gates of all blocks of a cluster. Depth is unit · kDepthGates + gate, so that a few lanes
// have 16 bytes together. They take turns in sending these to the blocks.
template <class T, int kGates, int kTiles>
class SharedOperand {
  static constexpr int kTerms = kMmaTerms<T>;
  static constexpr int kDepthGates = kGates == 3 ? 4 : kGates;
  static constexpr int kLanes = 8 / kDepthGates;  // lanes that share a word, with one unit each
  static_assert(kDepthGates <= 4 && 8 % kDepthGates == 0, "how a word is put together");
  static constexpr bool kScalesRows = kScaledTerms<T> > 0;
  static_assert(!kScalesRows || kDepthGates > 1, "a warp's are whole chunks");

 public:
  HASTE_DEVICE SharedOperand(const PersistentTiling& t, uint4* words, const OperandElement& e)
      : chunks_(t.chunks),
        words_of_use_(t.chunks * kTiles * 32 * kTerms),
        tiles_(kClusterPeers * t.unit_tiles),
        words_(words),
        scales_(reinterpret_cast<float2*>(words + 2 * t.passes * words_of_use_)) {
    const int first = static_cast<int>(blockIdx.x) % kClusterPeers * t.units();
    const int depth = (first + e.unit) * kDepthGates;
    at_ = (depth / kChunkDepth * kTiles + e.row / 8) * 32 + e.row % 8 * 4 + depth % kChunkDepth / 8;
    scale_at_ = (first + e.unit) / kTileRows * kPairs + e.row / 2;
  }

  HASTE_DEVICE void Clear() {}

  HASTE_DEVICE void Set(const float (&dq)[kGates], int use, TransactionBarrier* counter) {
    float scaled[kGates];
    if constexpr (kScalesRows) ScaleRows(dq, use, counter, scaled);
    const int lane = threadIdx.x % kLanes;
    uint16_t part[kDepthGates][3] = {};
    HASTE_UNROLL for (int g = 0; g < kGates; ++g)
        SplitOperand<T>(kScalesRows ? scaled[g] : dq[g], part[g]);
    HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
      uint4 word;
      if constexpr (kDepthGates == 4) {
        const uint32_t low = part[0][s] | static_cast<uint32_t>(part[1][s]) << 16;
        const uint32_t high = part[2][s] | static_cast<uint32_t>(part[3][s]) << 16;
        const uint32_t other_low = __shfl_xor_sync(0xFFFFFFFFu, low, 1);
        const uint32_t other_high = __shfl_xor_sync(0xFFFFFFFFu, high, 1);
        word = lane == 0 ? make_uint4(low, high, other_low, other_high)
                         : make_uint4(other_low, other_high, low, high);
      } else if constexpr (kDepthGates == 2) {
        const uint32_t mine = part[0][s] | static_cast<uint32_t>(part[1][s]) << 16;
        word.x = __shfl_sync(0xFFFFFFFFu, mine, 0, kLanes);
        word.y = __shfl_sync(0xFFFFFFFFu, mine, 1, kLanes);
        word.z = __shfl_sync(0xFFFFFFFFu, mine, 2, kLanes);
        word.w = __shfl_sync(0xFFFFFFFFu, mine, 3, kLanes);
      } else {
        const uint32_t mine = part[0][s];
        // A pair in even lanes; odd lanes' values are not used.
        const uint32_t pair = mine | __shfl_down_sync(0xFFFFFFFFu, mine, 1) << 16;
        word.x = __shfl_sync(0xFFFFFFFFu, pair, 0, kLanes);
        word.y = __shfl_sync(0xFFFFFFFFu, pair, 2, kLanes);
        word.z = __shfl_sync(0xFFFFFFFFu, pair, 4, kLanes);
        word.w = __shfl_sync(0xFFFFFFFFu, pair, 6, kLanes);
      }
      const uint32_t to =
          SharedAddress(words_ + use * words_of_use_ + s * chunks_ * kTiles * 32 + at_);
      const uint32_t count = SharedAddress(counter);
      HASTE_UNROLL for (int rank = 0; rank < kClusterPeers; rank += kLanes) {
        Push(AddressIn(to, rank + lane), word, AddressIn(count, rank + lane));
      }
    }
  }
  HASTE_DEVICE const uint4* Get(int use, TransactionBarrier* counter, uint32_t parity) const {
    const int first = Opaque(use * words_of_use_);
    if (threadIdx.x == 0) {
      counter->ArriveAndExpect(words_of_use_ * 16 + (kScalesRows ? tiles_ * kPairs * 8 : 0));
    }
    __syncthreads();  // the inputs of this block's own Set have been read
    counter->Wait(parity);
    return words_ + first;
  }
  // The factors that undo the scales of a chunk's rows, in pairs.
  HASTE_DEVICE const float2* Scales(int use, int chunk) const {
    return scales_ + (use * tiles_ + chunk / kTileChunks) * kPairs;
  }
  static constexpr int kTileChunks = kTileRows * kDepthGates / kChunkDepth;

  static HASTE_DEVICE void LoadWeights(const PersistentTiling&, const PersistentKernel<T>& kernel,
                                       int unit, int own, int depth, T (&to)[8]) {
    const int j = own + depth / kDepthGates;
    const int left = unit < kernel.hidden ? kernel.hidden - j : 0;
    const T* from = kernel.r + unit * kGates * kernel.hidden + j;
    HASTE_UNROLL for (int g = 0; g < kDepthGates; ++g) {
      T some[kLanes];
      LoadNeighbors(from + g * kernel.hidden, g < kGates ? left : 0, kernel.Aligned(kLanes), some);
      HASTE_UNROLL for (int i = 0; i < kLanes; ++i) to[i * kDepthGates + g] = some[i];
    }
  }

 private:
  static constexpr int kPairs = kTiles * kTileColumns / 2;  // of rows; a warp has one, × 16 units

  // Scales a warp's two rows, and sends the factors that undo it.
  HASTE_DEVICE void ScaleRows(const float (&dq)[kGates], int use, TransactionBarrier* counter,
                              float (&scaled)[kGates]) const {
    float most = fabsf(dq[0]);
    HASTE_UNROLL for (int g = 1; g < kGates; ++g) most = fmaxf(most, fabsf(dq[g]));
    const int lane = threadIdx.x % 32;
    const bool second = lane >= kTileRows;
    const uint32_t bits = __float_as_uint(most);
    const RowScale one(LargestBits(second ? 0 : bits)), two(LargestBits(second ? bits : 0));
    const float up = second ? two.up : one.up;
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) scaled[g] = dq[g] * up;
    if (lane < kClusterPeers) {
      Push(AddressIn(SharedAddress(scales_ + use * tiles_ * kPairs + scale_at_), lane),
           make_float2(one.down, two.down), AddressIn(SharedAddress(counter), lane));
    }
  }

  const int chunks_, words_of_use_;
  const int tiles_;  // of 16 units, in all blocks of the cluster
  uint4* const words_;
  float2* const scales_;  // [use, tile, pair]
  int at_, scale_at_;     // index of this thread's word, and of its warp's pair of scales
};

}  // namespace haste
