// One element of a walk whose states a thread keeps to itself: what it knows of a step beforehand,
// the step, and what of it goes to memory. Shared by the engines whose kernels walk all steps.
#ifndef HASTE_LIB_CUDA_WALK_ELEMENT_CUH_
#define HASTE_LIB_CUDA_WALK_ELEMENT_CUH_

#include "lib/cuda/recurrence.cuh"
#include "lib/cuda/stepwise_cell.cuh"

namespace haste {

struct Foreseen {
  bool live = false;
  bool repeats = false;  // masked: y is the y before
  uint32_t drawn = 0;    // bit s: Zoneout keeps state s
};

template <class Cell, class T>
__device__ __forceinline__ Foreseen Foresee(const RecurrenceParams<T>& p, const Element& e,
                                            bool reverse, int step) {
  Foreseen seen;
  seen.live = e.exists;
  if (p.mask == nullptr && !p.zoneout) return seen;
  const int64_t t = TimeOf(p, reverse, step);
  if (seen.live && !IsLive(p, e.n, t)) {
    seen.live = false;
    seen.repeats = Repeats(p, reverse, e.n, step);
  }
  if (!p.zoneout || !p.training || !seen.live) return seen;
  float share[Cell::kStates];
  ZoneoutShares(p, e, t, share);
#pragma unroll
  for (int s = 0; s < Cell::kStates; ++s) seen.drawn |= static_cast<uint32_t>(share[s] != 0) << s;
  return seen;
}

template <int kStates, class T>
__device__ __forceinline__ void GetShares(const RecurrenceParams<T>& p, const Foreseen& seen,
                                          float (&share)[kStates]) {
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    share[s] = p.training ? static_cast<float>(seen.drawn >> s & 1) : p.zoneout_rate[s];
  }
}

// A step forward. x: of wx; get(q): h·R, asked for if the step is live; scale: what dropout
// multiplies h with. Of the results `before` are the states as they enter the cell. Returns y.
template <class Cell, class T, class Get, class Params>
__device__ __forceinline__ float WalkForward(const Params& p, const Foreseen& seen, int64_t k,
                                             int64_t unit, const T (&x_stored)[Cell::kGates],
                                             float scale, const float (&prev)[Cell::kStates],
                                             const Get& get, float (&before)[Cell::kStates],
                                             float (&kept)[Cell::kKept],
                                             float (&next)[Cell::kStates]) {
#pragma unroll
  for (int s = 0; s < Cell::kStates; ++s) {
    next[s] = prev[s];
    before[s] = s == 0 ? prev[0] * scale : prev[s];
  }
  if (!seen.live) return seen.repeats ? prev[0] : 0.0f;
  float x[Cell::kGates], q[Cell::kGates], share[Cell::kStates] = {};
  get(q);
#pragma unroll
  for (int g = 0; g < Cell::kGates; ++g) x[g] = ToCompute(x_stored[g]);
  if constexpr (Cell::kRecurrentBias) {
    const T* bias =
        static_cast<const T*>(p.args.extra[kRecurrentBiasAt<Cell>]) + k * Cell::kGates * p.H + unit;
#pragma unroll
    for (int g = 0; g < Cell::kGates; ++g) q[g] += ToCompute(bias[g * p.H]);
  }
  if (p.zoneout) GetShares(p, seen, share);
  ElementForward<Cell, T>(p, x, q, before, prev, share, kept, next);
  return next[0];
}

// What a step forward leaves of an element. Params: those of the kernel, or what says in their
// place where the step's tensors are.
template <class Cell, class Params>
__device__ __forceinline__ void StoreForward(const Params& p, const StepPlace& place, float y,
                                             const float (&before)[Cell::kStates],
                                             const float (&kept)[Cell::kKept]) {
  using T = typename Params::Storage;
  static_cast<T*>(p.args.y)[place.one] = FromCompute<T>(y);
  if (p.args.keep) {
    KeepGates<Cell, 0, Cell::kGates>(p, place, kept);
    KeepSaved<Cell>(p, place, before, kept);
  }
}

// States, or their gradients, to tensors [N, K, H], of which some may be null.
template <class T, int kStates>
__device__ __forceinline__ void StoreStates(void* const* to, int64_t at,
                                            const float (&states)[kStates]) {
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    if (to[s] != nullptr) static_cast<T*>(to[s])[at] = FromCompute<T>(states[s]);
  }
}

// A step backward. ds: gradients of the states that leave it, without those of the output; turned
// into those of the states that enter it, without what the product adds.
template <class Cell, class T, class Kept>
__device__ __forceinline__ void WalkBackward(const RecurrenceParams<T>& p, const Foreseen& seen,
                                             const Kept& reserve, T dy, float scale,
                                             float (&ds)[Cell::kStates], float (&dx)[Cell::kGates],
                                             float (&dq)[Cell::kGates]) {
  // y of a masked step is the y before it, so its gradient belongs to that state.
  if (seen.live || seen.repeats) ds[0] += ToCompute(dy);
  if (!seen.live) return;
  float kept[Cell::kKept], prev[Cell::kStates], share[Cell::kStates] = {};
  reserve.Get(kept, prev);
  if (p.zoneout) GetShares(p, seen, share);
  ElementBackward<Cell, T>(p, kept, prev, share, scale, ds, dx, dq);
}

// What a step backward leaves of an element.
template <class Cell, class Params>
__device__ __forceinline__ void StoreBackward(const Params& p, const StepPlace& place,
                                              const float (&dx)[Cell::kGates],
                                              const float (&dq)[Cell::kGates]) {
  using T = typename Params::Storage;
#pragma unroll
  for (int g = 0; g < Cell::kGates; ++g) {
    static_cast<T*>(p.args.dwx)[place.gates + g * p.H] = FromCompute<T>(dx[g]);
    if constexpr (Cell::kSplitsGradient) {
      static_cast<T*>(p.args.dq)[place.gates + g * p.H] = FromCompute<T>(dq[g]);
    }
  }
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_WALK_ELEMENT_CUH_
