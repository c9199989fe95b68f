// The `stepwise` engine of cells that normalise h·R: any size, two kernels a step, the product, and
// one that takes its rows. Compiled once a cell and dtype: HASTE_CELL (LayerNormLstm),
// HASTE_DTYPE_NAME (f32), HASTE_T (float).
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lib/cells/info.h"
#include "lib/cuda/norm_stepwise_backward.cuh"
#include "lib/cuda/norm_stepwise_forward.cuh"
#include "lib/cuda/reduce.cuh"
#include "lib/cuda/stepwise_kernels.cuh"
#include "lib/cuda/stepwise_setup.cuh"

namespace haste {
namespace {

using Cell = HASTE_CELL;
using T = HASTE_T;
using C = Compute<T>;

constexpr HasteCellInfo kInfo = CellInfo<Cell>();
static_assert(Cell::kNormalizes && Cell::kSplitsGradient && Cell::kResetGates == 0 &&
                  kInfo.extras <= HASTE_MAX_EXTRAS,
              "what the kernels are written for");

// Elements of a parameter beside R.
int64_t ExtraSize(const HasteRnnConfig& config, int extra) {
  const int gates = strcmp(kInfo.extra_dims[extra], "KGH") == 0 ? Cell::kGates : 1;
  return config.lanes * gates * config.hidden;
}

struct ForwardWalk {
  using Params = NormForwardParams<T>;
  using Product = NormForwardProduct<Cell, T>;

  static void TakeWorkspace(const HasteRnnConfig&, Workspace* workspace, Params* p) {
    p->norm.sums = workspace->Take<C>(p->N * p->K * Cell::kKept * p->H);
    if constexpr (Cell::kNormalizesState > 0) {
      for (int s = 1; s < Cell::kStates; ++s) {
        p->norm.fresh[s] = workspace->Take<C>(p->N * p->K * p->H);
      }
    }
  }
};

struct BackwardWalk {
  using Params = NormBackwardParams<T>;
  using Product = NormBackwardProduct<Cell, T>;

  static void TakeWorkspace(const HasteRnnConfig& config, Workspace* workspace, Params* p) {
    p->norm.sums = workspace->Take<C>(p->N * p->K * p->H);
    p->norm.normed = workspace->Take<C>(p->N * p->K * Cell::kGates * p->H);
    for (int e = 0; e < kInfo.extras; ++e) {
      p->norm.dextra[e] = workspace->Take<C>(p->N * ExtraSize(config, e));
    }
  }
};

template <class Direction>
void Fill(const HasteRnnConfig& config, const CudaProperties& device, Workspace* workspace,
          typename Direction::Params* p) {
  StepParams<T>* const step = p;
  FillWalk<Cell>(config, p->args, workspace, step);
  FillProduct<typename Direction::Product>(config, device, workspace, step);
  p->norm.epsilon = config.epsilon;
  Direction::TakeWorkspace(config, workspace, p);
}

template <class Direction>
size_t BytesOf(const HasteRnnConfig& config, const CudaProperties& device) {
  Workspace count(nullptr);
  typename Direction::Params p = {};
  Fill<Direction>(config, device, &count, &p);
  return count.used();
}

size_t WorkspaceBytes(const HasteRnnConfig& config, bool backward, const HasteExecutor&) {
  CudaProperties device;
  HasteStatus status;
  // Without a device there is nothing to run on; forward and backward say so.
  if (GetCudaProperties(&device, &status) != HASTE_OK) return 0;
  return backward ? BytesOf<BackwardWalk>(config, device) : BytesOf<ForwardWalk>(config, device);
}

// Everything of a call before its first step.
template <class Direction, class Args>
int32_t Begin(const HasteRnnConfig& config, const Args& args, const void* const* states,
              void* workspace, const HasteExecutor& executor, CudaProperties* device,
              typename Direction::Params* p, HasteStatus* status) {
  using Product = typename Direction::Product;
  const int32_t found = GetCudaProperties(device, status);
  if (found != HASTE_OK) return found;
  p->args = args;
  Workspace pieces(workspace);
  Fill<Direction>(config, *device, &pieces, p);
  const StepParams<T>& step = *p;
  const int32_t packed = PrepareProduct<Product>(step, args.R, executor, status);
  if (packed != HASTE_OK) return packed;
  return PrepareStates<Cell, Product::kBackward>(config, states, step, executor, status);
}

// Threads of a row's block, shared out evenly where a thread has several units.
int RowThreads(int64_t units) {
  const int64_t rounds = (units + kMaxRowThreads - 1) / kMaxRowThreads;
  const int64_t threads = (units + rounds - 1) / rounds;
  return static_cast<int>((threads + kWarpThreads - 1) / kWarpThreads * kWarpThreads);
}

// The two kernels of a step.
template <class Direction, int kRows>
class StepPair {
  using Params = typename Direction::Params;

 public:
  StepPair(const Params& p, void (*row)(const Params, int64_t), const HasteExecutor& executor)
      : p_(p), executor_(executor), row_(row) {}

  int32_t Set(const HasteRnnConfig& config, const CudaProperties& device, HasteStatus* status) {
    LaunchShape product, row;
    product.blocks = BlocksOf(p_.tiling, p_.K);
    product.threads = kStepThreads;
    product.shared_bytes = p_.tiling.shared_bytes;
    row.blocks = p_.N * p_.K;
    row.threads = RowThreads(p_.H);
    const int32_t code = product_.Set(product, config, device, status);
    return code != HASTE_OK ? code : row_.Set(row, config, device, status);
  }

  // first: no kernel of steps runs before this one.
  int32_t LaunchProduct(int64_t step, bool first, HasteStatus* status) const {
    return product_.Run(!first, executor_, status, p_, step, 1);
  }
  int32_t LaunchRows(int64_t step, bool first, HasteStatus* status) const {
    return row_.Run(!first, executor_, status, p_, step);
  }

 private:
  const Params& p_;
  const HasteExecutor& executor_;
  StepKernel<const Params, int64_t, int64_t> product_{Steps<typename Direction::Product, kRows>};
  StepKernel<const Params, int64_t> row_;
};

template <int kRows>
int32_t WalkForward(const HasteRnnConfig& config, const NormForwardParams<T>& p,
                    const CudaProperties& device, const HasteExecutor& executor,
                    HasteStatus* status) {
  StepPair<ForwardWalk, kRows> pair(p, NormForwardRow<Cell, T>, executor);
  int32_t code = pair.Set(config, device, status);
  for (int64_t step = 0; code == HASTE_OK && step < p.T_; ++step) {
    code = pair.LaunchProduct(step, step == 0, status);
    if (code == HASTE_OK) code = pair.LaunchRows(step, false, status);
  }
  return code;
}

template <int kRows>
int32_t WalkBackward(const HasteRnnConfig& config, const NormBackwardParams<T>& p,
                     const CudaProperties& device, const HasteExecutor& executor,
                     HasteStatus* status) {
  StepPair<BackwardWalk, kRows> pair(p, NormBackwardRow<Cell, T>, executor);
  int32_t code = pair.Set(config, device, status);
  // After step 0 its product, and at step -1 the initial states' gradients, if they are wanted.
  int64_t last = 0;
  for (int s = 0; s < Cell::kStates; ++s) last = p.args.ds0[s] != nullptr ? -1 : last;
  for (int64_t step = p.T_ - 1; code == HASTE_OK && step >= last; --step) {
    code = pair.LaunchRows(step, step == p.T_ - 1, status);
    if (code == HASTE_OK && step > last) code = pair.LaunchProduct(step, false, status);
  }
  return code;
}

int32_t Forward(const HasteRnnConfig& config, const HasteRnnForwardArgs& args, void* workspace,
                const HasteExecutor& executor, HasteStatus* status) {
  CudaProperties device;
  NormForwardParams<T> p = {};
  const int32_t begun =
      Begin<ForwardWalk>(config, args, args.s0, workspace, executor, &device, &p, status);
  if (begun != HASTE_OK) return begun;
  return p.tiling.rows == 2 ? WalkForward<2>(config, p, device, executor, status)
                            : WalkForward<kManyRows<C>>(config, p, device, executor, status);
}

int32_t Backward(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args, void* workspace,
                 const HasteExecutor& executor, HasteStatus* status) {
  CudaProperties device;
  NormBackwardParams<T> p = {};
  const int32_t begun =
      Begin<BackwardWalk>(config, args, args.dsT, workspace, executor, &device, &p, status);
  if (begun != HASTE_OK) return begun;
  for (int e = 0; e < kInfo.extras; ++e) {
    HASTE_CUDA_TRY(cudaMemsetAsync(p.norm.dextra[e], 0, p.N * ExtraSize(config, e) * sizeof(C),
                                   static_cast<cudaStream_t>(executor.stream)),
                   status);
  }
  const int32_t walked = p.tiling.rows == 2
                             ? WalkBackward<2>(config, p, device, executor, status)
                             : WalkBackward<kManyRows<C>>(config, p, device, executor, status);
  if (walked != HASTE_OK) return walked;
  for (int e = 0; e < kInfo.extras; ++e) {
    const int32_t summed = LaunchSumOverRows<C, T>(p.N, ExtraSize(config, e), p.norm.dextra[e],
                                                   args.dextra[e], executor, status);
    if (summed != HASTE_OK) return summed;
  }
  return HASTE_OK;
}

}  // namespace

#define HASTE_PASTE(cell, dtype) CudaEngine_##cell##_##dtype
#define HASTE_ENGINE_NAME(cell, dtype) HASTE_PASTE(cell, dtype)

extern const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME);
const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME) = {WorkspaceBytes, Forward, Backward};

}  // namespace haste
