// After the product of a step: one block takes one row [G, H] of h·R, normalises it, and computes
// the states of its units. If the cell normalises a state too, it does so before it computes h.
//
// A thread has units `blockDim.x` apart, and is the only one that reads or writes their data, so
// only sums need barriers. What it needs again it reads again, as it has just read or written these
// rows. Before WaitForPreviousKernel a kernel reads only what no step writes and, in a tensor that
// is overwritten in place, its own time step.
#pragma once

#include "lib/cuda/layer_norm/rows_params.cuh"

namespace haste {

// What is read from the caller's tensors for one unit.
template <class Cell, class T>
struct NormForwardInputs {
  T x[Cell::kGates], gamma[Cell::kGates], bias[Cell::kGates], state_gamma, state_beta;

  template <class P>
  __device__ void Load(const P& p, const NormRow& row, int64_t j) {
    const T* wx = static_cast<const T*>(p.args.wx) + row.at_step * Cell::kGates * p.H + j;
    const int64_t at_lane = row.k * Cell::kGates * p.H + j;
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
      x[g] = wx[g * p.H];
      gamma[g] = static_cast<const T*>(p.args.extra[kGammaAt])[at_lane + g * p.H];
      if constexpr (Cell::kRecurrentBias) {
        bias[g] = static_cast<const T*>(p.args.extra[kRecurrentBiasAt<Cell>])[at_lane + g * p.H];
      }
    }
    if constexpr (Cell::kNormalizesState > 0) {
      state_gamma = static_cast<const T*>(p.args.extra[kStateGammaAt])[row.k * p.H + j];
      state_beta = static_cast<const T*>(p.args.extra[kStateBetaAt])[row.k * p.H + j];
    }
  }
};

// The states that enter the step: `before` as the cell sees them and the reserve has them.
template <class Cell, class T>
struct NormEntering {
  Compute<T> prev[Cell::kStates], before[Cell::kStates];

  template <class P>
  __device__ void Load(const P& p, const Element& e) {
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) before[s] = prev[s] = p.carried[s][e.at];
    before[0] = KeptHidden<Cell>(prev[0], DropScale(p, e));
  }
};

// Stores what backward reads of the step.
template <class Cell, class P>
HASTE_DEVICE void KeepStep(const P& p, const NormRow& row, const Element& e,
                           const typename P::C (&kept)[Cell::kKept],
                           const typename P::C (&before)[Cell::kStates],
                           const typename P::C (&product)[Cell::kGates]) {
  using T = typename P::Storage;
  const StepPlace place(row.at_step, Cell::kGates, p.H, e.j);
  KeepGates<Cell, 0, Cell::kGates>(p, place, kept);
  KeepSaved<Cell>(p, place, before, kept);
  T* products = static_cast<T*>(p.args.products) + row.at_step * Cell::kGates * p.H + e.j;
  HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
    products[g * p.H] = FromCompute<T>(product[g]);
  }
}

// Stores the output and the states that leave the step.
template <class Cell, class P>
__device__ void LeaveStep(const P& p, const NormRow& row, const Element& e, int64_t step,
                          typename P::C y, const typename P::C (&next)[Cell::kStates]) {
  using T = typename P::Storage;
  static_cast<T*>(p.args.y)[row.at_step * p.H + e.j] = FromCompute<T>(y);
  HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
    p.carried[s][e.at] = next[s];
    if (step == p.T_ - 1 && p.args.sT[s] != nullptr) {
      static_cast<T*>(p.args.sT[s])[e.at] = FromCompute<T>(next[s]);
    }
  }
  PutOperand(p, step + 1, e, e.j, next[0] * DropScale(p, e));
}

// As LeaveStep, with Zoneout on the states that the cell has made.
template <class Cell, class P>
__device__ void LeaveLiveStep(const P& p, const NormRow& row, const Element& e, int64_t step,
                              const typename P::C (&prev)[Cell::kStates],
                              typename P::C (&next)[Cell::kStates]) {
  using C = typename P::C;
  if (p.zoneout) {
    C share[Cell::kStates];
    ZoneoutShares<Cell>(p, e, row.t, share);
    MixZoneout(share, prev, next);
  }
  LeaveStep<Cell>(p, row, e, step, next[0], next);
}

// A masked step: the states pass through unchanged.
template <class Cell, class P>
__device__ void PassForward(const P& p, const NormRow& row, int64_t step) {
  using T = typename P::Storage;
  using C = Compute<T>;
  const bool repeats = Repeats(p, row.reverse, row.n, step);
  for (int64_t j = threadIdx.x; j < p.H; j += blockDim.x) {
    const Element e = row.Unit(p, j);
    NormEntering<Cell, T> in;
    in.Load(p, e);
    if (p.args.keep) {
      const C none[Cell::kKept] = {}, no_product[Cell::kGates] = {};
      KeepStep<Cell>(p, row, e, none, in.before, no_product);
    }
    LeaveStep<Cell>(p, row, e, step, repeats ? in.prev[0] : C(0), in.prev);
  }
}

template <class Cell, class P>
__global__ void __launch_bounds__(kMaxRowThreads)
    NormForwardRow(const __grid_constant__ P p, const WalkStep of) {
  using T = typename P::Storage;
  using C = Compute<T>;
  constexpr int kGates = Cell::kGates, kStates = Cell::kStates, kKept = Cell::kKept;
  constexpr int kState = Cell::kNormalizesState;
  __shared__ typename BlockSum<C, 1>::Shared shared;
  BlockSum<C, 1> block_sum(&shared);
  const int64_t step = of.Get();
  const NormRow row(p, step);
  // The thread's first unit is read ahead. In rows no longer than the block it is the only one.
  const int64_t first = threadIdx.x;
  NormForwardInputs<Cell, T> ahead;
  if (row.live && first < p.H) ahead.Load(p, row, first);
  WaitForPreviousKernel();
  LetNextKernelStart();
  if (!row.live) {
    PassForward<Cell>(p, row, step);
    return;
  }
  C* const sums = p.norm.sums + row.index * p.norm.sums_row;
  const auto each_unit = [&](const auto& visit) {
    for (int64_t j = first; j < p.H; j += blockDim.x) visit(j);
  };
  const auto inputs_of = [&](int64_t j) {
    if (j == first) return ahead;
    NormForwardInputs<Cell, T> in;
    in.Load(p, row, j);
    return in;
  };

  Moments<C> of_product;
  C sum[1] = {};
  each_unit([&](int64_t j) {
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) sum[0] += sums[g * p.H + j];
  });
  block_sum(sum);
  of_product.mean = sum[0] / static_cast<C>(kGates * p.H);
  sum[0] = 0;
  each_unit([&](int64_t j) {
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      const C from_mean = sums[g * p.H + j] - of_product.mean;
      sum[0] = MulAdd(from_mean, from_mean, sum[0]);
    }
  });
  block_sum(sum);
  of_product.scale = InverseDeviation(sum[0], static_cast<C>(kGates * p.H), p.norm.epsilon);

  sum[0] = 0;
  each_unit([&](int64_t j) {
    const Element e = row.Unit(p, j);
    const NormForwardInputs<Cell, T> in = inputs_of(j);
    NormEntering<Cell, T> entering;
    entering.Load(p, e);
    C x[kGates], product[kGates], q[kGates], kept[kKept] = {}, next[kStates] = {};
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      x[g] = ToCompute(in.x[g]);
      product[g] = sums[g * p.H + j];
      C plus = 0;
      if constexpr (Cell::kRecurrentBias) plus = ToCompute(in.bias[g]);
      q[g] = MulAdd(of_product.Normed(product[g]), ToCompute(in.gamma[g]), plus);
    }
    WithActivations<Cell, C>(p.act, [&](const Activations& act) {
      Cell::Forward(act, x, q, entering.before, kept, next);
    });
    if (p.args.keep) KeepStep<Cell>(p, row, e, kept, entering.before, product);
    if constexpr (kState > 0) {
      HASTE_UNROLL for (int i = 0; i < kKept; ++i) sums[i * p.H + j] = kept[i];
      HASTE_UNROLL for (int s = 1; s < kStates; ++s) p.norm.fresh[s][e.at] = next[s];
      sum[0] += next[kState];
    } else {
      LeaveLiveStep<Cell>(p, row, e, step, entering.prev, next);
    }
  });

  if constexpr (kState > 0) {
    const C* const fresh = p.norm.fresh[kState] + row.index * p.H;
    Moments<C> of_state;
    block_sum(sum);
    of_state.mean = sum[0] / static_cast<C>(p.H);
    sum[0] = 0;
    each_unit([&](int64_t j) {
      const C from_mean = fresh[j] - of_state.mean;
      sum[0] = MulAdd(from_mean, from_mean, sum[0]);
    });
    block_sum(sum);
    of_state.scale = InverseDeviation(sum[0], static_cast<C>(p.H), p.norm.epsilon);
    each_unit([&](int64_t j) {
      const Element e = row.Unit(p, j);
      const NormForwardInputs<Cell, T> in = inputs_of(j);
      NormEntering<Cell, T> entering;
      entering.Load(p, e);
      C kept[kKept], next[kStates];
      HASTE_UNROLL for (int i = 0; i < kKept; ++i) kept[i] = sums[i * p.H + j];
      HASTE_UNROLL for (int s = 1; s < kStates; ++s) next[s] = p.norm.fresh[s][e.at];
      const C normed = MulAdd(of_state.Normed(next[kState]), ToCompute(in.state_gamma),
                              ToCompute(in.state_beta));
      WithActivations<Cell, C>(
          p.act, [&](const Activations& act) { next[0] = Cell::Output(act, kept, normed); });
      LeaveLiveStep<Cell>(p, row, e, step, entering.prev, next);
    });
  }
}

}  // namespace haste
