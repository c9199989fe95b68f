// The `stepwise` engine: any size, one kernel a step. Compiled once a cell and dtype:
// HASTE_CELL (Lstm), HASTE_DTYPE_NAME (f32), HASTE_T (float).
//
// While all of a lane's units fit one block, no block waits for another, and one kernel walks
// all of the steps.
#include <algorithm>
#include <cinttypes>
#include <cstdint>

#include "lib/cuda/cuda.h"
#include "lib/cuda/error.h"
#include "lib/cuda/launch.cuh"
#include "lib/cuda/stepwise_kernels.cuh"
#include "lib/cuda/stepwise_prepare.cuh"
#include "lib/engine.h"
#include "lib/workspace.h"

namespace haste {
namespace {

using Cell = HASTE_CELL;
using T = HASTE_T;
using C = Compute<T>;

TilingProblem ProblemOf(const HasteRnnConfig& config, bool backward) {
  TilingProblem problem;
  problem.batch = config.batch;
  problem.lanes = config.lanes;
  problem.hidden = config.hidden;
  problem.depth = backward ? Cell::kGates * config.hidden : config.hidden;
  problem.columns_per_unit = backward ? 1 : Cell::kGates;
  problem.columns = backward ? kBackwardColumns : kForwardColumns<Cell>;
  problem.storage_bytes = sizeof(T);
  problem.compute_bytes = sizeof(C);
  return problem;
}

Tiling TilingOf(const HasteRnnConfig& config, bool backward, const CudaProperties& device) {
  // From sm_90 on the next step's blocks start beside this one's, so each has half of what is
  // there; the driver keeps 1 KB a block.
  const int64_t shared = device.sm_major >= 9 ? (device.shared_bytes_per_block - 1024) / 2
                                              : device.shared_bytes_per_block;
  return PlanTiling(ProblemOf(config, backward),
                    {device.multiprocessors, static_cast<size_t>(shared)});
}

// Sizes, options and workspace; `workspace` counts what it takes.
void Fill(const HasteRnnConfig& config, bool backward, const Tiling& tiling, Workspace* workspace,
          StepParams<T>* p) {
  const int64_t N = p->N = config.batch;
  p->T_ = config.time;
  const int64_t K = p->K = config.lanes;
  const int64_t H = p->H = config.hidden;
  p->tiling = tiling;
  p->act = {config.activation, config.recurrent_activation};
  p->training = config.training != 0;
  p->zero_output_for_mask = config.zero_output_for_mask != 0;
  p->dropout_rate = p->training ? config.recurrent_dropout : 0.0f;
  p->zoneout = false;
  for (int s = 0; s < Cell::kStates; ++s) {
    p->zoneout_rate[s] = config.zoneout[s];
    p->zoneout |= config.zoneout[s] > 0.0f;
  }
  p->reverse = workspace->Take<uint8_t>(K);
  p->first_live = workspace->Take<int64_t>(2 * N);
  p->b = workspace->Take<T>(K * tiling.unit_tiles * tiling.padded_depth() * tiling.block_columns());
  p->a = workspace->Take<C>(2 * K * tiling.padded_depth() * tiling.padded_rows());
  for (int s = 0; s < Cell::kStates; ++s) p->carried[s] = workspace->Take<C>(N * K * H);
}

size_t WorkspaceBytes(const HasteRnnConfig& config, bool backward, const HasteExecutor&) {
  CudaProperties device;
  HasteStatus status;
  // Without a device there is nothing to run on; forward and backward say so.
  if (GetCudaProperties(&device, &status) != HASTE_OK) return 0;
  Workspace count(nullptr);
  StepParams<T> p;
  Fill(config, backward, TilingOf(config, backward, device), &count, &p);
  return count.used();
}

int Blocks(int64_t threads) {
  return static_cast<int>(
      std::min<int64_t>((threads + kPrepareThreads - 1) / kPrepareThreads, 4096));
}

int32_t Prepare(const HasteRnnConfig& config, bool backward, const void* r,
                const void* const* states, const StepParams<T>& p, const HasteExecutor& executor,
                HasteStatus* status) {
  const Tiling& tile = p.tiling;
  for (int64_t first = 0; first < p.K; first += kLanesPerCall) {
    const int64_t lanes = std::min<int64_t>(kLanesPerCall, p.K - first);
    Directions directions = {};
    for (int64_t k = 0; config.reverse != nullptr && k < lanes; ++k) {
      if (config.reverse[first + k]) directions.bits[k / 32] |= 1u << (k % 32);
    }
    HASTE_CUDA_TRY(Launch(SetDirections, Blocks(lanes), kPrepareThreads, 0, false, executor,
                          directions, lanes, const_cast<uint8_t*>(p.reverse) + first),
                   status);
  }
  if (p.mask != nullptr) {
    HASTE_CUDA_TRY(Launch(FindFirstLive, Blocks(2 * p.N * 32), kPrepareThreads, 0, false, executor,
                          p.N, p.T_, p.mask, const_cast<int64_t*>(p.first_live)),
                   status);
  }
  const int64_t packs = p.K * tile.padded_depth() * tile.unit_tiles * tile.column_groups;
  if (backward) {
    HASTE_CUDA_TRY(Launch(PackBackward<kBackwardColumns, T>, Blocks(packs), kPrepareThreads, 0,
                          false, executor, tile, p.K, p.H, Cell::kGates * p.H,
                          static_cast<const T*>(r), const_cast<T*>(p.b)),
                   status);
  } else {
    HASTE_CUDA_TRY(
        Launch(PackForward<Cell::kGates, kForwardColumns<Cell>, T>, Blocks(packs), kPrepareThreads,
               0, false, executor, tile, p.K, p.H, static_cast<const T*>(r), const_cast<T*>(p.b)),
        status);
  }
  HASTE_CUDA_TRY(
      cudaMemsetAsync(p.a, 0, 2 * p.K * tile.padded_depth() * tile.padded_rows() * sizeof(C),
                      static_cast<cudaStream_t>(executor.stream)),
      status);
  StatePointers from = {};
  for (int s = 0; s < Cell::kStates; ++s) from.of[s] = states[s];
  HASTE_CUDA_TRY(Launch(CarryIn<Cell::kStates, T>, Blocks(p.N * p.K * p.H), kPrepareThreads, 0,
                        false, executor, p, from),
                 status);
  if (!backward) {
    HASTE_CUDA_TRY(
        Launch(FirstOperand<T>, Blocks(p.N * p.K * p.H), kPrepareThreads, 0, false, executor, p),
        status);
  }
  return HASTE_OK;
}

// Runs `steps` steps from `first` on, each `stride` (1 or -1) after the one before.
template <class Params>
int32_t Walk(void (*kernel)(const Params, int64_t, int64_t), const Params& p, int64_t first,
             int64_t steps, int64_t stride, const CudaProperties& device,
             const HasteExecutor& executor, HasteStatus* status) {
  const Tiling& tile = p.tiling;
  const int64_t blocks = p.K * tile.unit_tiles * tile.row_tiles;
  if (blocks > INT32_MAX) {
    return SetStatus(status, HASTE_UNIMPLEMENTED,
                     "batch and lanes: at most 2^31 - 1 blocks of work a step, %" PRId64
                     " × %" PRId64 " need %" PRId64,
                     p.N, p.K, blocks);
  }
  HASTE_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(tile.shared_bytes)),
                 status);
  cudaFuncAttributes attributes;
  HASTE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel), status);
  // Kernels overlap only where their code was made to wait for one another.
  const bool overlap = device.sm_major >= 9 && attributes.ptxVersion >= 90;
  const int64_t a_launch = tile.owns_lane() ? steps : 1;
  for (int64_t step = 0; step < steps; step += a_launch) {
    HASTE_CUDA_TRY(Launch(kernel, blocks, kStepThreads, tile.shared_bytes, overlap && step > 0,
                          executor, p, first + step * stride, a_launch),
                   status);
  }
  return HASTE_OK;
}

int32_t Forward(const HasteRnnConfig& config, const HasteRnnForwardArgs& args, void* workspace,
                const HasteExecutor& executor, HasteStatus* status) {
  CudaProperties device;
  const int32_t found = GetCudaProperties(&device, status);
  if (found != HASTE_OK) return found;
  ForwardParams<T> p;
  Workspace pieces(workspace);
  Fill(config, false, TilingOf(config, false, device), &pieces, &p);
  p.mask = args.mask;
  p.seed = args.seed;
  p.args = args;
  const int32_t prepared = Prepare(config, false, args.R, args.s0, p, executor, status);
  if (prepared != HASTE_OK) return prepared;
  constexpr int kRows = sizeof(C) == 8 ? 4 : 8;
  return Walk<ForwardParams<T>>(
      p.tiling.rows == 2 ? ForwardSteps<Cell, T, 2> : ForwardSteps<Cell, T, kRows>, p, 0, p.T_, 1,
      device, executor, status);
}

int32_t Backward(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args, void* workspace,
                 const HasteExecutor& executor, HasteStatus* status) {
  CudaProperties device;
  const int32_t found = GetCudaProperties(&device, status);
  if (found != HASTE_OK) return found;
  BackwardParams<T> p;
  Workspace pieces(workspace);
  Fill(config, true, TilingOf(config, true, device), &pieces, &p);
  p.mask = args.mask;
  p.seed = args.seed;
  p.args = args;
  const int32_t prepared = Prepare(config, true, args.R, args.dsT, p, executor, status);
  if (prepared != HASTE_OK) return prepared;
  bool wants_initial = false;
  for (int s = 0; s < Cell::kStates; ++s) wants_initial |= args.ds0[s] != nullptr;
  constexpr int kRows = sizeof(C) == 8 ? 4 : 8;
  return Walk<BackwardParams<T>>(
      p.tiling.rows == 2 ? BackwardSteps<Cell, T, 2> : BackwardSteps<Cell, T, kRows>, p, p.T_ - 1,
      p.T_ + (wants_initial ? 1 : 0), -1, device, executor, status);
}

}  // namespace

#define HASTE_PASTE(cell, dtype) StepwiseEngine_##cell##_##dtype
#define HASTE_ENGINE_NAME(cell, dtype) HASTE_PASTE(cell, dtype)

extern const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME);
const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME) = {WorkspaceBytes, Forward, Backward};

}  // namespace haste
