// The `stepwise` engine: any size, one kernel for each product of a step, recorded as a CUDA graph
// where walks recur. Compiled once for each cell and group of dtypes
// (lib/cuda/cell/engine_table.h).
//
// If all of a lane's units fit in one block, no block waits for another, and one kernel walks all
// steps.
#include <algorithm>
#include <cstdint>

#include "lib/cuda/cell/engine_driver.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/cell/graph_driver.cuh"
#include "lib/cuda/stepwise/setup.cuh"

namespace haste {
namespace {

template <class D>
class StepwisePolicy : public StepwiseProducts<D> {
  using First = typename D::First;
  using Second = typename D::Second;
  using StepwiseProducts<D>::device_;
  static constexpr int kLast = D::kPhases - 1;

 public:
  using StepwiseProducts<D>::StepwiseProducts;

  int32_t Walk(const Phased<D>& phased, int64_t first, int64_t steps, const HasteExecutor& executor,
               HasteStatus* status) const {
    const auto &p = phased.of[0], &q = phased.of[kLast];
    if (p.tiling.owns_lane() && q.tiling.owns_lane() &&
        p.tiling.block_rows() == q.tiling.block_rows()) {
      return WalkInOne(phased, first, steps, executor, status);
    }
    StepKernel one(StepsOf<First>(p.tiling)), two(StepsOf<Second>(q.tiling));
    HASTE_TRY(one.Set(ShapeOf(p.tiling, p.K), device_, status));
    if (kLast > 0) HASTE_TRY(two.Set(ShapeOf(q.tiling, q.K), device_, status));
    const auto launch = [&](const WalkStep& from, int64_t count, const HasteExecutor& on,
                            HasteStatus* said) {
      return ForEachStep<D>(from, count, [&](int i, const WalkStep& step, bool after) {
        return i == 0 ? one.Run(after, on, said, p, step, int64_t{1})
                      : two.Run(after, on, said, q, step, int64_t{1});
      });
    };
    return WalkRecorded(phased, first, steps, Recorded::BytesOf(one.kernel), launch, executor,
                        status);
  }

 private:
  // Runs all steps in one kernel.
  int32_t WalkInOne(const Phased<D>& phased, int64_t first, int64_t steps,
                    const HasteExecutor& executor, HasteStatus* status) const {
    const auto &p = phased.of[0], &q = phased.of[kLast];
    LaunchShape shape = ShapeOf(p.tiling, p.K);
    if constexpr (kLast == 0) {
      StepKernel kernel(StepsOf<First>(p.tiling));
      HASTE_TRY(kernel.Set(shape, device_, status));
      return kernel.Run(false, executor, status, p, WalkStep{nullptr, first}, steps);
    } else {
      using C = typename D::Params::C;
      StepKernel kernel(p.tiling.rows == 2 ? StepsOfTwo<First, Second, 2>
                                           : StepsOfTwo<First, Second, kManyRows<C>>);
      shape.shared_bytes = std::max(shape.shared_bytes, q.tiling.shared_bytes);
      HASTE_TRY(kernel.Set(shape, device_, status));
      return kernel.Run(false, executor, status, p, q, first, steps);
    }
  }
};

template <class Cell, class T>
using Stepwise = WalkEngine<Cell, StepwisePolicy<ForwardPhases<Cell, ForwardParams<T>>>,
                            StepwisePolicy<BackwardPhases<Cell, BackwardParams<T>>>>;

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(CudaEngine, HASTE_CELL, NAME, Stepwise<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
