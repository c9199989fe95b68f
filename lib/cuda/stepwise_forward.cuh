// What the forward walk does with an element of a step's product: the cell.
//
// A phase is one product of a step and what follows from it in the block that has the sums. It
// says which gates of R are multiplied, what a thread reads of its element, when, and what it makes
// of it; stepwise_kernels.cuh runs it. Most cells have one phase. Those of kResetGates have two:
// ForwardResetPhase, whose gates make the operand of the others, then ForwardPhase.
#ifndef HASTE_LIB_CUDA_STEPWISE_FORWARD_CUH_
#define HASTE_LIB_CUDA_STEPWISE_FORWARD_CUH_

#include "lib/cuda/async.cuh"
#include "lib/cuda/stepwise_cell.cuh"

namespace haste {

// What both phases read of their element. kFirst … kFirst + kCount - 1: the gates of their product.
template <class Cell, class T, int kFirst, int kCount>
struct ForwardInputs {
  using Params = ForwardParams<T>;
  using C = Compute<T>;
  static constexpr bool kBackward = false;
  static constexpr int kStride = 1;  // of the walk
  static constexpr int kBefore = kFirst, kGates = kCount, kAfter = Cell::kGates - kFirst - kCount;
  static constexpr int kDepth = 1;  // of the product, in multiples of H
  static constexpr int kColumns = ForwardColumns(kCount), kSums = kCount;

  T x[kCount], bias[kCount];
  bool live;
  C prev[Cell::kStates];
  C entering;  // h as it entered the first product

  static __device__ bool HasProduct(const Params&, int64_t) { return true; }
  static __device__ const C* Factor(const Params& p, int64_t step, int64_t k) {
    return Operand(p, step, k, 0);
  }

  // What no step writes.
  __device__ void Load(const Params& p, const Element& e, bool reverse, int64_t step) {
    const int64_t t = TimeOf(p, reverse, step);
    live = e.exists && IsLive(p, e.n, t);
    if (!live) return;
    const T* wx = WxAt(p, e, t);
#pragma unroll
    for (int g = 0; g < kCount; ++g) x[g] = wx[g * p.H];
    if constexpr (Cell::kRecurrentBias) {
      const T* from = static_cast<const T*>(p.args.extra[kRecurrentBiasAt<Cell>]) +
                      (e.k * Cell::kGates + kFirst) * p.H + e.j;
#pragma unroll
      for (int g = 0; g < kCount; ++g) bias[g] = from[g * p.H];
    }
  }

  static __device__ void Prefetch(const Params& p, const Element& e, bool reverse, int64_t step) {
    const T* wx = WxAt(p, e, TimeOf(p, reverse, step));
#pragma unroll
    for (int g = 0; g < kCount; ++g) PrefetchL2(wx + g * p.H);
  }

 protected:
  // Where unit j of the h that enters `step` lies, for all rows.
  static __device__ C* Entering(const Params& p, int64_t step, int64_t k, int64_t j) {
    if constexpr (kFirst == 0) {
      return Operand(p, step, k, j);
    } else {
      return OtherOperand(p, step, k, j);
    }
  }

  __device__ void LoadStates(const Params& p, const Element& e, int64_t step) {
    for (int s = 0; s < Cell::kStates; ++s) prev[s] = p.carried[s][e.at];
    entering = p.dropout_rate == 0.0f ? prev[0] : Entering(p, step, e.k, e.j)[e.n];
  }

  __device__ void StatesBefore(C (&before)[Cell::kStates]) const {
#pragma unroll
    for (int s = 0; s < Cell::kStates; ++s) before[s] = s == 0 ? entering : prev[s];
  }

  // x and q of all gates, those of this product set.
  __device__ void PreActivations(const C (&product)[kCount], C (&xs)[Cell::kGates],
                                 C (&qs)[Cell::kGates]) const {
#pragma unroll
    for (int g = 0; g < kCount; ++g) {
      xs[kFirst + g] = ToCompute(x[g]);
      qs[kFirst + g] = product[g];
      if constexpr (Cell::kRecurrentBias) qs[kFirst + g] += ToCompute(bias[g]);
    }
  }

 private:
  static __device__ const T* WxAt(const Params& p, const Element& e, int64_t t) {
    return static_cast<const T*>(p.args.wx) +
           (((e.n * p.T_ + t) * p.K + e.k) * Cell::kGates + kFirst) * p.H + e.j;
  }
};

// All gates, or those behind the reset gates: ends the step.
template <class Cell, class T>
struct ForwardPhase : ForwardInputs<Cell, T, Cell::kResetGates, Cell::kGates - Cell::kResetGates> {
  using Inputs = ForwardInputs<Cell, T, Cell::kResetGates, Cell::kGates - Cell::kResetGates>;
  using Params = ForwardParams<T>;
  using C = Compute<T>;
  static constexpr int kReset = Cell::kResetGates, kStates = Cell::kStates;

  C made[kReset + 1];  // the reset gates, and the operand that they made

  __device__ void LoadCarried(const Params& p, const Element& e, int64_t step) {
    this->LoadStates(p, e, step);
    if constexpr (kReset > 0) {
#pragma unroll
      for (int g = 0; g < kReset; ++g) made[g] = p.made[g][e.at];
      made[kReset] = Operand(p, step, e.k, e.j)[e.n];
    }
  }

  __device__ void Finish(const Params& p, const Element& e, bool reverse, int64_t step,
                         const C (&product)[Inputs::kGates]) const {
    const auto& prev = this->prev;
    const int64_t t = TimeOf(p, reverse, step);
    const int64_t row = (e.n * p.T_ + t) * p.K + e.k;
    C kept[Cell::kKept] = {}, next[kStates], before[kStates];
    this->StatesBefore(before);
    C y = 0;
    if (this->live) {
      C x[Cell::kGates] = {}, q[Cell::kGates] = {};
      this->PreActivations(product, x, q);
      if constexpr (kReset > 0) {
#pragma unroll
        for (int g = 0; g < kReset; ++g) kept[g] = made[g];
        kept[Cell::kOperand] = made[kReset];
      }
      C share[kStates] = {};
      if (p.zoneout) ZoneoutShares(p, e, t, share);
      ElementForward<Cell, T>(p, x, q, before, prev, share, kept, next);
      y = next[0];
    } else {
#pragma unroll
      for (int s = 0; s < kStates; ++s) next[s] = prev[s];
      if (Repeats(p, reverse, e.n, step)) y = prev[0];
    }
    if (p.args.keep) {
      const StepPlace place(row, Cell::kGates, p.H, e.j);
      KeepGates<Cell, kReset, Cell::kGates>(p, place, kept);
      if constexpr (kReset == 0) KeepSaved<Cell>(p, place, before, kept);
    }
    static_cast<T*>(p.args.y)[row * p.H + e.j] = FromCompute<T>(y);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      p.carried[s][e.at] = next[s];
      if (step == p.T_ - 1 && p.args.sT[s] != nullptr) {
        static_cast<T*>(p.args.sT[s])[e.at] = FromCompute<T>(next[s]);
      }
    }
    this->Entering(p, step + 1, e.k, e.j)[e.n] = next[0] * DropScale(p, e);
  }
};

// The reset gates, and from them what the others multiply. What the cell keeps beside the gates
// comes from here.
template <class Cell, class T>
struct ForwardResetPhase : ForwardInputs<Cell, T, 0, Cell::kResetGates> {
  using Params = ForwardParams<T>;
  using C = Compute<T>;

  __device__ void LoadCarried(const Params& p, const Element& e, int64_t step) {
    this->LoadStates(p, e, step);
  }

  __device__ void Finish(const Params& p, const Element& e, bool reverse, int64_t step,
                         const C (&product)[Cell::kResetGates]) const {
    C kept[Cell::kKept] = {}, before[Cell::kStates];
    this->StatesBefore(before);
    if (this->live) {
      C x[Cell::kGates] = {}, q[Cell::kGates] = {};
      this->PreActivations(product, x, q);
      WithActivations<Cell>(
          p.act, [&](const Activations& act) { Cell::ForwardReset(act, x, q, before, kept); });
    }
    if (p.args.keep) {
      const int64_t row = (e.n * p.T_ + TimeOf(p, reverse, step)) * p.K + e.k;
      const StepPlace place(row, Cell::kGates, p.H, e.j);
      KeepGates<Cell, 0, Cell::kResetGates>(p, place, kept);
      KeepSaved<Cell>(p, place, before, kept);
    }
#pragma unroll
    for (int g = 0; g < Cell::kResetGates; ++g) p.made[g][e.at] = kept[g];
    OtherOperand(p, step, e.k, e.j)[e.n] = kept[Cell::kOperand];
  }
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_STEPWISE_FORWARD_CUH_
