// The CPU engine of one cell and one dtype: the build compiles this file once for each, with
// HASTE_CELL, HASTE_T and HASTE_DTYPE_NAME set.
#include "lib/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/engine.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/cpu/backward-inl.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/forward-inl.h"
#include "lib/cpu/team.h"
#include "lib/engine.h"
#include "lib/workspace.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

using Forward = ForwardWalk<HASTE_CELL, HASTE_T>;
using Backward = BackwardWalk<HASTE_CELL, HASTE_T>;

// Rows of R's panels that a slice of `slices` walks: whole panels, through all lanes.
template <class W>
void RunSlice(W& walk, int64_t step, int slice, int slices, const HasteRnnConfig& config) {
  const int64_t total = config.lanes * walk.panels();
  const Range part{total * slice / slices, total * (slice + 1) / slices};
  for (int64_t p = part.begin; p < part.end; ++p) {
    walk.Step(step, p / walk.panels(), p % walk.panels(), {0, config.batch});
  }
}

template <class W>
void Run(W& walk, int64_t steps, const HasteRnnConfig& config, const Plan& plan,
         const HasteExecutor& executor) {
  HasteExecutor team = executor;
  team.threads = plan.threads;
  const int64_t lanes = config.lanes, panels = walk.panels();
  walk.PrepareMask();
  ParallelFor(team, lanes * panels, [&](int64_t i) { walk.Pack(i / panels, i % panels); });
  if (plan.split == CpuSplit::kUnits) {
    const Range all{0, config.batch};
    for (int64_t k = 0; k < lanes; ++k) walk.Begin(k, all);
    Lockstep(team, steps, plan.threads,
             [&](int64_t step, int slice) { RunSlice(walk, step, slice, plan.threads, config); });
    for (int64_t k = 0; k < lanes; ++k) walk.End(k, all);
    return;
  }
  const int64_t groups = (config.batch + plan.rows_per_task - 1) / plan.rows_per_task;
  ParallelFor(team, lanes * groups, [&](int64_t i) {
    const int64_t k = i / groups, n = i % groups * plan.rows_per_task;
    const Range rows{n, std::min(config.batch, n + plan.rows_per_task)};
    walk.Begin(k, rows);
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t p = 0; p < panels; ++p) walk.Step(step, k, p, rows);
    }
    walk.End(k, rows);
  });
}

size_t WorkspaceBytes(const HasteRnnConfig& config, bool backward) {
  Workspace count(nullptr);
  // A mask and a seed may come: make room for what they need.
  const uint8_t some_mask = 0;
  if (backward) {
    HasteRnnBackwardArgs args = {};
    args.mask = &some_mask;
    Backward walk(config, args, &count);
  } else {
    HasteRnnForwardArgs args = {};
    args.mask = &some_mask;
    Forward walk(config, args, &count);
  }
  return count.used();
}

void RunForward(const HasteRnnConfig& config, const HasteRnnForwardArgs& args, void* memory,
                const Plan& plan, const HasteExecutor& executor) {
  Workspace workspace(memory);
  Forward walk(config, args, &workspace);
  Run(walk, config.time, config, plan, executor);
}

void RunBackward(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args, void* memory,
                 const Plan& plan, const HasteExecutor& executor) {
  Workspace workspace(memory);
  Backward walk(config, args, &workspace);
  Run(walk, config.time + 1, config, plan, executor);
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

size_t DispatchWorkspace(const HasteRnnConfig& config, bool backward, const HasteExecutor&) {
  return HASTE_DISPATCH(WorkspaceBytes)(config, backward);
}

int32_t Planned(const HasteRnnConfig& config, const HasteExecutor& executor, Plan* plan,
                HasteStatus* status) {
  HasteCellInfo cell = {};
  using Cell = HWY_NAMESPACE::HASTE_CELL;
  cell.name = Cell::kName;
  cell.gates = Cell::kGates;
  cell.states = Cell::kStates;
  return PlanRecurrence(config, cell, GetCpuProperties(executor), CudaProperties(), plan, status);
}

int32_t DispatchForward(const HasteRnnConfig& config, const HasteRnnForwardArgs& args,
                        void* workspace, const HasteExecutor& executor, HasteStatus* status) {
  Plan plan;
  const int32_t code = Planned(config, executor, &plan, status);
  if (code == HASTE_OK) HASTE_DISPATCH(RunForward)(config, args, workspace, plan, executor);
  return code;
}

int32_t DispatchBackward(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args,
                         void* workspace, const HasteExecutor& executor, HasteStatus* status) {
  Plan plan;
  const int32_t code = Planned(config, executor, &plan, status);
  if (code == HASTE_OK) HASTE_DISPATCH(RunBackward)(config, args, workspace, plan, executor);
  return code;
}

}  // namespace

#define HASTE_ENGINE_NAME2(CELL, DTYPE) CpuEngine_##CELL##_##DTYPE
#define HASTE_ENGINE_NAME(CELL, DTYPE) HASTE_ENGINE_NAME2(CELL, DTYPE)
extern const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME);
const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME) = {DispatchWorkspace, DispatchForward,
                                                                DispatchBackward};

}  // namespace haste
#endif  // HWY_ONCE
