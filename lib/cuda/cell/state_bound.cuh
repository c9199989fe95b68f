// A bound of |h| from the initial states. It gives the scale of h as float16
// (lib/cuda/ptx/fp16_scale.cuh).
#pragma once

#include "lib/cuda/cell/params.cuh"
#include "lib/cuda/ptx/fp16_scale.cuh"

namespace haste {

// A bound of |h|, before dropout, of an element with its initial states. at: in [N, K, H].
template <class Cell, class Params>
HASTE_DEVICE float BoundOfState(const Params& p, int64_t at) {
  using T = typename Params::Storage;
  float state[Cell::kStates];
  HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
    const T* all = static_cast<const T*>(p.args.s0[s]);
    state[s] = all == nullptr ? 0.0f : ToCompute(all[at]);
  }
  return Cell::Bound(state);
}
template <class Params>
HASTE_DEVICE bool HasInitialStates(const Params& p) {
  bool any = false;
  HASTE_UNROLL for (int s = 0; s < HASTE_MAX_STATES; ++s) any |= p.args.s0[s] != nullptr;
  return any;
}
// The largest bound among the elements that this thread visits, of some rows of a lane. `threads`
// threads share these elements in turn.
template <class Cell, class Params>
HASTE_DEVICE float BoundOfStates(const Params& p, int64_t k, int64_t first_row, int rows,
                                 int thread, int threads) {
  float bound = 1.0f;
  if (!HasInitialStates(p)) return bound;
  const int H = static_cast<int>(p.H);
  const int count = static_cast<int>(min(p.N - first_row, int64_t{rows})) * H;
#pragma unroll 8
  for (int i = thread; i < count; i += threads) {
    const int64_t at = ((first_row + i / H) * p.K + k) * H + i % H;
    bound = Larger(bound, BoundOfState<Cell>(p, at));
  }
  return bound;
}

}  // namespace haste
