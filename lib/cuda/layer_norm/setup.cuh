// Host code of walks that normalise h·R, for any engine of the product: the workspace of the row
// kernel, and its launch.
#pragma once

#include <cstdint>
#include <cstring>

#include "lib/base/int_math.h"
#include "lib/cells/info.h"
#include "lib/cuda/cell/walk_setup.cuh"
#include "lib/cuda/layer_norm/rows_backward.cuh"
#include "lib/cuda/layer_norm/rows_forward.cuh"
#include "lib/cuda/ptx/reduce.cuh"

namespace haste {

// Elements of a parameter other than R.
template <class Cell>
int64_t ExtraSize(const HasteRnnConfig& config, int extra) {
  constexpr HasteCellInfo kInfo = CellInfo<Cell>();
  const int gates = strcmp(kInfo.extra_dims[extra], "KGH") == 0 ? Cell::kGates : 1;
  return config.lanes * gates * config.hidden;
}

// The gradients of the parameters other than R: sums over the steps [N, K, …], then over the rows.
template <class Cell, class P>
void TakeExtraGradients(const HasteRnnConfig& config, Workspace* workspace, P* p) {
  for (int e = 0; e < CellInfo<Cell>().extras; ++e) {
    p->norm.dextra[e] = workspace->Take<typename P::C>(p->N * ExtraSize<Cell>(config, e));
  }
}
template <class Cell, class P>
int32_t SumExtraGradients(const HasteRnnConfig& config, const P& p, const HasteExecutor& executor,
                          HasteStatus* status) {
  for (int e = 0; e < CellInfo<Cell>().extras; ++e) {
    HASTE_TRY((LaunchSumOverRows<typename P::C, typename P::Storage>(
        p.N, ExtraSize<Cell>(config, e), p.norm.dextra[e], p.args.dextra[e], executor, status)));
  }
  return HASTE_OK;
}

// One launch of the row kernel a step, with [N, K] blocks.
// width: sums of a unit. A row holds the columns of a product, which PlanBlas pads alike.
template <class Params>
void TakeSums(int64_t width, Workspace* workspace, Params* p) {
  p->norm.sums_row = PadTo(width * p->H, 8);
  p->norm.sums = workspace->Take<typename Params::C>(p->N * p->K * p->norm.sums_row);
}

template <class Cell, class P>
struct NormForwardRows : NoEnds<NormParams<P>> {
  static_assert(Cell::kNormalizes && Cell::kSplitsGradient && Cell::kResetGates == 0,
                "what the kernels are written for");
  using Params = NormParams<P>;
  using Product = NormForwardProduct<Cell, Params>;
  static constexpr auto kKernel = NormForwardRow<Cell, Params>;
  static constexpr int kWidth = Cell::kKept;  // of the sums

  static void TakeWorkspace(const HasteRnnConfig& config, Workspace* workspace, Params* p) {
    using C = typename Params::C;
    p->norm.epsilon = config.epsilon;
    TakeSums(kWidth, workspace, p);
    if constexpr (Cell::kNormalizesState > 0) {
      for (int s = 1; s < Cell::kStates; ++s) {
        p->norm.fresh[s] = workspace->Take<C>(p->N * p->K * p->H);
      }
    }
  }
};

template <class Cell, class P>
struct NormBackwardRows {
  using Params = NormParams<P>;
  using Product = NormBackwardProduct<Cell, Params>;
  static constexpr auto kKernel = NormBackwardRow<Cell, Params>;
  static constexpr int kWidth = 1;  // of the sums
  static constexpr int kExtras = CellInfo<Cell>().extras;
  static_assert(kExtras <= HASTE_MAX_EXTRAS, "what the kernels are written for");

  static void TakeWorkspace(const HasteRnnConfig& config, Workspace* workspace, Params* p) {
    using C = typename Params::C;
    p->norm.epsilon = config.epsilon;
    TakeSums(kWidth, workspace, p);
    p->norm.normed = workspace->Take<C>(p->N * p->K * Cell::kGates * p->H);
    TakeExtraGradients<Cell>(config, workspace, p);
  }
  static int32_t Begin(const HasteRnnConfig& config, const Params& p, const HasteExecutor& executor,
                       HasteStatus* status) {
    using C = typename Params::C;
    for (int e = 0; e < kExtras; ++e) {
      const size_t bytes = p.N * ExtraSize<Cell>(config, e) * sizeof(C);
      HASTE_CUDA_TRY(Clear(p.norm.dextra[e], bytes, executor), status);
    }
    return HASTE_OK;
  }
  static int32_t End(const HasteRnnConfig& config, const Params& p, const HasteExecutor& executor,
                     HasteStatus* status) {
    return SumExtraGradients<Cell>(config, p, executor, status);
  }
};

// One phase: the product of a step.
template <class Rows>
struct NormPhases {
  using Params = typename Rows::Params;
  static constexpr int kPhases = 1;
  using First = typename Rows::Product;
  using Second = First;
};

template <class P>
LaunchShape ShapeOfRows(const P& p) {
  // Threads of a row's block. If a thread has several units, they are divided evenly.
  const int64_t threads = CeilDiv(p.H, CeilDiv(p.H, kMaxRowThreads));
  return {p.N * p.K, static_cast<unsigned>(PadTo(threads, kWarpThreads))};
}

}  // namespace haste
