// The `stepwise` engine of cells that normalise h·R: any size, two kernels a step: the product, and
// one that takes its rows. Compiled once for each cell and group of dtypes
// (lib/cuda/cell/engine_table.h).
#include <cstdint>
#include <string>

#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/cell/graph_driver.cuh"
#include "lib/cuda/layer_norm/setup.cuh"
#include "lib/cuda/stepwise/kernels.cuh"
#include "lib/cuda/stepwise/setup.cuh"

namespace haste {
namespace {

template <class Cell, class T>
struct NormStepwise {
  using C = Compute<T>;

  static_assert(Cell::kNormalizes && Cell::kSplitsGradient && Cell::kResetGates == 0,
                "what the kernels are written for");

  using ForwardRows = NormForwardRows<Cell, ForwardParams<T>>;
  using BackwardRows = NormBackwardRows<Cell, BackwardParams<T>>;

  template <class Rows>
  static void Fill(const HasteRnnConfig& config, const CudaProperties& device, Workspace* workspace,
                   typename Rows::Params* p) {
    StepParams<T>* const step = p;
    FillWalk<Cell>(config, p->args, workspace, step);
    FillProduct<typename Rows::Product>(config, device, workspace, step);
    Rows::TakeWorkspace(config, workspace, p);
  }

  template <class Rows>
  static size_t BytesOf(const HasteRnnConfig& config, const CudaProperties& device) {
    Workspace count(nullptr);
    typename Rows::Params p = {};
    Fill<Rows>(config, device, &count, &p);
    return count.used();
  }

  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    return planned.backward ? BytesOf<BackwardRows>(config, planned.cuda)
                            : BytesOf<ForwardRows>(config, planned.cuda);
  }

  // The two kernels of a step, one step after the other.
  template <class Rows, int kRows>
  static int32_t Walk(const HasteRnnConfig& config, const typename Rows::Params& p, int64_t first,
                      int64_t count, const CudaProperties& device, const HasteExecutor& executor,
                      HasteStatus* status) {
    using Product = typename Rows::Product;
    StepKernel product(Steps<Product, kRows>);
    StepKernel rows(Rows::kKernel);
    LaunchShape shape;
    shape.blocks = BlocksOf(p.tiling, p.K);
    shape.threads = kStepThreads;
    shape.shared_bytes = p.tiling.shared_bytes;
    int32_t code = product.Set(shape, config, device, status);
    if (code == HASTE_OK) code = rows.Set(ShapeOfRows(p), config, device, status);
    if (code != HASTE_OK) return code;
    const auto launch = [&](const WalkStep& from, int64_t steps, const HasteExecutor& on,
                            HasteStatus* said) {
      int32_t launched = HASTE_OK;
      for (int64_t done = 0; launched == HASTE_OK && done < steps; ++done) {
        const WalkStep step = from.After(done * Product::kStride);
        const bool multiplies = step.first != nullptr || Product::HasProduct(p, step.step);
        if (multiplies) launched = product.Run(done > 0, on, said, p, step, int64_t{1});
        if (launched == HASTE_OK) launched = rows.Run(done > 0 || multiplies, on, said, p, step);
      }
      return launched;
    };
    const std::string key = Recorded::BytesOf(Rows::kKernel) + Recorded::BytesOf(p);
    return WalkRecorded(StepRangeOf<Product>(p, first, count), key, p.recorded_at, launch, executor,
                        status);
  }

  template <class Rows, class Args>
  static int32_t Call(const HasteRnnConfig& config, const CudaProperties& device, const Args& args,
                      const void* const* states, int64_t first, int64_t steps, void* workspace,
                      const HasteExecutor& executor, HasteStatus* status) {
    using Product = typename Rows::Product;
    typename Rows::Params p = {};
    p.args = args;
    Workspace pieces(workspace);
    Fill<Rows>(config, device, &pieces, &p);
    const StepParams<T>& step = p;
    HASTE_TRY(PrepareProduct<Product>(step, args.R, executor, status));
    HASTE_TRY((PrepareStates<Cell, Product::kBackward>(config, states, step, executor, status)));
    HASTE_TRY(Rows::Begin(config, p, executor, status));
    const auto walk = p.tiling.rows == 2 ? Walk<Rows, 2> : Walk<Rows, kManyRows<C>>;
    HASTE_TRY(walk(config, p, first, steps, device, executor, status));
    return Rows::End(config, p, executor, status);
  }

  static int32_t Forward(const HasteRnnConfig& config, const PlannedRnn& planned,
                         const HasteRnnForwardArgs& args, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status) {
    return Call<ForwardRows>(config, planned.cuda, args, args.s0, 0, config.time, workspace,
                             executor, status);
  }

  static int32_t Backward(const HasteRnnConfig& config, const PlannedRnn& planned,
                          const HasteRnnBackwardArgs& args, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status) {
    return Call<BackwardRows>(config, planned.cuda, args, args.dsT, config.time - 1,
                              BackwardSteps<Cell>(config, args), workspace, executor, status);
  }
};

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(CudaEngine, HASTE_CELL, NAME, NormStepwise<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
