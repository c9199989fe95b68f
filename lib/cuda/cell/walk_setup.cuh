// Host code of every engine that keeps states in memory between steps: phases, workspace,
// preparation before the first step, and the launch of a kernel of steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lib/base/workspace.h"
#include "lib/cells/info.h"
#include "lib/cuda/cell/phase_backward.cuh"
#include "lib/cuda/cell/phase_forward.cuh"
#include "lib/cuda/cell/prepare.cuh"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ops/ops.h"
#include "lib/engine/engine.h"

namespace haste {

// The phases of a step, in order. If a cell has only one, the second type is unused. P: an engine's
// parameters.
template <class C>
constexpr int kPhasesOf = C::kResetGates > 0 ? 2 : 1;

template <class Cell, class P>
struct ForwardPhases {
  using Params = P;
  static constexpr int kPhases = kPhasesOf<Cell>;
  using Second = ForwardPhase<Cell, P>;
  using First = std::conditional_t<kPhases == 2, ForwardResetPhase<Cell, P>, Second>;
};
template <class Cell, class P>
struct BackwardPhases {
  using Params = P;
  static constexpr int kPhases = kPhasesOf<Cell>;
  using First = BackwardPhase<Cell, P>;
  using Second = std::conditional_t<kPhases == 2, BackwardResetPhase<Cell, P>, First>;
};

// The kernel parameters of each phase.
template <class Direction>
struct Phased {
  typename Direction::Params of[Direction::kPhases];
};

// Calls run(phase, index) for each phase of a direction; stops at the first error.
template <class Direction, class Run>
int32_t ForEachPhase(const Run& run) {
  const int32_t code = run(static_cast<typename Direction::First*>(nullptr), 0);
  if constexpr (Direction::kPhases == 2) {
    if (code == HASTE_OK) return run(static_cast<typename Direction::Second*>(nullptr), 1);
  }
  return code;
}

// True if a step begins with a product. Recorded steps do: they are in the middle of a walk.
template <class Phase>
bool Multiplies(const typename Phase::Params& p, const WalkStep& step) {
  return step.first != nullptr || Phase::HasProduct(p, step.step);
}

// Calls run(index, step, after) for each phase of `count` steps from `from` on; stops at the first
// error. after: a kernel of the walk was launched before.
template <class Direction, class Run>
int32_t ForEachStep(const WalkStep& from, int64_t count, const Run& run) {
  for (int64_t done = 0; done < count; ++done) {
    const WalkStep step = from.After(done * Direction::First::kStride);
    HASTE_TRY(run(0, step, done > 0));
    // Backward's step -1 ends with the gradients of the initial states.
    const bool ends = step.first == nullptr && step.step < 0;
    if (Direction::kPhases == 2 && !ends) HASTE_TRY(run(1, step, true));
  }
  return HASTE_OK;
}

// Fills in sizes, options and the workspace that all phases of a call share. `workspace` counts the
// bytes.
template <class Cell, class Args, class T>
void FillWalk(const HasteRnnConfig& config, const Args& args, Workspace* workspace,
              WalkParams<T>* p) {
  FillRecurrence<Cell, T>(config, args, p);
  p->reverse = workspace->Take<uint8_t>(p->K);
  p->recorded_at = workspace->Take<int64_t>(1);
  p->first_live = workspace->Take<int64_t>(2 * p->N);
  const int64_t elements = p->N * p->K * p->H;
  for (int s = 0; s < Cell::kStates; ++s) p->carried[s] = workspace->Take<Compute<T>>(elements);
  for (int i = 0; Cell::kResetGates > 0 && i <= Cell::kResetGates; ++i) {
    p->made[i] = workspace->Take<Compute<T>>(elements);
  }
}

// Prepares directions, where live steps begin, and the states that enter the walk. In forward also
// the first operand, so operands must have been cleared before.
template <class Cell, bool kBackward, class Params>
int32_t PrepareStates(const HasteRnnConfig& config, const void* const* states, const Params& p,
                      const HasteExecutor& executor, HasteStatus* status) {
  using T = typename Params::Storage;
  for (int64_t first = 0; first < p.K; first += kLanesPerCall) {
    const int64_t lanes = std::min<int64_t>(kLanesPerCall, p.K - first);
    Directions directions = {};
    FillDirections(config, first, lanes, directions.bits);
    HASTE_CUDA_TRY(LaunchPrepare(SetDirections, lanes, executor, directions, lanes,
                                 const_cast<uint8_t*>(p.reverse) + first),
                   status);
  }
  HASTE_TRY(PrepareFirstLive(p, executor, status));
  StatePointers from = {};
  for (int s = 0; s < Cell::kStates; ++s) from.of[s] = states[s];
  const int64_t elements = p.N * p.K * p.H;
  HASTE_CUDA_TRY(LaunchPrepare(CarryIn<Cell::kStates, T>, elements, executor, p, from), status);
  if constexpr (!kBackward) {
    HASTE_CUDA_TRY(LaunchPrepare(FirstOperand<Params>, elements, executor, p), status);
  }
  return HASTE_OK;
}

// A kernel of steps, ready to be launched.
template <class... Params>
struct StepKernel {
  void (*kernel)(Params...);
  LaunchShape shape;
  bool overlaps = false;  // its code waits for the previous kernel itself

  explicit StepKernel(void (*of)(Params...)) : kernel(of) {}

  int32_t Set(const LaunchShape& of, const CudaProperties& device, HasteStatus* status) {
    shape = of;
    HASTE_TRY(CheckBlocks(shape.blocks, "batch, lanes, hidden", status));
    HASTE_CUDA_TRY(AllowShape(kernel, shape), status);
    cudaFuncAttributes attributes;
    HASTE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel), status);
    overlaps = device.sm_major >= 9 && attributes.ptxVersion >= 90 && !shape.cooperative;
    return HASTE_OK;
  }

  // after: another kernel of this walk was launched before this one.
  template <class... Args>
  int32_t Run(bool after, const HasteExecutor& executor, HasteStatus* status,
              const Args&... args) const {
    LaunchShape now = shape;
    now.overlap = overlaps && after;
    return HASTE_CUDA_STATUS(Launch(kernel, now, executor, args...), status);
  }
};

// What follows a product, and has nothing to do before the first step and after the last.
template <class Params>
struct NoEnds {
  static int32_t Begin(const HasteRnnConfig&, const Params&, const HasteExecutor&, HasteStatus*) {
    return HASTE_OK;
  }
  static constexpr auto End = Begin;
};

// Steps of a backward walk. If gradients of the initial states are wanted, one more step, -1,
// makes them.
template <class Cell>
int64_t BackwardSteps(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args) {
  bool wants_initial = false;
  for (int s = 0; s < Cell::kStates; ++s) wants_initial |= args.ds0[s] != nullptr;
  return config.time + (wants_initial ? 1 : 0);
}

// After the walk: the gradient of the bias of h·R, where the cell has one. In cells that normalise
// h·R, the walk itself makes it.
template <class Cell>
int32_t SumRecurrentBias(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args,
                         const HasteExecutor& executor, HasteStatus* status) {
  if constexpr (Cell::kRecurrentBias && !Cell::kNormalizes) {
    return CudaReduceRows(config.dtype, config.batch * config.time,
                          config.lanes * Cell::kGates * config.hidden,
                          Cell::kSplitsGradient ? args.dq : args.dwx,
                          args.dextra[kRecurrentBiasAt<Cell>], executor, status);
  }
  return HASTE_OK;
}

}  // namespace haste
