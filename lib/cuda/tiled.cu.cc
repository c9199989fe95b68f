// The `tiled` engine: products of a step in tiles on tensor cores, one launch for all steps where a
// step is one product and its blocks fit the GPU. Compiled once a cell and dtype: HASTE_CELL
// (Lstm), HASTE_DTYPE_NAME (f32), HASTE_T (float).
#include <cstdint>
#include <type_traits>

#include "lib/cuda/tiled_kernels.cuh"
#include "lib/cuda/tiled_prepare.cuh"
#include "lib/cuda/walk_setup.cuh"

namespace haste {
namespace {

// Workspace; `workspace` counts what it takes.
template <class Cell, class Direction>
void Fill(const HasteRnnConfig& config, const Plan& plan, Workspace* workspace,
          Phased<Direction>* phased) {
  using Params = typename Direction::Params;
  Params p = phased->of[0];
  FillWalk<Cell>(config, p.args, workspace, &p);
  p.exact = config.allow_tf32 == 0;
  ForEachPhase<Direction>([&](auto* phase, int i) {
    using Phase = std::remove_pointer_t<decltype(phase)>;
    Params& q = phased->of[i];
    q = p;
    const TiledTiling& t = q.tiling = plan.tiled[i].tiling;
    const TiledProductShape shape = ShapeOf<Phase>();
    const int64_t chunks = t.total_chunks();
    q.kernel =
        workspace->Take<uint4>(p.K * t.unit_tiles * chunks * shape.kernel_bytes() / sizeof(uint4));
    q.operand.chunks = static_cast<int>(chunks);
    q.operand.row_tiles = t.row_tiles;
    q.operand.depth = shape.depth();
    while (1 << q.operand.log_rows < t.rows) ++q.operand.log_rows;
    q.operand.a = workspace->Take<uint16_t>(q.operand.Size(p.K, shape.operand_parts));
    q.arrived = workspace->Take<uint32_t>(p.K * t.row_tiles);
    return HASTE_OK;
  });
  for (int i = 0; i < Direction::kPhases; ++i) {
    phased->of[i].other = phased->of[Direction::kPhases - 1 - i].operand;
  }
}

// Packs R for the product of a phase, and clears what it is multiplied with.
template <class Phase>
int32_t PrepareTiled(const typename Phase::Params& p, const void* r, const HasteExecutor& executor,
                     HasteStatus* status) {
  using T = typename Phase::Params::Storage;
  const TiledTiling& t = p.tiling;
  const int64_t warps = p.K * t.unit_tiles * t.total_chunks() * ShapeOf<Phase>().tile_pieces();
  HASTE_CUDA_TRY(
      Launch(PackTiled<Phase>, PrepareBlocks(warps * 32), kPrepareThreads, 0, false, executor, t,
             p.K, p.H, static_cast<const T*>(r), const_cast<uint4*>(p.kernel)),
      status);
  const auto stream = static_cast<cudaStream_t>(executor.stream);
  const size_t bytes = p.operand.Size(p.K, Phase::Params::kParts) * sizeof(uint16_t);
  HASTE_CUDA_TRY(cudaMemsetAsync(p.operand.a, 0, bytes, stream), status);
  HASTE_CUDA_TRY(cudaMemsetAsync(p.arrived, 0, p.K * t.row_tiles * sizeof(uint32_t), stream),
                 status);
  return HASTE_OK;
}

// A phase's kernel, ready to be launched.
template <class Phase>
class TiledKernel {
  using Params = typename Phase::Params;

 public:
  explicit TiledKernel(const Params& p) : p_(p), kernel_(Of(p.tiling)) {}

  int32_t Set(const TiledPlan& plan, const HasteRnnConfig& config, const CudaProperties& device,
              HasteStatus* status) {
    LaunchShape shape;
    shape.blocks = plan.tiling.blocks(config.lanes);
    shape.threads = ShapeOf<Phase>().threads();
    shape.shared_bytes = plan.shared_bytes;
    shape.cluster = plan.tiling.splits;
    shape.cooperative = plan.tiling.persistent;
    return kernel_.Set(shape, config, device, status);
  }
  int32_t Run(bool after, int64_t step, int64_t count, const HasteExecutor& executor,
              HasteStatus* status) const {
    return kernel_.Run(after, executor, status, p_, step, count);
  }

 private:
  using Kernel = void (*)(const Params, int64_t, int64_t);
  static Kernel Of(const TiledTiling& t) {
    if constexpr (ShapeOf<Phase>().max_rows() == 128) {
      if (t.rows == 128) return TiledSteps<Phase, 128>;
    }
    return t.rows == 32 ? TiledSteps<Phase, 32> : TiledSteps<Phase, 64>;
  }

  const Params& p_;
  StepKernel<const Params, int64_t, int64_t> kernel_;
};

// Runs `steps` steps from `first` on.
template <class Direction>
int32_t Walk(const HasteRnnConfig& config, const Plan& plan, const Phased<Direction>& phased,
             int64_t first, int64_t steps, const CudaProperties& device,
             const HasteExecutor& executor, HasteStatus* status) {
  using First = typename Direction::First;
  constexpr int kLast = Direction::kPhases - 1;
  TiledKernel<First> one(phased.of[0]);
  TiledKernel<typename Direction::Second> two(phased.of[kLast]);
  int32_t code = one.Set(plan.tiled[0], config, device, status);
  if (code == HASTE_OK) code = two.Set(plan.tiled[kLast], config, device, status);
  const int64_t a_launch = plan.tiled[0].tiling.persistent ? steps : 1;
  for (int64_t done = 0; code == HASTE_OK && done < steps; done += a_launch) {
    const int64_t step = first + done * First::kStride;
    code = one.Run(done > 0, step, a_launch, executor, status);
    // Step -1, of backward, ends with the initial states' gradients.
    if (kLast > 0 && code == HASTE_OK && step >= 0) code = two.Run(true, step, 1, executor, status);
  }
  return code;
}

template <class Cell, class Direction, class Args>
int32_t Call(const HasteRnnConfig& config, const Args& args, const void* const* states,
             int64_t first, int64_t steps, void* workspace, const HasteExecutor& executor,
             HasteStatus* status) {
  constexpr bool kBackward = Direction::First::kBackward;
  CudaProperties device;
  Plan plan;
  int32_t code = GetCudaProperties(&device, status);
  if (code == HASTE_OK) code = PlanOn<Cell>(config, kBackward, &plan, status);
  if (code != HASTE_OK) return code;
  Phased<Direction> phased = {};
  phased.of[0].args = args;
  Workspace pieces(workspace);
  Fill<Cell>(config, plan, &pieces, &phased);
  code = ForEachPhase<Direction>([&](auto* phase, int i) {
    return PrepareTiled<std::remove_pointer_t<decltype(phase)>>(phased.of[i], args.R, executor,
                                                                status);
  });
  if (code == HASTE_OK) {
    code = PrepareStates<Cell, kBackward>(config, states, phased.of[0], executor, status);
  }
  return code != HASTE_OK ? code
                          : Walk(config, plan, phased, first, steps, device, executor, status);
}

// A template, so that nothing is compiled where PlanRecurrence never comes.
template <class Cell, class T>
struct Tiled {
  static constexpr int kParts = kOperandParts<Cell, T>;
  using ForwardWalk = ForwardPhases<Cell, TiledForwardParams<T, kParts>>;
  using BackwardWalk = BackwardPhases<Cell, TiledBackwardParams<T, kParts>>;

  template <class Direction>
  static size_t BytesOf(const HasteRnnConfig& config, const Plan& plan) {
    Workspace count(nullptr);
    Phased<Direction> phased = {};
    Fill<Cell>(config, plan, &count, &phased);
    return count.used();
  }

  static size_t WorkspaceBytes(const HasteRnnConfig& config, bool backward, const HasteExecutor&) {
    Plan plan;
    HasteStatus status;
    // Without a device there is nothing to run on; forward and backward say so.
    if (PlanOn<Cell>(config, backward, &plan, &status) != HASTE_OK) return 1;
    return backward ? BytesOf<BackwardWalk>(config, plan) : BytesOf<ForwardWalk>(config, plan);
  }

  static int32_t Forward(const HasteRnnConfig& config, const HasteRnnForwardArgs& args,
                         void* workspace, const HasteExecutor& executor, HasteStatus* status) {
    return Call<Cell, ForwardWalk>(config, args, args.s0, 0, config.time, workspace, executor,
                                   status);
  }

  static int32_t Backward(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args,
                          void* workspace, const HasteExecutor& executor, HasteStatus* status) {
    const int32_t code =
        Call<Cell, BackwardWalk>(config, args, args.dsT, config.time - 1,
                                 BackwardSteps<Cell>(config, args), workspace, executor, status);
    return code != HASTE_OK ? code : SumRecurrentBias<Cell>(config, args, executor, status);
  }

  static constexpr Engine Table() {
    if constexpr (sizeof(T) <= 4) {
      return {WorkspaceBytes, Forward, Backward};
    } else {
      return {};
    }
  }
};

}  // namespace

#define HASTE_PASTE(cell, dtype) TiledEngine_##cell##_##dtype
#define HASTE_ENGINE_NAME(cell, dtype) HASTE_PASTE(cell, dtype)

extern const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME);
const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME) = Tiled<HASTE_CELL, HASTE_T>::Table();

}  // namespace haste
