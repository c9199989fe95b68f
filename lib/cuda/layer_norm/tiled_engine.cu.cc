// The engine `tiled` of cells that normalise h·R: R is stationary, and one launch walks all steps.
// Compiled once for each cell (lib/cuda/cell/engine_table.h).
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lib/cuda/cell/engine_driver.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/layer_norm/setup.cuh"
#include "lib/cuda/layer_norm/stationary_backward.cuh"
#include "lib/cuda/layer_norm/stationary_forward.cuh"
#include "lib/cuda/tiled/setup.cuh"

namespace haste {
namespace {

// Product: NormForwardProduct or NormBackwardProduct, of which only the sizes count here.
template <class Product>
struct NormTiledPhases {
  using Params = typename Product::Params;
  static constexpr int kPhases = 1;
  using First = Product;
  using Second = Product;
};

constexpr int kMostRowBlocks = 1 << 16;  // that take turns with rows

// The EnginePolicy for WalkEngine.
template <class Cell, class D>
class NormTiledPolicy : public TiledProducts<Cell, D, true, false> {
  using Products = TiledProducts<Cell, D, true, false>;
  using Params = typename D::Params;
  using Products::config_;
  static constexpr bool kBackward = D::First::kBackward;
  static constexpr int kReductions = Cell::kNormalizesState > 0 ? 2 : 1;  // of a step

 public:
  using Products::Products;

  template <class Phase>
  auto FillPhase(Phase* phase, int i, Workspace* workspace, Params* p) const {
    const auto operand = Products::FillPhase(phase, i, workspace, p);
    p->norm.epsilon = config_.epsilon;
    p->norm.partials = workspace->Take<uint4>(RowAllReduce<Params>::Size(*p, kReductions));
    if constexpr (kBackward) {
      p->norm.moments = workspace->Take<float4>(Rows(*p));
      p->norm.accumulators = workspace->Take<float4>(Accumulators(*p));
      TakeExtraGradients<Cell>(config_, workspace, p);
    }
    return operand;
  }

  template <class Phase>
  int32_t PreparePhase(Phase* phase, const Params& p, const void* r, const HasteExecutor& executor,
                       HasteStatus* status) const {
    HASTE_TRY(Products::PreparePhase(phase, p, r, executor, status));
    if constexpr (kBackward) {
      const size_t bytes = Accumulators(p) * sizeof(float4);
      HASTE_CUDA_TRY(Clear(p.norm.accumulators, bytes, executor), status);
    }
    const size_t bytes = RowAllReduce<Params>::Size(p, kReductions) * sizeof(uint4);
    return HASTE_CUDA_STATUS(Clear(p.norm.partials, bytes, executor), status);
  }

  int32_t Walk(const Phased<D>& phased, int64_t first, int64_t steps, const HasteExecutor& executor,
               HasteStatus* status) const {
    const Params& p = phased.of[0];
    if constexpr (kBackward) {
      const int64_t blocks = CeilDiv(Rows(p), kMomentsThreads / kWarpThreads);
      const LaunchShape rows = {std::min<int64_t>(blocks, kMostRowBlocks), kMomentsThreads};
      HASTE_CUDA_TRY(Launch(MomentsOfSteps<Cell, Params>, rows, executor, p), status);
      using Wide = NormStationaryBackwardElements<Cell, kStationaryRows, Params>;
      using Narrow = NormStationaryBackwardElements<Cell, kStationaryRows / 2, Params>;
      HASTE_TRY((this->template LaunchBackward<Wide, Narrow>(p, first, steps, executor, status)));
      return SumExtraGradients<Cell>(config_, p, executor, status);
    } else {
      using Elements = NormStationaryForwardElements<Cell, Params>;
      return this->template LaunchForward<Elements>(p, steps, executor, status);
    }
  }

 private:
  static int64_t Rows(const Params& p) { return p.N * p.T_ * p.K; }
  static int64_t Accumulators(const Params& p) {
    return p.tiling.blocks(p.K) * AccumulatorsOfBlock<Cell>(p.tiling);
  }
};

template <class Product, class Cell>
using NormTiledWalk = NormTiledPolicy<Cell, NormTiledPhases<Product>>;
// TensorFloat-32 has the precision of one scaled term.
template <class T>
using NormStorage = std::conditional_t<std::is_same_v<T, TensorFloat>, Scaled<1>, T>;
template <class Cell, class T>
using NormTiled = WalkEngine<
    Cell, NormTiledWalk<NormForwardProduct<Cell, NormParams<TiledForwardParams<T, 1>>>, Cell>,
    NormTiledWalk<NormBackwardProduct<Cell, NormParams<TiledBackwardParams<T, 1>>>, Cell>>;

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(TiledEngine, HASTE_CELL, NAME, NormTiled<HASTE_CELL, NormStorage<T>>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
