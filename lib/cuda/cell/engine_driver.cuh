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
  static int32_t Run(const RnnCall& call, const Args& args, const void* const* states,
                     int64_t first, int64_t steps, HasteStatus* status) {
    using Direction = typename EnginePolicy::Direction;
    EnginePolicy policy(call.config, call.planned);
    Phased<Direction> phased = {};
    phased.of[0].args = args;
    Workspace pieces(call.workspace);
    Fill(call.config, &policy, &pieces, &phased);
    HASTE_TRY(ForEachPhase<Direction>([&](auto* phase, int i) {
      return policy.PreparePhase(phase, phased.of[i], args.R, call.executor, status);
    }));
    HASTE_TRY((PrepareStates<Cell, Direction::First::kBackward>(call.config, states, phased.of[0],
                                                                call.executor, status)));
    return policy.Walk(phased, first, steps, call.executor, status);
  }

 public:
  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    return planned.backward    ? BytesOf<BackwardPolicy>(config, planned)
           : IsBounded(config) ? BytesOf<BoundedPolicy>(config, planned)
                               : BytesOf<ForwardPolicy>(config, planned);
  }

  static int32_t Forward(const RnnCall& call, const HasteRnnForwardArgs& args,
                         HasteStatus* status) {
    const auto run = IsBounded(call.config) ? Run<BoundedPolicy, HasteRnnForwardArgs>
                                            : Run<ForwardPolicy, HasteRnnForwardArgs>;
    return run(call, args, args.s0, 0, call.config.time, status);
  }

  static int32_t Backward(const RnnCall& call, const HasteRnnBackwardArgs& args,
                          HasteStatus* status) {
    HASTE_TRY(Run<BackwardPolicy>(call, args, args.dsT, call.config.time - 1,
                                  BackwardSteps<Cell>(call.config, args), status));
    return SumRecurrentBias<Cell>(call.config, args, call.executor, status);
  }
};

}  // namespace haste
