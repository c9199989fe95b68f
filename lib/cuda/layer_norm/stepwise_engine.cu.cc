// The `stepwise` engine of cells that normalise h·R: any size, two kernels a step: the product, and
// one that takes its rows. Compiled once for each cell and group of dtypes
// (lib/cuda/cell/engine_table.h).
#include <cstdint>

#include "lib/cuda/cell/engine_driver.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/cell/graph_driver.cuh"
#include "lib/cuda/layer_norm/setup.cuh"
#include "lib/cuda/stepwise/setup.cuh"

namespace haste {
namespace {

template <class Rows>
class NormStepwisePolicy : public StepwiseProducts<NormPhases<Rows>> {
  using Products = StepwiseProducts<NormPhases<Rows>>;
  using Product = typename Rows::Product;
  using Params = typename Rows::Params;
  using Products::config_, Products::device_;

 public:
  using Products::Products;

  auto FillPhase(Product* phase, int i, Workspace* workspace, Params* p) const {
    const auto operand = Products::FillPhase(phase, i, workspace, p);
    Rows::TakeWorkspace(config_, workspace, p);
    return operand;
  }

  int32_t Walk(const Phased<NormPhases<Rows>>& phased, int64_t first, int64_t steps,
               const HasteExecutor& executor, HasteStatus* status) const {
    const Params& p = phased.of[0];
    HASTE_TRY(Rows::Begin(config_, p, executor, status));
    StepKernel product(StepsOf<Product>(p.tiling));
    StepKernel rows(Rows::kKernel);
    HASTE_TRY(product.Set(ShapeOf(p.tiling, p.K), device_, status));
    HASTE_TRY(rows.Set(ShapeOfRows(p), device_, status));
    const auto launch = [&](const WalkStep& from, int64_t count, const HasteExecutor& on,
                            HasteStatus* said) {
      return ForEachStep<NormPhases<Rows>>(
          from, count, [&](int, const WalkStep& step, bool after) -> int32_t {
            const bool multiplies = Multiplies<Product>(p, step);
            if (multiplies) HASTE_TRY(product.Run(after, on, said, p, step, int64_t{1}));
            return rows.Run(after || multiplies, on, said, p, step);
          });
    };
    HASTE_TRY(WalkRecorded(phased, first, steps, Recorded::BytesOf(product.kernel), launch,
                           executor, status));
    return Rows::End(config_, p, executor, status);
  }
};

template <class Cell, class T>
using NormStepwise = WalkEngine<Cell, NormStepwisePolicy<NormForwardRows<Cell, ForwardParams<T>>>,
                                NormStepwisePolicy<NormBackwardRows<Cell, BackwardParams<T>>>>;

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(CudaEngine, HASTE_CELL, NAME, NormStepwise<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
