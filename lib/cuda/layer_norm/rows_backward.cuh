// After the product of a step of the backward walk: one block takes one row of units, and computes
// the gradients of wx and of h·R before its normalisation. As in rows_forward.cuh, each unit
// belongs to one thread.
//
// With v^ = (v - mean) · scale, a row's gradient before its normalisation is
//   dv = scale · (dv^ - mean(dv^) - v^ · mean(dv^ ∘ v^))
#pragma once

#include "lib/cuda/cell/phase_backward.cuh"
#include "lib/cuda/layer_norm/rows_params.cuh"

namespace haste {

// The state that is normalised, as forward made it.
template <class Cell, class Reserve>
__device__ auto StateOf(const Reserve& reserve) {
  typename Reserve::C kept[Cell::kKept], prev[Cell::kStates];
  reserve.Get(kept, prev);
  return Cell::NewState(kept, prev);
}
// Whether h of a unit, as it entered the product, is not 0. scale(): of h, from dropout.
template <class Cell, class Reserve, class Scale>
__device__ bool HasHidden(const Reserve& reserve, const Scale& scale) {
  typename Reserve::C kept[Cell::kKept], prev[Cell::kStates];
  reserve.Get(kept, prev);
  if constexpr (kMixesHidden<Cell>) prev[0] *= scale();
  return prev[0] != 0;
}

// What is read from the caller's tensors for one unit.
template <class Cell, class T>
struct NormBackwardInputs {
  using C = Compute<T>;

  Reserve<Cell, T, Cell::kGates> reserve;
  T gamma[Cell::kGates], state_gamma, state_beta, dy;

  template <class P>
  __device__ void Load(const P& p, const NormRow& row, const Element& e) {
    reserve.Load(p, StepPlace(row.at_step, Cell::kGates, p.H, e.j));
    const T* from = static_cast<const T*>(p.args.extra[kGammaAt]) + e.k * Cell::kGates * p.H + e.j;
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) gamma[g] = from[g * p.H];
    if constexpr (Cell::kNormalizesState > 0) {
      state_gamma = static_cast<const T*>(p.args.extra[kStateGammaAt])[e.k * p.H + e.j];
      state_beta = static_cast<const T*>(p.args.extra[kStateBetaAt])[e.k * p.H + e.j];
    }
    dy = p.args.dy == nullptr ? FromCompute<T>(0)
                              : static_cast<const T*>(p.args.dy)[row.at_step * p.H + e.j];
  }

  __device__ C State() const { return StateOf<Cell>(reserve); }

  // The gradient of that state with gamma and beta applied; sets the dx of the gates of h.
  __device__ C OutputGradient(const Activations& activations, C state_normed, C dh,
                              C (&dx)[Cell::kGates]) const {
    C kept[Cell::kKept], prev[Cell::kStates], gradient = 0;
    reserve.Get(kept, prev);
    const C output = MulAdd(state_normed, ToCompute(state_gamma), ToCompute(state_beta));
    WithActivations<Cell, C>(activations, [&](const Activations& act) {
      gradient = Cell::OutputBackward(act, kept, output, dh, dx);
    });
    return gradient;
  }
};

// h·R of one unit.
template <class Cell, class T>
struct NormProducts {
  T v[Cell::kGates];

  // at_step: in [N, T, K].
  template <class P>
  __device__ void Load(const P& p, int64_t at_step, int64_t j) {
    const T* from = static_cast<const T*>(p.args.products) + at_step * Cell::kGates * p.H + j;
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) v[g] = from[g * p.H];
  }
};

// Gradients of the states that leave a step. scale: of the gradient of h where it enters h·R.
template <class Cell, class T>
struct NormLeaving {
  using C = Compute<T>;

  C ds[Cell::kStates], past[Cell::kStates], scale;

  template <class P>
  __device__ void Load(const P& p, const Element& e, int64_t step) {
    scale = DropScale(p, e);
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
      ds[s] = p.carried[s][e.at];
      past[s] = 0;
    }
    // In the last step of the walk, no later step contributes.
    if (step == p.T_ - 1) return;
    ds[0] = MulAdd(p.norm.sums[(e.n * p.K + e.k) * p.norm.sums_row + e.j], scale, ds[0]);
  }

  // Subtracts what Zoneout passed around the cell.
  template <class P>
  __device__ void TakePast(const P& p, const Element& e, int64_t t) {
    if (!p.zoneout) return;
    C share[Cell::kStates];
    ZoneoutShares<Cell>(p, e, t, share);
    SplitZoneout(share, ds, past);
  }
};

// A masked step: the gradients pass through unchanged. Step -1 stores those of the initial states.
template <class Cell, class P>
__device__ void PassBackward(const P& p, const NormRow& row, int64_t step) {
  using T = typename P::Storage;
  // y of a masked step repeats the previous y, so its gradient belongs to that state.
  const bool adds_dy = step >= 0 && p.args.dy != nullptr && Repeats(p, row.reverse, row.n, step);
  for (int64_t j = threadIdx.x; j < p.H; j += blockDim.x) {
    const Element e = row.Unit(p, j);
    NormLeaving<Cell, T> leaving;
    leaving.Load(p, e, step);
    if (step < 0) {
      StoreStates<T>(p.args.ds0, e.at, leaving.ds);
      continue;
    }
    if (adds_dy) {
      leaving.ds[0] += ToCompute(static_cast<const T*>(p.args.dy)[row.at_step * p.H + j]);
    }
    const int64_t at = row.at_step * Cell::kGates * p.H + j;
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
      static_cast<T*>(p.args.dwx)[at + g * p.H] = FromCompute<T>(0);
      static_cast<T*>(p.args.dq)[at + g * p.H] = FromCompute<T>(0);
      PutOperand(p, step, e, g * p.H + j, 0);
    }
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) p.carried[s][e.at] = leaving.ds[s];
  }
}

template <class Cell, class P>
__global__ void __launch_bounds__(kMaxRowThreads)
    NormBackwardRow(const __grid_constant__ P p, const WalkStep of) {
  using T = typename P::Storage;
  using C = Compute<T>;
  constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  constexpr int kState = Cell::kNormalizesState;
  __shared__ typename BlockSum<C, 2>::Shared shared;
  BlockSum<C, 2> block_sum(&shared);
  const int64_t step = of.Get();
  const NormRow row(p, step);
  const C units = static_cast<C>(p.H), elements = static_cast<C>(kGates * p.H);
  // The thread's first unit is read once. In rows no longer than the block it is the only one.
  const int64_t first = threadIdx.x;
  NormBackwardInputs<Cell, T> ahead;
  NormProducts<Cell, T> ahead_products;
  if (row.live && first < p.H) {
    ahead.Load(p, row, row.Unit(p, first));
    ahead_products.Load(p, row.at_step, first);
  }
  const auto each_unit = [&](const auto& visit) {
    for (int64_t j = first; j < p.H; j += blockDim.x) visit(j);
  };
  const auto inputs_of = [&](int64_t j) {
    if (j == first) return ahead;
    NormBackwardInputs<Cell, T> in;
    in.Load(p, row, row.Unit(p, j));
    return in;
  };
  const auto products_of = [&](int64_t j) {
    if (j == first) return ahead_products;
    NormProducts<Cell, T> products;
    products.Load(p, row.at_step, j);
    return products;
  };

  // Computes forward's statistics again, while the product before this kernel ends.
  Moments<C> of_product = {}, of_state = {};
  if (row.live) {
    C sum[2] = {};
    each_unit([&](int64_t j) {
      const NormProducts<Cell, T> products = products_of(j);
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) sum[0] += ToCompute(products.v[g]);
      if constexpr (kState > 0) sum[1] += inputs_of(j).State();
    });
    block_sum(sum);
    of_product.mean = sum[0] / elements;
    of_state.mean = sum[1] / units;
    sum[0] = sum[1] = 0;
    each_unit([&](int64_t j) {
      const NormProducts<Cell, T> products = products_of(j);
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        const C from_mean = ToCompute(products.v[g]) - of_product.mean;
        sum[0] = MulAdd(from_mean, from_mean, sum[0]);
      }
      if constexpr (kState > 0) {
        const C from_mean = inputs_of(j).State() - of_state.mean;
        sum[1] = MulAdd(from_mean, from_mean, sum[1]);
      }
    });
    block_sum(sum);
    of_product.scale = InverseDeviation(sum[0], elements, p.norm.epsilon);
    of_state.scale = InverseDeviation(sum[1], units, p.norm.epsilon);
  }

  WaitForPreviousKernel();
  LetNextKernelStart();
  if (!row.live) {
    PassBackward<Cell>(p, row, step);
    return;
  }
  const auto load_leaving = [&](const Element& e, const NormBackwardInputs<Cell, T>& in) {
    NormLeaving<Cell, T> leaving;
    leaving.Load(p, e, step);
    leaving.ds[0] += ToCompute(in.dy);
    leaving.TakePast(p, e, row.t);
    return leaving;
  };
  NormLeaving<Cell, T> ahead_leaving;
  if (first < p.H) ahead_leaving = load_leaving(row.Unit(p, first), ahead);
  const auto leaving_of = [&](const Element& e, const NormBackwardInputs<Cell, T>& in) {
    return e.j == first ? ahead_leaving : load_leaving(e, in);
  };

  C sum[2] = {};
  if constexpr (kState > 0) {
    each_unit([&](int64_t j) {
      const Element e = row.Unit(p, j);
      const NormBackwardInputs<Cell, T> in = inputs_of(j);
      C dx[kGates];
      const C normed = of_state.Normed(in.State());
      const C gradient = in.OutputGradient(p.act, normed, leaving_of(e, in).ds[0], dx);
      p.norm.dextra[kStateGammaAt][e.at] += gradient * normed;
      p.norm.dextra[kStateBetaAt][e.at] += gradient;
      const C dnormed = gradient * ToCompute(in.state_gamma);
      sum[0] += dnormed;
      sum[1] = MulAdd(dnormed, normed, sum[1]);
    });
    block_sum(sum);
  }
  const C state_mean = sum[0] / units, state_slope = sum[1] / units;

  C* const dnormed = p.norm.normed + row.index * kGates * p.H;
  const int64_t at_row = row.at_step * kGates * p.H;
  sum[0] = sum[1] = 0;
  bool felt = false;
  each_unit([&](int64_t j) {
    const Element e = row.Unit(p, j);
    const NormBackwardInputs<Cell, T> in = inputs_of(j);
    const NormProducts<Cell, T> products = products_of(j);
    NormLeaving<Cell, T> leaving = leaving_of(e, in);
    C kept[Cell::kKept], prev[kStates], dx[kGates] = {}, dq[kGates], before[kStates];
    in.reserve.Get(kept, prev);
    felt |= HasHidden<Cell>(in.reserve, [&] { return leaving.scale; });
    if constexpr (kState > 0) {
      const C normed = of_state.Normed(in.State());
      const C gradient = in.OutputGradient(p.act, normed, leaving.ds[0], dx);
      leaving.ds[kState] += of_state.scale * (gradient * ToCompute(in.state_gamma) - state_mean -
                                              normed * state_slope);
    }
    WithActivations<Cell, C>(p.act, [&](const Activations& act) {
      CellBackward<Cell>(act, kept, prev, leaving.ds, dx, dq, before);
    });
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      static_cast<T*>(p.args.dwx)[at_row + g * p.H + j] = FromCompute<T>(dx[g]);
      const C normed = of_product.Normed(ToCompute(products.v[g]));
      const int64_t at = (row.index * kGates + g) * p.H + j;
      p.norm.dextra[kGammaAt][at] += dq[g] * normed;
      if constexpr (Cell::kRecurrentBias) p.norm.dextra[kRecurrentBiasAt<Cell>][at] += dq[g];
      const C gradient = dq[g] * ToCompute(in.gamma[g]);
      dnormed[g * p.H + j] = gradient;
      sum[0] += gradient;
      sum[1] = MulAdd(gradient, normed, sum[1]);
    }
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
      p.carried[s][e.at] =
          MulAdd(before[s], s == 0 ? KeptScale<Cell>(leaving.scale) : C(1), leaving.past[s]);
    }
  });
  block_sum(sum);
  const C mean = sum[0] / elements, slope = sum[1] / elements;
  // dq is stored only for dR = Σ h ⊗ dq. A row with h = 0 adds nothing to that, but has variance 0,
  // and the slope 1 / sqrt(ε) may take dq out of the range of 16 bits.
  const bool reaches = __syncthreads_or(felt) != 0;
  each_unit([&](int64_t j) {
    const NormProducts<Cell, T> products = products_of(j);
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      const C normed = of_product.Normed(ToCompute(products.v[g]));
      const C gradient = of_product.scale * (dnormed[g * p.H + j] - mean - normed * slope);
      static_cast<T*>(p.args.dq)[at_row + g * p.H + j] = FromCompute<T>(reaches ? gradient : C(0));
      PutOperand(p, step, row.Unit(p, j), g * p.H + j, gradient);
    }
  });
}

}  // namespace haste
