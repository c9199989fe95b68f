// What the backward walk does with an element of a step's product: the gradients of the cell.
// Phases are what stepwise_forward.cuh says; cells of kResetGates have two: BackwardPhase, then
// BackwardResetPhase, whose product is the gradient of what the reset gates made.
#ifndef HASTE_LIB_CUDA_STEPWISE_BACKWARD_CUH_
#define HASTE_LIB_CUDA_STEPWISE_BACKWARD_CUH_

#include "lib/cuda/async.cuh"
#include "lib/cuda/stepwise_cell.cuh"

namespace haste {

// The product of the gradients of h·R, one step later, with Rᵀ: of all gates, or of the reset
// gates. Then all that this step's gradients depend on is there, but for the reset gates.
template <class Cell, class T>
struct BackwardPhase {
  using Params = BackwardParams<T>;
  using C = Compute<T>;
  static constexpr int kReset = Cell::kResetGates, kStates = Cell::kStates;
  static constexpr bool kBackward = true;
  static constexpr int kStride = -1;
  static constexpr int kBefore = 0, kGates = kReset > 0 ? kReset : Cell::kGates;
  static constexpr int kAfter = Cell::kGates - kGates;
  static constexpr int kDepth = kGates, kColumns = kBackwardColumns, kSums = 1;
  static_assert(kReset == 0 || !Cell::kSplitsGradient, "the reset gates' dq would be lost");

  Reserve<Cell, T, Cell::kGates> reserve;
  T dy;
  bool live;
  C carried[kStates];

  // The last step of the walk: nothing comes back from later ones.
  static __device__ bool HasProduct(const Params& p, int64_t step) { return step != p.T_ - 1; }
  static __device__ const C* Factor(const Params& p, int64_t step, int64_t k) {
    return Operand(p, step + 1, k, 0);
  }

  __device__ void Load(const Params& p, const Element& e, bool reverse, int64_t step) {
    live = false;
    dy = FromCompute<T>(0);
    if (!e.exists || step < 0) return;
    const int64_t t = TimeOf(p, reverse, step);
    const int64_t row = (e.n * p.T_ + t) * p.K + e.k;
    live = IsLive(p, e.n, t);
    // y of a masked step is the y before it, so its gradient belongs to that state.
    if (p.args.dy != nullptr && (live || Repeats(p, reverse, e.n, step))) {
      dy = static_cast<const T*>(p.args.dy)[row * p.H + e.j];
    }
    if (live) reserve.Load(p, StepPlace(row, Cell::kGates, p.H, e.j));
  }

  static __device__ void Prefetch(const Params& p, const Element& e, bool reverse, int64_t step) {
    if (step < 0) return;
    const int64_t row = (e.n * p.T_ + TimeOf(p, reverse, step)) * p.K + e.k;
    Reserve<Cell, T, Cell::kGates>::Prefetch(p, StepPlace(row, Cell::kGates, p.H, e.j));
    if (p.args.dy != nullptr) PrefetchL2(static_cast<const T*>(p.args.dy) + row * p.H + e.j);
  }

  // Gradients of the states leaving the step, without what the product adds to h's.
  __device__ void LoadCarried(const Params& p, const Element& e, int64_t) {
    for (int s = 0; s < kStates; ++s) carried[s] = p.carried[s][e.at];
  }

  // Step -1 leaves the gradients of the initial states.
  __device__ void Finish(const Params& p, const Element& e, bool reverse, int64_t step,
                         const C (&product)[1]) const {
    const C scale = DropScale(p, e);
    C ds[kStates];
#pragma unroll
    for (int s = 0; s < kStates; ++s) ds[s] = carried[s];
    ds[0] = MulAdd(product[0], scale, ds[0]);
    if (step < 0) {
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        if (p.args.ds0[s] != nullptr) static_cast<T*>(p.args.ds0[s])[e.at] = FromCompute<T>(ds[s]);
      }
      return;
    }
    const int64_t t = TimeOf(p, reverse, step);
    const int64_t row = (e.n * p.T_ + t) * p.K + e.k;
    ds[0] += ToCompute(dy);
    C dx[Cell::kGates] = {}, dq[Cell::kGates] = {};
    if (live) {
      C kept[Cell::kKept], prev[kStates], share[kStates] = {};
      reserve.Get(kept, prev);
      if (p.zoneout) ZoneoutShares(p, e, t, share);
      ElementBackward<Cell, T>(p, kept, prev, share, scale, ds, dx, dq);
    }
    const int64_t at = row * Cell::kGates * p.H + e.j;
    // Behind the reset gates: BackwardResetPhase has still to read these, which dwx may overwrite.
#pragma unroll
    for (int g = kReset; g < Cell::kGates; ++g) {
      static_cast<T*>(p.args.dwx)[at + g * p.H] = FromCompute<T>(dx[g]);
    }
#pragma unroll
    for (int g = 0; g < Cell::kGates; ++g) {
      if constexpr (Cell::kSplitsGradient) {
        static_cast<T*>(p.args.dq)[at + g * p.H] = FromCompute<T>(dq[g]);
      }
      if (g < kGates) {
        Operand(p, step, e.k, g * p.H + e.j)[e.n] = dq[g];
      } else {
        OtherOperand(p, step, e.k, (g - kGates) * p.H + e.j)[e.n] = dq[g];
      }
    }
#pragma unroll
    for (int s = 0; s < kStates; ++s) p.carried[s][e.at] = ds[s];
  }
};

// The product of the other gates' gradients of this step, and with it the reset gates'. What
// BackwardPhase knows of those stands in the operand of its next product, where this completes it.
template <class Cell, class T>
struct BackwardResetPhase {
  using Params = BackwardParams<T>;
  using C = Compute<T>;
  static constexpr int kReset = Cell::kResetGates, kStates = Cell::kStates;
  static constexpr bool kBackward = true;
  static constexpr int kStride = -1;
  static constexpr int kBefore = kReset, kGates = Cell::kGates - kReset, kAfter = 0;
  static constexpr int kDepth = kGates, kColumns = kBackwardColumns, kSums = 1;

  Reserve<Cell, T, kReset> reserve;  // dwx may have overwritten the gates behind
  bool live;
  C carried[kStates], known[kReset];

  static __device__ bool HasProduct(const Params&, int64_t) { return true; }
  static __device__ const C* Factor(const Params& p, int64_t step, int64_t k) {
    return Operand(p, step, k, 0);
  }

  __device__ void Load(const Params& p, const Element& e, bool reverse, int64_t step) {
    const int64_t t = TimeOf(p, reverse, step);
    live = e.exists && IsLive(p, e.n, t);
    const int64_t row = (e.n * p.T_ + t) * p.K + e.k;
    if (live) reserve.Load(p, StepPlace(row, Cell::kGates, p.H, e.j));
  }

  // BackwardPhase, which reads the same and runs before, does it.
  static __device__ void Prefetch(const Params&, const Element&, bool, int64_t) {}

  __device__ void LoadCarried(const Params& p, const Element& e, int64_t step) {
    for (int s = 0; s < kStates; ++s) carried[s] = p.carried[s][e.at];
#pragma unroll
    for (int g = 0; g < kReset; ++g) {
      known[g] = OtherOperand(p, step, e.k, g * p.H + e.j)[e.n];
    }
  }

  __device__ void Finish(const Params& p, const Element& e, bool reverse, int64_t step,
                         const C (&product)[1]) const {
    C dx[Cell::kGates] = {};
#pragma unroll
    for (int g = 0; g < kReset; ++g) dx[g] = known[g];
    if (live) {
      C kept[Cell::kKept], prev[kStates], added[kStates] = {};
      reserve.Get(kept, prev);
      WithActivations<Cell>(p.act, [&](const Activations& act) {
        Cell::BackwardReset(act, kept, prev, product[0], dx, added);
      });
      const C scale = DropScale(p, e);
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        p.carried[s][e.at] = MulAdd(added[s], s == 0 ? scale : C(1), carried[s]);
      }
    }
    const int64_t row = (e.n * p.T_ + TimeOf(p, reverse, step)) * p.K + e.k;
    T* dwx = static_cast<T*>(p.args.dwx) + row * Cell::kGates * p.H + e.j;
#pragma unroll
    for (int g = 0; g < kReset; ++g) {
      dwx[g * p.H] = FromCompute<T>(dx[g]);
      OtherOperand(p, step, e.k, g * p.H + e.j)[e.n] = dx[g];
    }
  }
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_STEPWISE_BACKWARD_CUH_
