// The `tiled` engine: products of a step in tiles on tensor cores. One launch walks all steps if a
// step has one product and its blocks all fit the GPU. Compiled once for each cell and group of
// dtypes (lib/cuda/cell/engine_table.h).
#include <cstdint>
#include <type_traits>

#include "lib/cuda/cell/engine_driver.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/tiled/kernels.cuh"
#include "lib/cuda/tiled/pack.cuh"

namespace haste {
namespace {

// The workspace of a phase's product.
template <class Phase>
void FillTiled(const TiledTiling& t, Workspace* workspace, typename Phase::Params* p) {
  const TiledProductShape shape = ShapeOf<Phase>();
  const int64_t chunks = t.total_chunks();
  p->tiling = t;
  p->kernel =
      workspace->Take<uint4>(p->K * t.unit_tiles * chunks * shape.kernel_bytes() / sizeof(uint4));
  p->operand.chunks = static_cast<int>(chunks);
  p->operand.row_tiles = t.row_tiles;
  p->operand.width = shape.operand_width();
  while (1 << p->operand.log_rows < t.rows) ++p->operand.log_rows;
  p->operand.a = workspace->Take<uint16_t>(p->operand.Size(p->K));
  p->arrived = workspace->Take<uint32_t>(p->K * t.row_tiles);
  p->most = workspace->Take<float>(2);
}

// Packs R for the product of a phase, and clears its operand.
template <class Cell, class Phase>
int32_t PrepareTiled(const typename Phase::Params& p, const void* r, const HasteExecutor& executor,
                     HasteStatus* status) {
  using T = typename Phase::Params::Storage;
  const TiledTiling& t = p.tiling;
  const auto stream = static_cast<cudaStream_t>(executor.stream);
  if constexpr (kScaledTerms<T> > 0) {
    const int64_t weights = p.K * p.H * Phase::kAllGates * p.H;
    HASTE_CUDA_TRY(cudaMemsetAsync(p.most, 0, 2 * sizeof(float), stream), status);
    HASTE_CUDA_TRY(Launch(FindMost<Cell, Phase>, PrepareBlocks(weights), kPrepareThreads, 0, false,
                          executor, p, weights, static_cast<const T*>(r)),
                   status);
  }
  const int64_t warps = p.K * t.unit_tiles * t.total_chunks() * ShapeOf<Phase>().tile_pieces();
  HASTE_CUDA_TRY(Launch(PackTiled<Phase>, PrepareBlocks(warps * 32), kPrepareThreads, 0, false,
                        executor, p, static_cast<const T*>(r), const_cast<uint4*>(p.kernel)),
                 status);
  const size_t bytes = p.operand.Size(p.K) * sizeof(uint16_t);
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

// The EnginePolicy for WalkEngine.
template <class Cell, class D>
class TiledPolicy {
 public:
  using Direction = D;

  TiledPolicy(const HasteRnnConfig& config, const Plan& plan) : config_(config), plan_(plan) {}

  void Fill(Workspace* workspace, Phased<Direction>* phased) const {
    FillPhases<Cell>(config_, workspace, phased, [&](auto* phase, int i) {
      using Phase = std::remove_pointer_t<decltype(phase)>;
      phased->of[i].exact = config_.allow_tf32 == 0;
      FillTiled<Phase>(plan_.tiled[i].tiling, workspace, &phased->of[i]);
    });
  }

  int32_t Prepare(const Phased<Direction>& phased, const void* r, const HasteExecutor& executor,
                  HasteStatus* status) const {
    return ForEachPhase<Direction>([&](auto* phase, int i) {
      return PrepareTiled<Cell, std::remove_pointer_t<decltype(phase)>>(phased.of[i], r, executor,
                                                                        status);
    });
  }

  int32_t Walk(const Phased<Direction>& phased, int64_t first, int64_t steps,
               const CudaProperties& device, const HasteExecutor& executor,
               HasteStatus* status) const {
    using First = typename Direction::First;
    constexpr int kLast = Direction::kPhases - 1;
    TiledKernel<First> one(phased.of[0]);
    TiledKernel<typename Direction::Second> two(phased.of[kLast]);
    int32_t code = one.Set(plan_.tiled[0], config_, device, status);
    if (code == HASTE_OK) code = two.Set(plan_.tiled[kLast], config_, device, status);
    const int64_t a_launch = plan_.tiled[0].tiling.persistent ? steps : 1;
    for (int64_t done = 0; code == HASTE_OK && done < steps; done += a_launch) {
      const int64_t step = first + done * First::kStride;
      code = one.Run(done > 0, step, a_launch, executor, status);
      // Backward's step -1 ends with the gradients of the initial states.
      if (kLast > 0 && code == HASTE_OK && step >= 0) {
        code = two.Run(true, step, 1, executor, status);
      }
    }
    return code;
  }

 private:
  const HasteRnnConfig& config_;
  const Plan& plan_;
};

template <class Cell, class T>
using TiledForward =
    TiledPolicy<Cell, ForwardPhases<Cell, TiledForwardParams<T, kOperandTerms<Cell, T>>>>;
template <class Cell, class T>
using TiledBackward =
    TiledPolicy<Cell, BackwardPhases<Cell, TiledBackwardParams<T, kOperandTerms<Cell, T>>>>;
// Floats whose h has a bound, and gates' gradients that share a scale, go in two parts: the first
// alone where they need not be exact.
template <class T, bool kScales>
using TiledStorage = std::conditional_t<std::is_same_v<T, float> && kScales, Scaled<2>, T>;
template <class Cell, class T>
using Tiled =
    WalkEngine<Cell, TiledForward<Cell, T>,
               TiledBackward<Cell, TiledStorage<T, ScalesTiledGradients(CellInfo<Cell>())>>,
               TiledForward<Cell, TiledStorage<T, true>>>;

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(TiledEngine, HASTE_CELL, NAME, Tiled<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
