// One element of a walk whose states stay with one thread: what is known of a step beforehand, the
// step itself, and its stores to memory. Shared by the engines whose kernels walk all steps.
#pragma once

#include "lib/cuda/cell/cell_step.cuh"
#include "lib/cuda/cell/params.cuh"

namespace haste {

struct StepFlags {
  bool live = false;
  bool repeats = false;  // masked: y is the previous y
  uint32_t drawn = 0;    // bit s: Zoneout keeps state s
};

// unmasked: the result of IsLive. key: read only where Zoneout draws.
template <class Cell, class T>
HASTE_DEVICE StepFlags ReadStepFlags(const RecurrenceParams<T>& p, const Element& e, bool reverse,
                                     int step, bool unmasked, PhiloxKey key) {
  StepFlags seen;
  seen.live = e.exists && unmasked;
  if (e.exists && !unmasked) seen.repeats = Repeats(p, reverse, e.n, step);
  if (!p.zoneout || !p.training || !seen.live) return seen;
  float share[Cell::kStates];
  DrawZoneout<Cell>(p, e, TimeOf(p, reverse, step), key, share);
  HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
    seen.drawn |= static_cast<uint32_t>(share[s] != 0) << s;
  }
  return seen;
}
template <class Cell, class T>
HASTE_DEVICE StepFlags ReadStepFlags(const RecurrenceParams<T>& p, const Element& e, bool reverse,
                                     int step) {
  StepFlags seen;
  seen.live = e.exists;
  if (!e.exists || (p.mask == nullptr && !p.zoneout)) return seen;
  const bool draws = p.zoneout && p.training;
  return ReadStepFlags<Cell>(p, e, reverse, step, IsLive(p, e.n, TimeOf(p, reverse, step)),
                             draws ? MakePhiloxKey(p.seed) : PhiloxKey());
}

template <int kStates, class T>
HASTE_DEVICE void GetShares(const RecurrenceParams<T>& p, const StepFlags& seen,
                            float (&share)[kStates]) {
  HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
    share[s] = p.training ? static_cast<float>(seen.drawn >> s & 1) : p.zoneout_rate[s];
  }
}

// The bias of h·R of an element's gates; nothing for cells that have none. Where registers allow, a
// thread keeps it: loaded after the product, it is waited for at every step.
template <class Cell, class T>
class RecurrentBias {
 public:
  template <class Params>
  HASTE_DEVICE void Load(const Params& p, int64_t k, int64_t unit, bool exists) {
    if constexpr (Cell::kRecurrentBias) {
      const T* from = static_cast<const T*>(p.args.extra[kRecurrentBiasAt<Cell>]) +
                      k * Cell::kGates * p.H + unit;
      HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
        of_gate_[g] = exists ? from[g * p.H] : FromCompute<T>(0);
      }
    }
  }
  // q + bias of a gate.
  HASTE_DEVICE float AddedTo(float q, [[maybe_unused]] int gate) const {
    if constexpr (Cell::kRecurrentBias) q += ToCompute(of_gate_[gate]);
    return q;
  }

 private:
  T of_gate_[Cell::kRecurrentBias ? Cell::kGates : 1];
};

// A forward step of several elements of a thread, side by side. stored: their wx. get(q): returns
// h·R with its bias; one element that is not live does not call it. scale: the factor of h from
// dropout. The result `before` holds the states as the reserve does. finish: of Elements::Forward.
template <class Cell, class T, int kCount, class Get, class Finish = DoNothing,
          class E = Elements<Cell, T, kCount>>
HASTE_DEVICE void WalkForward(const RecurrenceParams<T>& p, const StepFlags (&seen)[kCount],
                              const T (&stored)[kCount][Cell::kGates], const float (&scale)[kCount],
                              const typename E::States& prev, const Get& get,
                              typename E::States& before, typename E::Kept& kept,
                              typename E::States& next, float (&y)[kCount],
                              const Finish& finish = {}) {
  typename E::Gates x, q;
  typename E::States share = {};
  HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
      next[e][s] = prev[e][s];
      before[e][s] = s == 0 ? KeptHidden<Cell>(prev[e][0], scale[e]) : prev[e][s];
    }
    y[e] = seen[e].repeats ? prev[e][0] : 0.0f;
  }
  // A single element is skipped if it is not live. Several are all computed, and the results of
  // live ones are taken.
  if (kCount == 1 && !seen[0].live) return;
  get(q);
  HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) x[e][g] = ToCompute(stored[e][g]);
    if (p.zoneout) GetShares(p, seen[e], share[e]);
  }
  E::Forward(p, x, q, before, prev, share, kept, next, finish);
  HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
    if (kCount == 1 || seen[e].live) {
      y[e] = next[e][0];
    } else {
      HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) next[e][s] = prev[e][s];
      HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) kept[e][i] = 0.0f;
    }
  }
}

// Stores the results of a forward step of an element. Params: the kernel's, or a struct in their
// place that says where the step's tensors are (StepRow).
template <class Cell, class Params>
HASTE_DEVICE void StoreForward(const Params& p, const StepPlace& place, float y,
                               const float (&before)[Cell::kStates],
                               const float (&kept)[Cell::kKept]) {
  using T = typename Params::Storage;
  static_cast<T*>(p.args.y)[place.one] = FromCompute<T>(y);
  if (p.args.keep) {
    KeepGates<Cell, 0, Cell::kGates>(p, place, kept);
    KeepSaved<Cell>(p, place, before, kept);
  }
}

// A backward step of the same. ds: on entry, gradients of the states that leave the step, without
// those of the output; on return, of those that enter it, without what the product adds. begin: of
// Elements::Backward.
template <class Cell, class T, int kCount, class Kept, class Begin = DoNothing,
          class E = Elements<Cell, T, kCount>>
HASTE_DEVICE void WalkBackward(const RecurrenceParams<T>& p, const StepFlags (&seen)[kCount],
                               const Kept (&reserve)[kCount], const T (&dy)[kCount],
                               const float (&scale)[kCount], typename E::States& ds,
                               typename E::Gates& dx, typename E::Gates& dq,
                               const Begin& begin = {}) {
  typename E::Kept kept;
  typename E::States prev, share = {}, left;
  HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
    // y of a masked step repeats the previous y, so its gradient belongs to that state.
    if (seen[e].live || seen[e].repeats) ds[e][0] += ToCompute(dy[e]);
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) left[e][s] = ds[e][s];
  }
  if (kCount == 1 && !seen[0].live) return;
  HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
    reserve[e].Get(kept[e], prev[e]);
    if (p.zoneout) GetShares(p, seen[e], share[e]);
  }
  E::Backward(p, kept, prev, share, scale, ds, dx, dq, begin);
  HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
    if constexpr (kCount > 1) {
      if (seen[e].live) continue;
      HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) ds[e][s] = left[e][s];
      HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) dx[e][g] = dq[e][g] = 0.0f;
    }
  }
}

// Stores the results of a backward step of an element.
template <class Cell, class Params>
HASTE_DEVICE void StoreBackward(const Params& p, const StepPlace& place,
                                const float (&dx)[Cell::kGates], const float (&dq)[Cell::kGates]) {
  using T = typename Params::Storage;
  HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
    static_cast<T*>(p.args.dwx)[place.gates + g * p.H] = FromCompute<T>(dx[g]);
    if constexpr (Cell::kSplitsGradient) {
      static_cast<T*>(p.args.dq)[place.gates + g * p.H] = FromCompute<T>(dq[g]);
    }
  }
}

}  // namespace haste
