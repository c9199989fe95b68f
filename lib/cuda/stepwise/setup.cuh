// Host code of the `stepwise` engines' products: tilings, workspace, and preparation before the
// first step.
#pragma once

#include <cstdint>

#include "lib/cuda/cell/step_params.cuh"
#include "lib/cuda/cell/walk_setup.cuh"
#include "lib/cuda/stepwise/kernels.cuh"
#include "lib/plan/costs/cost_table.h"

namespace haste {

// Phase: see lib/cuda/cell/phase_forward.cuh.
template <class Phase>
Tiling TilingOf(const HasteRnnConfig& config, const CudaProperties& device) {
  using T = typename Phase::Params::Storage;
  TilingProblem problem;
  problem.batch = config.batch;
  problem.lanes = config.lanes;
  problem.hidden = config.hidden;
  problem.depth = Phase::kDepth * config.hidden;
  problem.columns_per_unit = Phase::kSums;
  problem.columns = Phase::kColumns;
  problem.storage_bytes = sizeof(T);
  problem.compute_bytes = sizeof(Compute<T>);
  // From sm_90 on, the next step's blocks start while this step's run, so each has half of the
  // shared memory. The driver keeps 1 KB a block.
  const int64_t shared = device.sm_major >= 9 ? (device.shared_bytes_per_block - 1024) / 2
                                              : device.shared_bytes_per_block;
  return PlanTiling(problem, {device.multiprocessors, static_cast<size_t>(shared)},
                    CostsOf(device.sm_major, device.sm_minor).stepwise_cut);
}

// Rows of a thread if it has more than two.
template <class C>
constexpr int kManyRows = sizeof(C) == 8 ? 4 : 8;

// A phase's kernel of steps.
template <class Phase>
auto StepsOf(const Tiling& tile) {
  using C = typename Phase::Params::C;
  return tile.rows == 2 ? Steps<Phase, 2> : Steps<Phase, kManyRows<C>>;
}

// A block for each tile.
inline LaunchShape ShapeOf(const Tiling& tile, int64_t lanes) {
  return {lanes * tile.unit_tiles * tile.row_tiles, kStepThreads, tile.shared_bytes};
}

// The EnginePolicy for WalkEngine, without Walk.
template <class D>
class StepwiseProducts {
 public:
  using Direction = D;

  StepwiseProducts(const HasteRnnConfig& config, const PlannedRnn& planned)
      : config_(config), device_(planned.cuda) {}

  template <class Phase, class T>
  OperandPlace<Compute<T>> FillPhase(Phase*, int, Workspace* workspace, StepParams<T>* p) const {
    const Tiling tile = p->tiling = TilingOf<Phase>(config_, device_);
    p->b = workspace->Take<T>(p->K * tile.unit_tiles * tile.padded_depth() * tile.block_columns());
    p->a = workspace->Take<Compute<T>>(2 * p->K * tile.padded_depth() * tile.padded_rows());
    return {p->a, tile.padded_depth(), tile.padded_rows()};
  }

  // Packs R, and clears the padding of the operand that it is multiplied by.
  template <class Phase, class T>
  int32_t PreparePhase(Phase*, const StepParams<T>& p, const void* r, const HasteExecutor& executor,
                       HasteStatus* status) const {
    const Tiling& tile = p.tiling;
    const int64_t depth = p.K * tile.padded_depth();
    const int64_t threads = depth * tile.unit_tiles * tile.column_groups;
    const T* from = static_cast<const T*>(r);
    T* to = const_cast<T*>(p.b);
    if constexpr (Phase::kBackward) {
      const auto pack = PackBackward<Phase::kColumns, T, Phase::kBefore, Phase::kAfter>;
      const int64_t real_depth = Phase::kGates * p.H;
      HASTE_CUDA_TRY(LaunchPrepare(pack, threads, executor, tile, p.K, p.H, real_depth, from, to),
                     status);
    } else {
      const auto pack =
          PackForward<Phase::kGates, Phase::kColumns, T, Phase::kBefore, Phase::kAfter>;
      HASTE_CUDA_TRY(LaunchPrepare(pack, threads, executor, tile, p.K, p.H, from, to), status);
    }
    const size_t bytes = 2 * depth * tile.padded_rows() * sizeof(Compute<T>);
    return HASTE_CUDA_STATUS(Clear(p.a, bytes, executor), status);
  }

 protected:
  const HasteRnnConfig& config_;
  const CudaProperties& device_;
};

}  // namespace haste
