// The host's part of an engine that walks step by step: tilings, workspace, what is prepared before
// the first step, and how a kernel of steps is launched.
#ifndef HASTE_LIB_CUDA_STEPWISE_SETUP_CUH_
#define HASTE_LIB_CUDA_STEPWISE_SETUP_CUH_

#include <algorithm>
#include <cinttypes>
#include <cstdint>

#include "lib/cuda/cuda.h"
#include "lib/cuda/error.h"
#include "lib/cuda/launch.cuh"
#include "lib/cuda/stepwise_params.cuh"
#include "lib/cuda/stepwise_prepare.cuh"
#include "lib/engine.h"
#include "lib/workspace.h"

namespace haste {

// Phase: what stepwise_forward.cuh says.
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
  // From sm_90 on the next step's blocks start beside this one's, so each has half of what is
  // there; the driver keeps 1 KB a block.
  const int64_t shared = device.sm_major >= 9 ? (device.shared_bytes_per_block - 1024) / 2
                                              : device.shared_bytes_per_block;
  return PlanTiling(problem, {device.multiprocessors, static_cast<size_t>(shared)});
}

// Rows of a thread where it has more than two.
template <class C>
constexpr int kManyRows = sizeof(C) == 8 ? 4 : 8;

// Sizes, options and the workspace that all phases share; `workspace` counts what it takes.
template <class Cell, class Args, class T>
void FillStep(const HasteRnnConfig& config, const Args& args, Workspace* workspace,
              StepParams<T>* p) {
  FillRecurrence<Cell, T>(config, args, p);
  p->reverse = workspace->Take<uint8_t>(p->K);
  p->first_live = workspace->Take<int64_t>(2 * p->N);
  for (int s = 0; s < Cell::kStates; ++s) {
    p->carried[s] = workspace->Take<Compute<T>>(p->N * p->K * p->H);
  }
}

// The tiling of a phase's product, and the workspace of its operands.
template <class Phase, class T>
void FillProduct(const HasteRnnConfig& config, const CudaProperties& device, Workspace* workspace,
                 StepParams<T>* p) {
  const Tiling tile = p->tiling = TilingOf<Phase>(config, device);
  p->b = workspace->Take<T>(p->K * tile.unit_tiles * tile.padded_depth() * tile.block_columns());
  p->a = workspace->Take<Compute<T>>(2 * p->K * tile.padded_depth() * tile.padded_rows());
}

inline int PrepareBlocks(int64_t threads) {
  return static_cast<int>(
      std::min<int64_t>((threads + kPrepareThreads - 1) / kPrepareThreads, 4096));
}

// Packs R for the product of a phase, and clears the padding of what it is multiplied with.
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

// Directions, where live steps begin, and the states that enter the walk; in forward, once the
// operands were cleared, the first of those too.
template <class Cell, bool kBackward, class T>
int32_t PrepareStates(const HasteRnnConfig& config, const void* const* states,
                      const StepParams<T>& p, const HasteExecutor& executor, HasteStatus* status) {
  for (int64_t first = 0; first < p.K; first += kLanesPerCall) {
    const int64_t lanes = std::min<int64_t>(kLanesPerCall, p.K - first);
    Directions directions = {};
    for (int64_t k = 0; config.reverse != nullptr && k < lanes; ++k) {
      if (config.reverse[first + k]) directions.bits[k / 32] |= 1u << (k % 32);
    }
    HASTE_CUDA_TRY(Launch(SetDirections, PrepareBlocks(lanes), kPrepareThreads, 0, false, executor,
                          directions, lanes, const_cast<uint8_t*>(p.reverse) + first),
                   status);
  }
  if (p.mask != nullptr) {
    HASTE_CUDA_TRY(Launch(FindFirstLive, PrepareBlocks(2 * p.N * 32), kPrepareThreads, 0, false,
                          executor, p.N, p.T_, p.mask, const_cast<int64_t*>(p.first_live)),
                   status);
  }
  StatePointers from = {};
  for (int s = 0; s < Cell::kStates; ++s) from.of[s] = states[s];
  const int blocks = PrepareBlocks(p.N * p.K * p.H);
  HASTE_CUDA_TRY(
      Launch(CarryIn<Cell::kStates, T>, blocks, kPrepareThreads, 0, false, executor, p, from),
      status);
  if constexpr (!kBackward) {
    HASTE_CUDA_TRY(Launch(FirstOperand<T>, blocks, kPrepareThreads, 0, false, executor, p), status);
  }
  return HASTE_OK;
}

// A kernel of steps, ready to be launched.
template <class... Params>
struct StepKernel {
  void (*kernel)(Params...);
  int64_t blocks = 0;
  size_t shared_bytes = 0;
  bool overlaps = false;  // its code was made to wait for the kernel before

  explicit StepKernel(void (*of)(Params...)) : kernel(of) {}

  int32_t Set(int64_t blocks_of_step, size_t shared, const HasteRnnConfig& config,
              const CudaProperties& device, HasteStatus* status) {
    blocks = blocks_of_step;
    shared_bytes = shared;
    if (blocks > INT32_MAX) {
      return SetStatus(status, HASTE_UNIMPLEMENTED,
                       "batch and lanes: at most 2^31 - 1 blocks of work a step, %" PRId64
                       " × %" PRId64 " need %" PRId64,
                       config.batch, config.lanes, blocks);
    }
    HASTE_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shared_bytes)),
                   status);
    cudaFuncAttributes attributes;
    HASTE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel), status);
    overlaps = device.sm_major >= 9 && attributes.ptxVersion >= 90;
    return HASTE_OK;
  }
};

inline int64_t BlocksOf(const Tiling& tile, int64_t lanes) {
  return lanes * tile.unit_tiles * tile.row_tiles;
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_STEPWISE_SETUP_CUH_
