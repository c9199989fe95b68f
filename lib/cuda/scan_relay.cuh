// What both linear scans share: the chain from warp to warp, and what a block knows of its place.
#ifndef HASTE_LIB_CUDA_SCAN_RELAY_CUH_
#define HASTE_LIB_CUDA_SCAN_RELAY_CUH_

#include "lib/cuda/scan_params.cuh"
#include "lib/cuda/scan_plan.h"
#include "lib/cuda/scan_tile.cuh"

namespace haste {

constexpr int kMaxScanThreads = kMaxScanWarps * kScanWidth;

// What a warp of a block walks: its elements, and its turns within the block's chunk of time.
struct ScanPlace {
  int warp, warps, lane;
  int64_t unit, chunk;
  int first, end;  // steps of the walk

  template <class Params>
  __device__ explicit ScanPlace(const ScanParams<Params>& p)
      : warp(threadIdx.x / kScanWidth),
        warps(blockDim.x / kScanWidth),
        lane(threadIdx.x % kScanWidth),
        unit(blockIdx.x % p.units),
        chunk(blockIdx.x / p.units),
        first(static_cast<int>(chunk * p.chunk_steps)),
        end(static_cast<int>(p.T_ - first < p.chunk_steps ? p.T_ : first + p.chunk_steps)) {}

  // Element of this launch, in column `column` of the block.
  __device__ int64_t Index(int column) const { return unit * kScanWidth + column; }
};

// The chain of each element goes from turn to turn through its lane's own place in shared memory.
// A warp has a barrier of its own, at which it waits for the turn before and the warp of that
// arrives: there are as many as a block may have warps.
template <class C, int kParts>
class Relay {
 public:
  // turns: of all warps of the block, which take them one after the other.
  __device__ __forceinline__ Relay(unsigned char* shared, const ScanPlace& place, uint32_t turns)
      : slots_(reinterpret_cast<C*>(shared) + place.lane),
        turns_(place.warps == 1 ? 0 : turns),
        mine_(place.warp),
        next_((place.warp + 1) % place.warps) {}

  // What the turn before this one has left, if there was one in another warp.
  __device__ __forceinline__ void Take(uint32_t turn, C (&value)[kParts]) const {
    if (turn == 0 || turns_ == 0) return;
    asm volatile("bar.sync %0, %1;" ::"r"(mine_), "n"(2 * kScanWidth) : "memory");
#pragma unroll
    for (int i = 0; i < kParts; ++i) value[i] = slots_[i * kScanWidth];
  }
  // What this one leaves to the next.
  __device__ __forceinline__ void Pass(uint32_t turn, const C (&value)[kParts]) const {
    if (turn + 1 >= turns_) return;
#pragma unroll
    for (int i = 0; i < kParts; ++i) slots_[i * kScanWidth] = value[i];
    asm volatile("bar.arrive %0, %1;" ::"r"(next_), "n"(2 * kScanWidth) : "memory");
  }

 private:
  C* const slots_;
  const uint32_t turns_;
  const int mine_, next_;
};
static_assert(kMaxScanWarps <= 16, "named barriers of a block");

// Part `part` of what a chunk does to the state of this lane's element, in p.spans.
template <int kParts, class Params>
__device__ __forceinline__ typename Params::C* SpanAt(const ScanParams<Params>& p,
                                                      const ScanPlace& place, int64_t chunk,
                                                      int part) {
  return p.spans + ((chunk * kParts + part) * p.units + place.unit) * kScanWidth + place.lane;
}

template <class Params>
__device__ __forceinline__ Track TrackOf(const ScanParams<Params>& p, const Course& e) {
  return {e.Row(p) * p.H, e.sign * p.K * p.H, e.j, e.exists};
}

// The next `count` steps that are live, a bit each.
template <class Params>
__device__ __forceinline__ uint32_t LiveBits(const ScanParams<Params>& p, const Course& e,
                                             int count) {
  const uint32_t there = (1u << count) - 1;
  return e.exists ? there & static_cast<uint32_t>(LiveSteps(p, e, count)) : there;
}

// Zoneout around a cell that leaves it to the engine: s becomes share · s_prev + (1 - share) · s.
// Selected where a state is wholly kept or new: the other may be infinite.
template <class Cell, class C>
__device__ __forceinline__ void MixAffine(C share, C* a, C* b) {
  if (Cell::kZoneoutInGate || share == C(0)) return;
  *a = share == C(1) ? C(1) : MulAdd(share, C(1) - *a, *a);
  *b = share == C(1) ? C(0) : *b * (C(1) - share);
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_SCAN_RELAY_CUH_
