// The `tiled` engine: products of a step in tiles on tensor cores. One launch walks all steps if a
// step has one product and its blocks all fit the GPU. Compiled once for each cell and group of
// dtypes (lib/cuda/cell/engine_table.h).
#include <cstdint>
#include <type_traits>

#include "lib/cuda/cell/engine_driver.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/tiled/kernels.cuh"
#include "lib/cuda/tiled/pack.cuh"
#include "lib/cuda/tiled/stationary_backward.cuh"
#include "lib/cuda/tiled/stationary_forward.cuh"

namespace haste {
namespace {

// A phase's kernel, ready to be launched.
template <class Phase>
class TiledKernel {
  using Params = typename Phase::Params;

 public:
  explicit TiledKernel(const Params& p) : p_(p), kernel_(Of(p.tiling)) {}

  int32_t Set(size_t shared_bytes, const CudaProperties& device, HasteStatus* status) {
    const TiledTiling& t = p_.tiling;
    return kernel_.Set(
        {t.blocks(p_.K), ShapeOf<Phase>().threads(), shared_bytes, t.splits, t.persistent}, device,
        status);
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

// Whether a direction has kernels for R that is stationary (TiledProblem::allows_stationary).
template <class D>
constexpr bool kCanBeStationary =
    D::kPhases == 1 && sizeof(typename D::Params::Storage) == 2 && D::Params::kTerms == 1;

// The EnginePolicy for WalkEngine.
template <class Cell, class D>
class TiledPolicy {
  using First = typename D::First;
  static constexpr int kLast = D::kPhases - 1;
  static constexpr bool kStationary = kCanBeStationary<D>;

 public:
  using Direction = D;

  TiledPolicy(const HasteRnnConfig& config, const PlannedRnn& planned)
      : config_(config), plan_(planned.plan), device_(planned.cuda) {}

  template <class Phase, class Params>
  auto FillPhase(Phase*, int i, Workspace* workspace, Params* p) const {
    const TiledTiling& t = p->tiling = plan_.tiled[i].tiling;
    const TiledProductShape shape = ShapeOf<Phase>();
    const int64_t chunks = t.total_chunks();
    p->exact = config_.allow_tf32 == 0;
    const int kernel_bytes = t.stationary() ? t.kernel_chunk_bytes() : shape.kernel_bytes();
    p->kernel = workspace->Take<uint4>(p->K * t.unit_tiles * chunks * kernel_bytes / sizeof(uint4));
    p->operand.chunks = static_cast<int>(chunks);
    p->operand.row_tiles = t.row_tiles;
    p->operand.width = t.stationary() ? t.stationary_depth() : shape.operand_width();
    while (1 << p->operand.log_rows < t.rows) ++p->operand.log_rows;
    p->operand.a = workspace->Take<uint16_t>(p->operand.Size(p->K));
    p->arrived = workspace->Take<uint32_t>(Counters(*p));
    p->most = workspace->Take<float>(2);
    return p->operand;
  }

  template <class Phase, class Params>
  int32_t PreparePhase(Phase*, const Params& p, const void* r, const HasteExecutor& executor,
                       HasteStatus* status) const {
    using T = typename Params::Storage;
    const TiledTiling& t = p.tiling;
    const T* from = static_cast<const T*>(r);
    if constexpr (kScaledTerms<T> > 0) {
      const int64_t weights = p.K * p.H * Phase::kAllGates * p.H;
      HASTE_CUDA_TRY(Clear(p.most, 2 * sizeof(float), executor), status);
      HASTE_CUDA_TRY(LaunchPrepare(FindMost<Cell, Phase>, weights, executor, p, weights, from),
                     status);
    }
    HASTE_CUDA_TRY(Pack<Phase>(p, from, executor), status);
    const size_t bytes = p.operand.Size(p.K) * sizeof(uint16_t);
    HASTE_CUDA_TRY(Clear(p.operand.a, bytes, executor), status);
    return HASTE_CUDA_STATUS(Clear(p.arrived, Counters(p) * sizeof(uint32_t), executor), status);
  }

  int32_t Walk(const Phased<D>& phased, int64_t first, int64_t steps, const HasteExecutor& executor,
               HasteStatus* status) const {
    if constexpr (kStationary) {
      if (plan_.tiled[0].tiling.stationary()) {
        return WalkStationary(phased.of[0], first, steps, executor, status);
      }
    }
    TiledKernel<First> one(phased.of[0]);
    TiledKernel<typename D::Second> two(phased.of[kLast]);
    HASTE_TRY(one.Set(plan_.tiled[0].shared_bytes, device_, status));
    if (kLast > 0) HASTE_TRY(two.Set(plan_.tiled[kLast].shared_bytes, device_, status));
    // A launch of all steps, or one for each phase of a step.
    const bool persistent = plan_.tiled[0].tiling.persistent;
    const int64_t a_launch = persistent ? steps : 1;
    return ForEachStep<D>(WalkStep{nullptr, first}, persistent ? 1 : steps,
                          [&](int i, const WalkStep& step, bool after) {
                            return i == 0 ? one.Run(after, step.step, a_launch, executor, status)
                                          : two.Run(after, step.step, 1, executor, status);
                          });
  }

 private:
  // What blocks count, or set flags for, that they have ended a step.
  template <class Params>
  static int64_t Counters(const Params& p) {
    const TiledTiling& t = p.tiling;
    return p.K * t.row_tiles * (t.stationary() ? t.flags() : 1);
  }

  template <class Phase, class Params, class T>
  static cudaError_t Pack(const Params& p, const T* from, const HasteExecutor& executor) {
    const TiledTiling& t = p.tiling;
    uint4* to = const_cast<uint4*>(p.kernel);
    if constexpr (kStationary) {
      if (t.stationary()) {
        const int64_t pieces =
            p.K * t.group_blocks() * t.chunks * (t.kernel_chunk_bytes() / sizeof(uint4));
        return LaunchPrepare(PackStationary<Phase>, pieces, executor, p, from, to);
      }
    }
    const int64_t warps = p.K * t.unit_tiles * t.total_chunks() * ShapeOf<Phase>().tile_pieces();
    return LaunchPrepare(PackTiled<Phase>, warps * 32, executor, p, from, to);
  }

  template <int kRows, class Params>
  static auto StationaryBackwardOf(int turns) {
    return turns > 1 ? StationaryBackwardSteps<Cell, kRows, 2, Params>
                     : StationaryBackwardSteps<Cell, kRows, 1, Params>;
  }
  template <class Params>
  int32_t WalkStationary(const Params& p, int64_t first, int64_t steps,
                         const HasteExecutor& executor, HasteStatus* status) const {
    const TiledTiling& t = p.tiling;
    const LaunchShape shape = {t.blocks(p.K), kStationaryThreads,
                               static_cast<size_t>(plan_.tiled[0].shared_bytes), t.cluster(), true};
    if constexpr (First::kBackward) {
      StepKernel<const Params, int64_t, int64_t> kernel(
          t.rows == kStationaryRows ? StationaryBackwardOf<kStationaryRows, Params>(t.turns)
                                    : StationaryBackwardOf<kStationaryRows / 2, Params>(t.turns));
      HASTE_TRY(kernel.Set(shape, device_, status));
      return kernel.Run(false, executor, status, p, first, steps);
    } else {
      StepKernel<const Params, int64_t> kernel(t.turns > 1 ? StationarySteps<Cell, 2, Params>
                                                           : StationarySteps<Cell, 1, Params>);
      HASTE_TRY(kernel.Set(shape, device_, status));
      return kernel.Run(false, executor, status, p, steps);
    }
  }

  const HasteRnnConfig& config_;
  const Plan& plan_;
  const CudaProperties& device_;
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
