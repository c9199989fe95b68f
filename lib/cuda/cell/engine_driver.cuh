// The common part of a call in all engines that walk phases as PlanRecurrence has cut them.
//
// Each engine provides an EnginePolicy<Direction> (ForwardPhases, BackwardPhases):
//   EnginePolicy(config, plan)
//   Fill(workspace, phased)    the workspace of each phase: FillWalk's and the engine's own
//   Prepare(phased, R, …)      R in the layout of the engine's products
//   Walk(phased, first, steps, device, …)
#ifndef HASTE_LIB_CUDA_CELL_ENGINE_DRIVER_CUH_
#define HASTE_LIB_CUDA_CELL_ENGINE_DRIVER_CUH_

#include "lib/cuda/cell/walk_setup.cuh"

namespace haste {

// BoundedPolicy: for forward, where h has a bound.
template <class Cell, class ForwardPolicy, class BackwardPolicy,
          class BoundedPolicy = ForwardPolicy>
class WalkEngine {
  static bool IsBounded(const HasteRnnConfig& config) {
    return HasBoundedStates(config, CellInfo<Cell>());
  }

  template <class EnginePolicy>
  static size_t BytesOf(const HasteRnnConfig& config, const Plan& plan) {
    Workspace count(nullptr);
    Phased<typename EnginePolicy::Direction> phased = {};
    EnginePolicy(config, plan).Fill(&count, &phased);
    return count.used();
  }

  template <class EnginePolicy, class Args>
  static int32_t Call(const HasteRnnConfig& config, const PlannedRnn& planned, const Args& args,
                      const void* const* states, int64_t first, int64_t steps, void* workspace,
                      const HasteExecutor& executor, HasteStatus* status) {
    using Direction = typename EnginePolicy::Direction;
    EnginePolicy machine(config, planned.plan);
    Phased<Direction> phased = {};
    phased.of[0].args = args;
    Workspace pieces(workspace);
    machine.Fill(&pieces, &phased);
    HASTE_TRY(machine.Prepare(phased, args.R, executor, status));
    HASTE_TRY((PrepareStates<Cell, Direction::First::kBackward>(config, states, phased.of[0],
                                                                executor, status)));
    return machine.Walk(phased, first, steps, planned.cuda, executor, status);
  }

 public:
  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    const Plan& plan = planned.plan;
    return planned.backward    ? BytesOf<BackwardPolicy>(config, plan)
           : IsBounded(config) ? BytesOf<BoundedPolicy>(config, plan)
                               : BytesOf<ForwardPolicy>(config, plan);
  }

  static int32_t Forward(const HasteRnnConfig& config, const PlannedRnn& planned,
                         const HasteRnnForwardArgs& args, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status) {
    const auto call = IsBounded(config) ? Call<BoundedPolicy, HasteRnnForwardArgs>
                                        : Call<ForwardPolicy, HasteRnnForwardArgs>;
    return call(config, planned, args, args.s0, 0, config.time, workspace, executor, status);
  }

  static int32_t Backward(const HasteRnnConfig& config, const PlannedRnn& planned,
                          const HasteRnnBackwardArgs& args, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status) {
    const int32_t code =
        Call<BackwardPolicy>(config, planned, args, args.dsT, config.time - 1,
                             BackwardSteps<Cell>(config, args), workspace, executor, status);
    return code != HASTE_OK ? code : SumRecurrentBias<Cell>(config, args, executor, status);
  }
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_CELL_ENGINE_DRIVER_CUH_
