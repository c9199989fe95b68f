// The common part of a call in all engines that walk phases.
//
// Each engine provides an EnginePolicy<Direction> (ForwardPhases, BackwardPhases). phase: a null
// pointer to the type of phase i.
//   EnginePolicy(config, planned)
//   FillPhase(phase, i, workspace, &params)    what a phase has of its own; returns its operand
//   PreparePhase(phase, params, R, …)          R in the layout of the phase's product
//   Walk(phased, first, steps, …)
#pragma once

#include "lib/cuda/cell/walk_setup.cuh"

namespace haste {

// BoundedPolicy: for forward, where h has a bound.
template <class Cell, class ForwardPolicy, class BackwardPolicy,
          class BoundedPolicy = ForwardPolicy>
class WalkEngine {
  static bool IsBounded(const HasteRnnConfig& config) {
    return HasBoundedStates(config, CellInfo<Cell>());
  }

  // `workspace` counts the bytes.
  template <class EnginePolicy, class Direction>
  static void Fill(const HasteRnnConfig& config, EnginePolicy* policy, Workspace* workspace,
                   Phased<Direction>* phased) {
    typename Direction::Params p = phased->of[0];
    FillWalk<Cell>(config, p.args, workspace, &p);
    for (auto& of_phase : phased->of) of_phase = p;
    ForEachPhase<Direction>([&](auto* phase, int i) {
      phased->of[Direction::kPhases - 1 - i].other =
          policy->FillPhase(phase, i, workspace, &phased->of[i]);
      return HASTE_OK;
    });
  }

  template <class EnginePolicy>
  static size_t BytesOf(const HasteRnnConfig& config, const PlannedRnn& planned) {
    Workspace count(nullptr);
    Phased<typename EnginePolicy::Direction> phased = {};
    EnginePolicy policy(config, planned);
    Fill(config, &policy, &count, &phased);
    return count.used();
  }

  template <class EnginePolicy, class Args>
  static int32_t Call(const HasteRnnConfig& config, const PlannedRnn& planned, const Args& args,
                      const void* const* states, int64_t first, int64_t steps, void* workspace,
                      const HasteExecutor& executor, HasteStatus* status) {
    using Direction = typename EnginePolicy::Direction;
    EnginePolicy policy(config, planned);
    Phased<Direction> phased = {};
    phased.of[0].args = args;
    Workspace pieces(workspace);
    Fill(config, &policy, &pieces, &phased);
    HASTE_TRY(ForEachPhase<Direction>([&](auto* phase, int i) {
      return policy.PreparePhase(phase, phased.of[i], args.R, executor, status);
    }));
    HASTE_TRY((PrepareStates<Cell, Direction::First::kBackward>(config, states, phased.of[0],
                                                                executor, status)));
    return policy.Walk(phased, first, steps, executor, status);
  }

 public:
  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    return planned.backward    ? BytesOf<BackwardPolicy>(config, planned)
           : IsBounded(config) ? BytesOf<BoundedPolicy>(config, planned)
                               : BytesOf<ForwardPolicy>(config, planned);
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
    HASTE_TRY(Call<BackwardPolicy>(config, planned, args, args.dsT, config.time - 1,
                                   BackwardSteps<Cell>(config, args), workspace, executor, status));
    return SumRecurrentBias<Cell>(config, args, executor, status);
  }
};

}  // namespace haste
