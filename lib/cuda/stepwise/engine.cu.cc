// The `stepwise` engine: any size, one kernel for each product of a step, recorded as a CUDA graph
// where walks recur. Compiled once for each cell and group of dtypes
// (lib/cuda/cell/engine_table.h).
//
// If all of a lane's units fit in one block, no block waits for another, and one kernel walks all
// steps.
#include "lib/engine/engine.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "lib/base/workspace.h"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/cell/graph_driver.cuh"
#include "lib/cuda/stepwise/kernels.cuh"
#include "lib/cuda/stepwise/setup.cuh"

namespace haste {
namespace {

template <class Cell, class T>
struct Stepwise {
  using C = Compute<T>;

  using ForwardWalk = ForwardPhases<Cell, ForwardParams<T>>;
  using BackwardWalk = BackwardPhases<Cell, BackwardParams<T>>;
  static constexpr int kPhases = ForwardWalk::kPhases;

  // Fills in sizes, options and workspace. `workspace` counts the bytes.
  template <class Direction>
  static void Fill(const HasteRnnConfig& config, const CudaProperties& device, Workspace* workspace,
                   Phased<Direction>* phased) {
    StepParams<T> p = {};
    FillWalk<Cell>(config, phased->of[0].args, workspace, &p);
    ForEachPhase<Direction>([&](auto* phase, int i) {
      StepParams<T>& q = phased->of[i];
      q = p;
      FillProduct<std::remove_pointer_t<decltype(phase)>>(config, device, workspace, &q);
      return HASTE_OK;
    });
    for (int i = 0; kPhases == 2 && i < kPhases; ++i) {
      const StepParams<T>& other = phased->of[kPhases - 1 - i];
      phased->of[i].other = {other.a, other.tiling.padded_depth(), other.tiling.padded_rows()};
    }
  }

  template <class Direction>
  static size_t BytesOf(const HasteRnnConfig& config, const CudaProperties& device) {
    Workspace count(nullptr);
    Phased<Direction> phased = {};
    Fill<Direction>(config, device, &count, &phased);
    return count.used();
  }

  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    return planned.backward ? BytesOf<BackwardWalk>(config, planned.cuda)
                            : BytesOf<ForwardWalk>(config, planned.cuda);
  }

  static LaunchShape ShapeOf(const Tiling& tile, int64_t lanes, size_t shared_bytes) {
    LaunchShape shape;
    shape.blocks = BlocksOf(tile, lanes);
    shape.threads = kStepThreads;
    shape.shared_bytes = shared_bytes;
    return shape;
  }

  // What a recorded walk depends on.
  template <class Direction>
  static std::string KeyOf(const Phased<Direction>& phased) {
    std::string key = Recorded::BytesOf(&Steps<typename Direction::First, 2>);
    for (const auto& p : phased.of) key += Recorded::BytesOf(p);
    return key;
  }

  // Runs `count` steps of one phase from `first` on.
  template <class Direction, int kRows>
  static int32_t WalkOne(const HasteRnnConfig& config, const Phased<Direction>& phased,
                         int64_t first, int64_t count, const CudaProperties& device,
                         const HasteExecutor& executor, HasteStatus* status) {
    using First = typename Direction::First;
    const auto& p = phased.of[0];
    StepKernel kernel(Steps<First, kRows>);
    int32_t code =
        kernel.Set(ShapeOf(p.tiling, p.K, p.tiling.shared_bytes), config, device, status);
    if (code != HASTE_OK) return code;
    if (p.tiling.owns_lane()) {
      return kernel.Run(false, executor, status, p, WalkStep{nullptr, first}, count);
    }
    const auto launch = [&](const WalkStep& from, int64_t steps, const HasteExecutor& on,
                            HasteStatus* said) {
      int32_t launched = HASTE_OK;
      for (int64_t done = 0; launched == HASTE_OK && done < steps; ++done) {
        launched = kernel.Run(done > 0, on, said, p, from.After(done * First::kStride), int64_t{1});
      }
      return launched;
    };
    return WalkRecorded(StepRangeOf<First>(p, first, count), KeyOf(phased), p.recorded_at, launch,
                        executor, status);
  }

  // The same for steps of two phases.
  template <class Direction, int kRows>
  static int32_t WalkTwo(const HasteRnnConfig& config, const Phased<Direction>& phased,
                         int64_t first, int64_t count, const CudaProperties& device,
                         const HasteExecutor& executor, HasteStatus* status) {
    using First = typename Direction::First;
    using Second = typename Direction::Second;
    const auto& p = phased.of[0];
    const auto& q = phased.of[1];
    const size_t shared[] = {p.tiling.shared_bytes, q.tiling.shared_bytes};
    if (p.tiling.owns_lane() && q.tiling.owns_lane() &&
        p.tiling.block_rows() == q.tiling.block_rows()) {
      StepKernel both(StepsOfTwo<First, Second, kRows>);
      const int32_t code =
          both.Set(ShapeOf(p.tiling, p.K, std::max(shared[0], shared[1])), config, device, status);
      return code != HASTE_OK ? code : both.Run(false, executor, status, p, q, first, count);
    }
    StepKernel one(Steps<First, kRows>), two(Steps<Second, kRows>);
    int32_t code = one.Set(ShapeOf(p.tiling, p.K, shared[0]), config, device, status);
    if (code == HASTE_OK) {
      code = two.Set(ShapeOf(q.tiling, q.K, shared[1]), config, device, status);
    }
    if (code != HASTE_OK) return code;
    const auto launch = [&](const WalkStep& from, int64_t steps, const HasteExecutor& on,
                            HasteStatus* said) {
      int32_t launched = HASTE_OK;
      for (int64_t done = 0; launched == HASTE_OK && done < steps; ++done) {
        const WalkStep step = from.After(done * First::kStride);
        launched = one.Run(done > 0, on, said, p, step, int64_t{1});
        // Backward's step -1 ends with the gradients of the initial states.
        if (launched == HASTE_OK && (step.first != nullptr || step.step >= 0)) {
          launched = two.Run(true, on, said, q, step, int64_t{1});
        }
      }
      return launched;
    };
    return WalkRecorded(StepRangeOf<First>(p, first, count), KeyOf(phased), p.recorded_at, launch,
                        executor, status);
  }

  template <class Direction, int kRows>
  static int32_t WalkRows(const HasteRnnConfig& config, const Phased<Direction>& phased,
                          int64_t first, int64_t steps, const CudaProperties& device,
                          const HasteExecutor& executor, HasteStatus* status) {
    if constexpr (kPhases == 1) {
      return WalkOne<Direction, kRows>(config, phased, first, steps, device, executor, status);
    } else {
      return WalkTwo<Direction, kRows>(config, phased, first, steps, device, executor, status);
    }
  }

  template <class Direction>
  static int32_t Walk(const HasteRnnConfig& config, const Phased<Direction>& phased, int64_t first,
                      int64_t steps, const CudaProperties& device, const HasteExecutor& executor,
                      HasteStatus* status) {
    if (phased.of[0].tiling.rows == 2) {
      return WalkRows<Direction, 2>(config, phased, first, steps, device, executor, status);
    }
    return WalkRows<Direction, kManyRows<C>>(config, phased, first, steps, device, executor,
                                             status);
  }

  // Everything of a call before its first step.
  template <class Direction, class Args>
  static int32_t Begin(const HasteRnnConfig& config, const CudaProperties& device, const Args& args,
                       const void* const* states, void* workspace, const HasteExecutor& executor,
                       Phased<Direction>* phased, HasteStatus* status) {
    for (auto& p : phased->of) p.args = args;
    Workspace pieces(workspace);
    Fill<Direction>(config, device, &pieces, phased);
    HASTE_TRY(ForEachPhase<Direction>([&](auto* phase, int i) {
      const StepParams<T>& p = phased->of[i];
      return PrepareProduct<std::remove_pointer_t<decltype(phase)>>(p, args.R, executor, status);
    }));
    const StepParams<T>& p = phased->of[0];
    return PrepareStates<Cell, Direction::First::kBackward>(config, states, p, executor, status);
  }

  static int32_t Forward(const HasteRnnConfig& config, const PlannedRnn& planned,
                         const HasteRnnForwardArgs& args, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status) {
    Phased<ForwardWalk> phased = {};
    HASTE_TRY(Begin(config, planned.cuda, args, args.s0, workspace, executor, &phased, status));
    return Walk(config, phased, 0, config.time, planned.cuda, executor, status);
  }

  static int32_t Backward(const HasteRnnConfig& config, const PlannedRnn& planned,
                          const HasteRnnBackwardArgs& args, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status) {
    Phased<BackwardWalk> phased = {};
    HASTE_TRY(Begin(config, planned.cuda, args, args.dsT, workspace, executor, &phased, status));
    HASTE_TRY(Walk(config, phased, config.time - 1, BackwardSteps<Cell>(config, args), planned.cuda,
                   executor, status));
    return SumRecurrentBias<Cell>(config, args, executor, status);
  }
};

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(CudaEngine, HASTE_CELL, NAME, Stepwise<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
