// The `tiled` engine: products of a step in tiles on tensor cores. One launch walks all steps if
// its blocks all fit the GPU, and a step has one product or R stays on the chip. Compiled once for
// each cell and group of dtypes (lib/cuda/cell/engine_table.h).
#include <cstdint>
#include <type_traits>

#include "lib/cuda/cell/engine_driver.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/tiled/kernels.cuh"
#include "lib/cuda/tiled/setup.cuh"

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

template <class Cell, class D>
using TiledProductsOf = std::conditional_t<kCanBeStationary<D>, StationaryPolicy<Cell, D, true>,
                                           TiledProducts<Cell, D, false>>;

// The EnginePolicy for WalkEngine.
template <class Cell, class D>
class TiledPolicy : public TiledProductsOf<Cell, D> {
  using Products = TiledProductsOf<Cell, D>;
  static constexpr int kLast = D::kPhases - 1;
  using Products::plan_, Products::device_;

 public:
  using Products::Products;

  int32_t Walk(const Phased<D>& phased, int64_t first, int64_t steps, const HasteExecutor& executor,
               HasteStatus* status) const {
    if constexpr (kCanBeStationary<D>) {
      if (plan_.tiled[0].tiling.stationary()) {
        return Products::Walk(phased, first, steps, executor, status);
      }
    }
    TiledKernel<typename D::First> one(phased.of[0]);
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
