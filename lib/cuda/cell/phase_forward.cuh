// What the forward walk does with an element of a step's product: the cell. P: an engine's
// ForwardParams.
//
// A phase is one product of a step and what follows from it in the block that has the sums. It
// says which gates of R are multiplied, what a thread reads for its element and when, and what it
// computes. The kernels of `stepwise`, `tiled` and `blas` run phases. Most cells have one phase.
// Cells with kResetGates have two: ForwardResetPhase, whose gates make the operand of the others,
// then ForwardPhase.
#pragma once

#include "lib/cuda/cell/cell_step.cuh"
#include "lib/cuda/ptx/async.cuh"

namespace haste {

// What both phases read for their element. Gates kFirst … kFirst + kCount - 1 are in the product.
template <class Cell, class P, int kFirst, int kCount>
struct ForwardInputs : ForwardProduct<Cell, kFirst, kCount> {
  using Params = P;
  using T = typename P::Storage;
  using C = Compute<T>;

  T x[kCount], bias[kCount];
  int live;  // a bool, in a register of its own
  C prev[Cell::kStates];
  C scale;  // from dropout: h times this entered the first product

  static __host__ __device__ bool HasProduct(const Params&, int64_t) { return true; }
  static constexpr int kOperandOf = 0;  // steps later

  // Loads what no step writes. What is loaded of a masked step is not used.
  __device__ void Load(const Params& p, const Element& e, const StepAt& at) {
    live = e.exists;
    if (!e.exists) return;
    if (__builtin_expect(p.mask != nullptr, false)) live = IsLive(p, e.n, at.t);
    const T* wx = WxAt(p, at);
    HASTE_UNROLL for (int g = 0; g < kCount; ++g) x[g] = wx[g * p.H];
    if constexpr (Cell::kRecurrentBias) {
      const T* from = static_cast<const T*>(p.args.extra[kRecurrentBiasAt<Cell>]) +
                      (e.k * Cell::kGates + kFirst) * p.H + e.j;
      HASTE_UNROLL for (int g = 0; g < kCount; ++g) bias[g] = from[g * p.H];
    }
  }

  static __device__ void Prefetch(const Params& p, const Element&, const StepAt& at) {
    const T* wx = WxAt(p, at);
    HASTE_UNROLL for (int g = 0; g < kCount; ++g) PrefetchL2(wx + g * p.H);
  }

 protected:
  __device__ void LoadStates(const Params& p, const Element& e) {
    for (int s = 0; s < Cell::kStates; ++s) prev[s] = p.carried[s][e.at];
    scale = DropScale(p, e);
  }

  // Stores the h that leaves a step as the operand of the next.
  template <class E>
  static __device__ void PutEntering(const Params& p, const E& e, int64_t step, C h) {
    if constexpr (kFirst == 0) {
      PutOperand(p, step + 1, e, e.j, h);
    } else {
      PutOtherOperand(p, step + 1, e, e.j, h);
    }
  }

  __device__ void StatesBefore(C (&before)[Cell::kStates]) const {
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
      before[s] = s == 0 ? KeptHidden<Cell>(prev[0], scale) : prev[s];
    }
  }

  // x and q of all gates; only those of this product are set.
  __device__ void PreActivations(const C (&product)[kCount], C (&xs)[Cell::kGates],
                                 C (&qs)[Cell::kGates]) const {
    HASTE_UNROLL for (int g = 0; g < kCount; ++g) {
      xs[kFirst + g] = ToCompute(x[g]);
      qs[kFirst + g] = product[g];
      if constexpr (Cell::kRecurrentBias) qs[kFirst + g] += ToCompute(bias[g]);
    }
  }

 private:
  static __device__ const T* WxAt(const Params& p, const StepAt& at) {
    return static_cast<const T*>(p.args.wx) + at.place.gates + kFirst * p.H;
  }
};

// The phase that ends the step: all gates, or those after the reset gates.
template <class Cell, class P>
struct ForwardPhase : ForwardInputs<Cell, P, Cell::kResetGates, Cell::kGates - Cell::kResetGates> {
  using Inputs = ForwardInputs<Cell, P, Cell::kResetGates, Cell::kGates - Cell::kResetGates>;
  using Params = P;
  using T = typename P::Storage;
  using C = Compute<T>;
  static constexpr int kReset = Cell::kResetGates, kStates = Cell::kStates;

  C made[kReset + 1];  // the reset gates, and the operand that they made

  // Results of a step.
  C kept[Cell::kKept], before[kStates], next[kStates], y;

  __device__ void LoadCarried(const Params& p, const Element& e) {
    this->LoadStates(p, e);
    if constexpr (kReset > 0) {
      HASTE_UNROLL for (int i = 0; i <= kReset; ++i) made[i] = p.made[i][e.at];
    }
  }

  // Computes the step, and stores what other blocks wait for: the operand of the next product.
  // E: an Element, or what an engine has for it.
  template <class E>
  __device__ void Step(const Params& p, const E& e, const StepAt& at,
                       const C (&product)[Inputs::kGates]) {
    const auto& prev = this->prev;
    HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) kept[i] = 0;
    y = 0;
    if (this->live) {
      C x[Cell::kGates] = {}, q[Cell::kGates] = {}, entering[kStates];
      this->StatesBefore(entering);
      this->PreActivations(product, x, q);
      if constexpr (kReset > 0) {
        HASTE_UNROLL for (int g = 0; g < kReset; ++g) kept[g] = made[g];
        kept[Cell::kOperand] = made[kReset];
      }
      C share[kStates] = {};
      if (__builtin_expect(p.zoneout, false)) ZoneoutShares<Cell>(p, e, at.t, share);
      Elements<Cell, T, 1>::Forward(p, OfOne(x), OfOne(q), OfOne(entering), OfOne(prev),
                                    OfOne(share), OfOne(kept), OfOne(next));
      y = next[0];
    } else {
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) next[s] = prev[s];
      if (Repeats(p, at.reverse, e.n, at.step)) y = prev[0];
    }
    this->StatesBefore(before);
    this->PutEntering(p, e, at.step, next[0] * this->scale);
  }

  // Stores everything else.
  __device__ void Write(const Params& p, const Element& e, const StepAt& at) const {
    if (p.args.keep) {
      KeepGates<Cell, kReset, Cell::kGates>(p, at.place, kept);
      if constexpr (kReset == 0) KeepSaved<Cell>(p, at.place, before, kept);
    }
    static_cast<T*>(p.args.y)[at.place.one] = FromCompute<T>(y);
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) { p.carried[s][e.at] = next[s]; }
    if (IsLast(p, at)) StoreStates<T>(p.args.sT, e.at, next);
  }
};

// The reset gates, and from them the operand of the other gates. What the cell keeps in addition
// to the gates is made here.
template <class Cell, class P>
struct ForwardResetPhase : ForwardInputs<Cell, P, 0, Cell::kResetGates> {
  using Params = P;
  using C = Compute<typename P::Storage>;

  C kept[Cell::kKept], before[Cell::kStates];

  __device__ void LoadCarried(const Params& p, const Element& e) { this->LoadStates(p, e); }

  __device__ void Step(const Params& p, const Element& e, const StepAt& at,
                       const C (&product)[Cell::kResetGates]) {
    this->StatesBefore(before);
    HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) kept[i] = 0;
    if (this->live) {
      C x[Cell::kGates] = {}, q[Cell::kGates] = {};
      this->PreActivations(product, x, q);
      C entering[Cell::kStates] = {this->prev[0] * this->scale};
      WithActivations<Cell, C>(
          p.act, [&](const Activations& act) { Cell::ForwardReset(act, x, q, entering, kept); });
    }
    PutOtherOperand(p, at.step, e, e.j, kept[Cell::kOperand]);
  }

  __device__ void Write(const Params& p, const Element& e, const StepAt& at) const {
    if (p.args.keep) {
      KeepGates<Cell, 0, Cell::kResetGates>(p, at.place, kept);
      KeepSaved<Cell>(p, at.place, before, kept);
    }
    HASTE_UNROLL for (int g = 0; g < Cell::kResetGates; ++g) p.made[g][e.at] = kept[g];
    p.made[Cell::kResetGates][e.at] = kept[Cell::kOperand];
  }
};

}  // namespace haste
