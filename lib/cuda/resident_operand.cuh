// The gates' gradients that a block of the backward walk multiplies with its part of Rᵀ: their
// order, and how they come to be in its shared memory, [part, chunk, row tile, lane] of 16 bytes.
#ifndef HASTE_LIB_CUDA_RESIDENT_OPERAND_CUH_
#define HASTE_LIB_CUDA_RESIDENT_OPERAND_CUH_

#include <type_traits>

#include "lib/cuda/exchange.cuh"
#include "lib/cuda/mma.cuh"
#include "lib/resident_plan.h"

namespace haste {

// Of a thread's element: unit of the block's, row of the pass.
struct OperandElement {
  int unit, row;
};

// What a gate's gradient is multiplied as.
template <class T>
__device__ __forceinline__ void OperandParts(float dq, uint16_t (&part)[3]) {
  if constexpr (kMmaParts<T> == 1) {
    part[0] = FromCompute<T>(dq).bits;
  } else {
    Split(dq, part);
  }
}

// A block's own gates: depth is gate · units + unit.
template <class T, int kGates, int kTiles>
class OwnOperand {
  static constexpr int kParts = kMmaParts<T>;

 public:
  __device__ __forceinline__ OwnOperand(const ResidentTiling& t, uint4* words,
                                        const OperandElement& e)
      : two_(t.unit_tiles == 2), chunks_(t.chunks), words_(words) {
    mine_ = reinterpret_cast<uint16_t*>(words + e.row / 8 * 32 + e.row % 8 * 4 + e.unit / 8) +
            e.unit % 8;
  }

  // Before a ClusterSync or __syncthreads: gates behind the last of a chunk are multiplied too.
  __device__ __forceinline__ void Clear() {
    for (int i = threadIdx.x; i < chunks_ * kTiles * 32 * kParts; i += kResidentWarps * 32) {
      words_[i] = make_uint4(0, 0, 0, 0);
    }
  }

  // By every thread that has an element.
  __device__ __forceinline__ void Set(const float (&dq)[kGates], int, ArrivalCounter*) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      // With one unit tile two gates share a chunk.
      const int chunk = two_ ? g : g / 2, eighth = two_ ? 0 : g % 2 * 2;
      uint16_t part[3];
      OperandParts<T>(dq[g], part);
#pragma unroll
      for (int s = 0; s < kParts; ++s) {
        mine_[((s * chunks_ + chunk) * kTiles * 32 + eighth) * 8] = part[s];
      }
    }
  }
  // By all threads: the words of all elements.
  __device__ __forceinline__ const uint4* Get(int, ArrivalCounter*, uint32_t) const {
    __syncthreads();
    return words_;
  }

  // Which gate's gradient a depth is, and of which of the units that the operand has.
  static __device__ __forceinline__ int GateOf(const ResidentTiling& t, int depth) {
    return depth >> (t.unit_tiles == 2 ? 5 : 4);
  }
  static __device__ __forceinline__ int UnitOf(const ResidentTiling& t, int depth) {
    return depth & (t.unit_tiles == 2 ? 31 : 15);
  }

 private:
  const bool two_;
  const int chunks_;
  uint4* const words_;
  uint16_t* mine_;  // this thread's gate 0
};

// The gates of all blocks of a cluster: depth is unit · kDepthGates + gate, so that a few lanes
// have 16 bytes together, which they hand to the blocks by turns.
template <class T, int kGates, int kTiles>
class SharedOperand {
  static constexpr int kParts = kMmaParts<T>;
  static constexpr int kDepthGates = kGates == 3 ? 4 : kGates;
  static constexpr int kLanes = 8 / kDepthGates;  // that share a word
  static_assert(kDepthGates == 1 || kDepthGates == 4, "how a word is put together");

 public:
  __device__ __forceinline__ SharedOperand(const ResidentTiling& t, uint4* words,
                                           const OperandElement& e)
      : chunks_(t.chunks), words_of_use_(t.chunks * kTiles * 32 * kParts), words_(words) {
    const int first = static_cast<int>(blockIdx.x) % kSharers * t.units();
    const int depth = (first + e.unit) * kDepthGates;
    at_ = (depth / kChunkDepth * kTiles + e.row / 8) * 32 + e.row % 8 * 4 + depth % kChunkDepth / 8;
  }

  __device__ __forceinline__ void Clear() {}

  __device__ __forceinline__ void Set(const float (&dq)[kGates], int use, ArrivalCounter* counter) {
    const int lane = threadIdx.x % kLanes;
    uint16_t part[kDepthGates][3] = {};
#pragma unroll
    for (int g = 0; g < kGates; ++g) OperandParts<T>(dq[g], part[g]);
#pragma unroll
    for (int s = 0; s < kParts; ++s) {
      uint4 word;
      if constexpr (kDepthGates == 4) {
        const uint32_t low = part[0][s] | static_cast<uint32_t>(part[1][s]) << 16;
        const uint32_t high = part[2][s] | static_cast<uint32_t>(part[3][s]) << 16;
        const uint32_t other_low = __shfl_xor_sync(0xFFFFFFFFu, low, 1);
        const uint32_t other_high = __shfl_xor_sync(0xFFFFFFFFu, high, 1);
        word = lane == 0 ? make_uint4(low, high, other_low, other_high)
                         : make_uint4(other_low, other_high, low, high);
      } else {
        const uint32_t mine = part[0][s];
        const uint32_t pair = mine | __shfl_down_sync(0xFFFFFFFFu, mine, 1) << 16;  // of even lanes
        word.x = __shfl_sync(0xFFFFFFFFu, pair, 0, kLanes);
        word.y = __shfl_sync(0xFFFFFFFFu, pair, 2, kLanes);
        word.z = __shfl_sync(0xFFFFFFFFu, pair, 4, kLanes);
        word.w = __shfl_sync(0xFFFFFFFFu, pair, 6, kLanes);
      }
      const uint32_t to =
          SharedAddress(words_ + use * words_of_use_ + s * chunks_ * kTiles * 32 + at_);
      const uint32_t count = SharedAddress(counter);
#pragma unroll
      for (int rank = 0; rank < kSharers; rank += kLanes) {
        Push(AddressIn(to, rank + lane), word, AddressIn(count, rank + lane));
      }
    }
  }
  __device__ __forceinline__ const uint4* Get(int use, ArrivalCounter* counter,
                                              uint32_t parity) const {
    if (threadIdx.x == 0) counter->Expect(words_of_use_ * 16);
    counter->Wait(parity);
    return words_ + use * words_of_use_;
  }

  static __device__ __forceinline__ int GateOf(const ResidentTiling&, int depth) {
    return depth % kDepthGates;
  }
  static __device__ __forceinline__ int UnitOf(const ResidentTiling&, int depth) {
    return depth / kDepthGates;
  }

 private:
  const int chunks_, words_of_use_;
  uint4* const words_;
  int at_;  // this thread's word
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_RESIDENT_OPERAND_CUH_
