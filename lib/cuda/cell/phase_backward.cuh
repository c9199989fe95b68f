// What the backward walk does with an element of a step's product: the gradients of the cell.
// phase_forward.cuh explains phases. Cells with kResetGates have two: BackwardPhase, then
// BackwardResetPhase, whose product is the gradient of what the reset gates made.
#pragma once

#include "lib/cuda/cell/cell_step.cuh"
#include "lib/cuda/ptx/async.cuh"

namespace haste {

// Writes the gradients of all gates of an element to the operand of `step`. An engine may overload
// this.
template <class Params, class C, int kGates>
HASTE_DEVICE void PutGates(const Params& p, int64_t step, const Element& e,
                           const C (&values)[kGates]) {
  HASTE_UNROLL for (int g = 0; g < kGates; ++g) PutOperand(p, step, e, g * p.H + e.j, values[g]);
}

// The product of the next step's gradients of h·R with Rᵀ: of all gates, or of the reset gates.
// After it, everything this step's gradients depend on is known, except for the reset gates.
template <class Cell, class P>
struct BackwardPhase
    : BackwardProduct<Cell, 0, Cell::kResetGates == 0 ? Cell::kGates : Cell::kResetGates> {
  using Params = P;
  using T = typename P::Storage;
  using C = Compute<T>;
  static constexpr int kReset = Cell::kResetGates, kStates = Cell::kStates;
  static_assert(kReset == 0 || !Cell::kSplitsGradient, "the reset gates' dq would be lost");

  Reserve<Cell, T, Cell::kGates> reserve;
  T dy;
  int live;  // a bool, in a register of its own
  C carried[kStates];

  // Results of a step: gradients of the states, of x, as it is stored, and of h·R.
  C ds[kStates], dq[Cell::kGates];
  T dx[Cell::kGates];

  // The last step of the walk: nothing comes back from later ones.
  static __host__ __device__ bool HasProduct(const Params& p, int64_t step) {
    return static_cast<int>(step) != static_cast<int>(p.T_) - 1;  // sizes fit 32 bits
  }
  static constexpr int kOperandOf = 1;  // steps later

  __device__ void Load(const Params& p, const Element& e, const StepAt& at) {
    live = false;
    dy = FromCompute<T>(0);
    if (!e.exists || at.step < 0) return;
    live = true;
    bool counts = true;
    if (__builtin_expect(p.mask != nullptr, false)) {
      live = IsLive(p, e.n, at.t);
      // y of a masked step repeats the previous y, so its gradient belongs to that state.
      counts = live || Repeats(p, at.reverse, e.n, at.step);
    }
    if (p.args.dy != nullptr && counts) dy = static_cast<const T*>(p.args.dy)[at.place.one];
    reserve.Load(p, at.place);  // not used where the step is masked
  }

  static __device__ void Prefetch(const Params& p, const Element&, const StepAt& at) {
    if (at.step < 0) return;
    Reserve<Cell, T, Cell::kGates>::Prefetch(p, at.place);
    if (p.args.dy != nullptr) PrefetchL2(static_cast<const T*>(p.args.dy) + at.place.one);
  }

  // Gradients of the states that leave the step, without what the product adds to h's.
  __device__ void LoadCarried(const Params& p, const Element& e) {
    for (int s = 0; s < kStates; ++s) carried[s] = p.carried[s][e.at];
  }

  // Step -1 stands for the gradients of the initial states.
  // E: an Element, or what an engine has for it.
  template <class E>
  __device__ void Step(const Params& p, const E& e, const StepAt& at, const C (&product)[1]) {
    const C scale = DropScale(p, e);
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) ds[s] = carried[s];
    ds[0] = MulAdd(product[0], scale, ds[0]);
    if (at.step < 0) return;
    ds[0] += ToCompute(dy);
    C of_x[Cell::kGates];
    if (live) {
      C kept[Cell::kKept], prev[kStates], share[kStates] = {};
      reserve.Get(kept, prev);
      if (__builtin_expect(p.zoneout, false)) ZoneoutShares<Cell>(p, e, at.t, share);
      Elements<Cell, T, 1>::Backward(p, OfOne(kept), OfOne(prev), OfOne(share), {scale}, OfOne(ds),
                                     OfOne(of_x), OfOne(dq));
    } else {
      HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) of_x[g] = dq[g] = 0;
    }
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) dx[g] = FromCompute<T>(of_x[g]);
    if constexpr (kReset > 0) {
      HASTE_UNROLL for (int g = kReset; g < Cell::kGates; ++g) {
        PutOtherOperand(p, at.step, e, (g - kReset) * p.H + e.j, dq[g]);
      }
    } else {
      PutGates(p, at.step, e, dq);
    }
  }

  __device__ void Write(const Params& p, const Element& e, const StepAt& at) const {
    if (at.step < 0) return StoreStates<T>(p.args.ds0, e.at, ds);
    // Only gates after the reset gates: dwx may overwrite the gates, and BackwardResetPhase still
    // has to read the reset gates.
    HASTE_UNROLL for (int g = kReset; g < Cell::kGates; ++g) {
      static_cast<T*>(p.args.dwx)[at.place.gates + g * p.H] = dx[g];
    }
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
      if constexpr (Cell::kSplitsGradient) {
        static_cast<T*>(p.args.dq)[at.place.gates + g * p.H] = FromCompute<T>(dq[g]);
      }
      if (g < kReset) p.made[g][e.at] = dq[g];
    }
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) p.carried[s][e.at] = ds[s];
  }
};

// The product of this step's gradients of the other gates, from which follow those of the reset
// gates. BackwardPhase left its part of these in `made`; this phase completes it.
template <class Cell, class P>
struct BackwardResetPhase
    : BackwardProduct<Cell, Cell::kResetGates, Cell::kGates - Cell::kResetGates> {
  using Params = P;
  using T = typename P::Storage;
  using C = Compute<T>;
  static constexpr int kReset = Cell::kResetGates, kStates = Cell::kStates;

  Reserve<Cell, T, kReset> reserve;  // dwx may have overwritten the later gates
  int live;
  C carried[kStates], known[kReset];

  // Results of a step.
  C dx[Cell::kGates], ds[kStates];

  static __host__ __device__ bool HasProduct(const Params&, int64_t) { return true; }
  static constexpr int kOperandOf = 0;  // steps later

  __device__ void Load(const Params& p, const Element& e, const StepAt& at) {
    live = e.exists;
    if (!e.exists) return;
    if (__builtin_expect(p.mask != nullptr, false)) live = IsLive(p, e.n, at.t);
    reserve.Load(p, at.place);  // not used where the step is masked
  }

  // BackwardPhase runs first, reads the same data and has prefetched it.
  static __device__ void Prefetch(const Params&, const Element&, const StepAt&) {}

  __device__ void LoadCarried(const Params& p, const Element& e) {
    for (int s = 0; s < kStates; ++s) carried[s] = p.carried[s][e.at];
    HASTE_UNROLL for (int g = 0; g < kReset; ++g) known[g] = p.made[g][e.at];
  }

  __device__ void Step(const Params& p, const Element& e, const StepAt& at, const C (&product)[1]) {
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
      dx[g] = g < kReset ? known[g < kReset ? g : 0] : C(0);
    }
    C added[kStates];
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) added[s] = 0;
    if (live) {
      C kept[Cell::kKept], prev[kStates];
      const C scale = DropScale(p, e);
      reserve.Get(kept, prev);
      prev[0] *= scale;
      WithActivations<Cell, C>(p.act, [&](const Activations& act) {
        Cell::BackwardReset(act, kept, prev, product[0], dx, added);
      });
      added[0] *= scale;
    }
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) ds[s] = carried[s] + added[s];
    HASTE_UNROLL for (int g = 0; g < kReset; ++g)
        PutOtherOperand(p, at.step, e, g * p.H + e.j, dx[g]);
  }

  __device__ void Write(const Params& p, const Element& e, const StepAt& at) const {
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) p.carried[s][e.at] = ds[s];
    T* dwx = static_cast<T*>(p.args.dwx) + at.place.gates;
    HASTE_UNROLL for (int g = 0; g < kReset; ++g) dwx[g * p.H] = FromCompute<T>(dx[g]);
  }
};

}  // namespace haste
