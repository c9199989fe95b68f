// An engine that walks phases as PlanRecurrence has cut them: what all such do alike in a call.
//
// What is an engine's own is its Machine<Direction> (ForwardPhases, BackwardPhases):
//   Machine(config, plan)
//   Fill(workspace, phased)    the workspace of each phase, by FillWalk and of its own
//   Prepare(phased, R, …)      R as its products take it
//   Walk(phased, first, steps, device, …)
#ifndef HASTE_LIB_CUDA_CELL_ENGINE_DRIVER_CUH_
#define HASTE_LIB_CUDA_CELL_ENGINE_DRIVER_CUH_

#include "lib/cuda/cell/walk_setup.cuh"

namespace haste {

// BoundedMachine: forward, where h has a bound.
template <class Cell, class ForwardMachine, class BackwardMachine,
          class BoundedMachine = ForwardMachine>
class WalkEngine {
  static bool IsBounded(const HasteRnnConfig& config) {
    return HasBoundedStates(config, CellInfo<Cell>());
  }

  template <class Machine>
  static size_t BytesOf(const HasteRnnConfig& config, const Plan& plan) {
    Workspace count(nullptr);
    Phased<typename Machine::Direction> phased = {};
    Machine(config, plan).Fill(&count, &phased);
    return count.used();
  }

  template <class Machine, class Args>
  static int32_t Call(const HasteRnnConfig& config, const PlannedRnn& planned, const Args& args,
                      const void* const* states, int64_t first, int64_t steps, void* workspace,
                      const HasteExecutor& executor, HasteStatus* status) {
    using Direction = typename Machine::Direction;
    Machine machine(config, planned.plan);
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
    return planned.backward    ? BytesOf<BackwardMachine>(config, plan)
           : IsBounded(config) ? BytesOf<BoundedMachine>(config, plan)
                               : BytesOf<ForwardMachine>(config, plan);
  }

  static int32_t Forward(const HasteRnnConfig& config, const PlannedRnn& planned,
                         const HasteRnnForwardArgs& args, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status) {
    const auto call = IsBounded(config) ? Call<BoundedMachine, HasteRnnForwardArgs>
                                        : Call<ForwardMachine, HasteRnnForwardArgs>;
    return call(config, planned, args, args.s0, 0, config.time, workspace, executor, status);
  }

  static int32_t Backward(const HasteRnnConfig& config, const PlannedRnn& planned,
                          const HasteRnnBackwardArgs& args, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status) {
    const int32_t code =
        Call<BackwardMachine>(config, planned, args, args.dsT, config.time - 1,
                              BackwardSteps<Cell>(config, args), workspace, executor, status);
    return code != HASTE_OK ? code : SumRecurrentBias<Cell>(config, args, executor, status);
  }
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_CELL_ENGINE_DRIVER_CUH_
