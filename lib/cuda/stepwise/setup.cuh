// Host code of the `stepwise` engines' products: tilings, workspace, and preparation before the
// first step.
#ifndef HASTE_LIB_CUDA_STEPWISE_SETUP_CUH_
#define HASTE_LIB_CUDA_STEPWISE_SETUP_CUH_

#include <cstdint>

#include "lib/cuda/cell/step_params.cuh"
#include "lib/cuda/cell/walk_setup.cuh"

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

// The tiling of a phase's product, and the workspace of its operands.
template <class Phase, class T>
void FillProduct(const HasteRnnConfig& config, const CudaProperties& device, Workspace* workspace,
                 StepParams<T>* p) {
  const Tiling tile = p->tiling = TilingOf<Phase>(config, device);
  p->b = workspace->Take<T>(p->K * tile.unit_tiles * tile.padded_depth() * tile.block_columns());
  p->a = workspace->Take<Compute<T>>(2 * p->K * tile.padded_depth() * tile.padded_rows());
}

// Packs R for the product of a phase, and clears the padding of the operand it is multiplied by.
template <class Phase, class T>
int32_t PrepareProduct(const StepParams<T>& p, const void* r, const HasteExecutor& executor,
                       HasteStatus* status) {
  const Tiling& tile = p.tiling;
  const int blocks =
      PrepareBlocks(p.K * tile.padded_depth() * tile.unit_tiles * tile.column_groups);
  const T* from = static_cast<const T*>(r);
  T* to = const_cast<T*>(p.b);
  if constexpr (Phase::kBackward) {
    HASTE_CUDA_TRY(
        Launch(PackBackward<Phase::kColumns, T, Phase::kBefore, Phase::kAfter>, blocks,
               kPrepareThreads, 0, false, executor, tile, p.K, p.H, Phase::kGates * p.H, from, to),
        status);
  } else {
    HASTE_CUDA_TRY(
        Launch(PackForward<Phase::kGates, Phase::kColumns, T, Phase::kBefore, Phase::kAfter>,
               blocks, kPrepareThreads, 0, false, executor, tile, p.K, p.H, from, to),
        status);
  }
  HASTE_CUDA_TRY(
      cudaMemsetAsync(p.a, 0,
                      2 * p.K * tile.padded_depth() * tile.padded_rows() * sizeof(Compute<T>),
                      static_cast<cudaStream_t>(executor.stream)),
      status);
  return HASTE_OK;
}

inline int64_t BlocksOf(const Tiling& tile, int64_t lanes) {
  return lanes * tile.unit_tiles * tile.row_tiles;
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_STEPWISE_SETUP_CUH_
