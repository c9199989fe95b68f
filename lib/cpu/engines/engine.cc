// The CPU engine of one cell and one dtype: the build compiles this file once for each, with
// HASTE_CELL, HASTE_T and HASTE_DTYPE_NAME set.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/engines/engine.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "lib/cpu/engines/backward-inl.h"
#include "lib/cpu/engines/forward-inl.h"
#include "lib/cpu/threads/team.h"
#include "lib/plan/plan.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

using Forward = ForwardWalk<HASTE_CELL, HASTE_T>;
using Backward = BackwardWalk<HASTE_CELL, HASTE_T>;

// Runs slice `slice` of `slices` of a step: whole panels, counted through all lanes.
template <class W>
void RunSlice(W& walk, int64_t step, int slice, int slices, const HasteRnnConfig& config) {
  const int64_t panels = walk.panels(step % W::kPhases), total = config.lanes * panels;
  const Range part{total * slice / slices, total * (slice + 1) / slices};
  for (int64_t p = part.begin; p < part.end;) {
    const int64_t first = p % panels, count = std::min(panels - first, part.end - p);
    walk.Step(step, p / panels, {first, first + count}, {0, config.batch});
    p += count;
  }
}

// task(lane, panel) for the panels of a phase.
template <class W, class Task>
void EachPanel(W& walk, int phase, const HasteRnnConfig& config, const HasteExecutor& team,
               const Task& task) {
  const int64_t panels = walk.panels(phase);
  ParallelFor(team, config.lanes * panels, [&](int64_t i) { task(i / panels, i % panels); });
}

template <class W>
void Run(W& walk, const HasteRnnConfig& config, const Plan& plan, const HasteExecutor& executor) {
  HasteExecutor team = executor;
  team.threads = plan.threads;
  const int64_t lanes = config.lanes, steps = walk.steps();
  walk.PrepareMask();
  for (int phase = 0; phase < W::kPhases && walk.packs(); ++phase) {
    EachPanel(walk, phase, config, team,
              [&](int64_t k, int64_t panel) { walk.Pack(phase, k, panel); });
  }
  if (plan.split == CpuSplit::kUnits) {
    const Range all{0, config.batch};
    for (int64_t k = 0; k < lanes; ++k) walk.Begin(k, all);
    Lockstep(team, steps, plan.threads,
             [&](int64_t step, int slice) { RunSlice(walk, step, slice, plan.threads, config); });
    for (int64_t k = 0; k < lanes; ++k) walk.End(k, all);
  } else {
    const int64_t groups = (config.batch + plan.rows_per_task - 1) / plan.rows_per_task;
    ParallelFor(team, lanes * groups, [&](int64_t i) {
      const int64_t k = i / groups, n = i % groups * plan.rows_per_task;
      const Range rows{n, std::min(config.batch, n + plan.rows_per_task)};
      walk.Begin(k, rows);
      for (int64_t step = 0; step < steps; ++step) {
        walk.Step(step, k, {0, walk.panels(step % W::kPhases)}, rows);
      }
      walk.End(k, rows);
    });
  }
  if constexpr (W::kFinishes) {
    EachPanel(walk, 0, config, team, [&](int64_t k, int64_t panel) { walk.Finish(k, panel); });
  }
}

}  // namespace

HASTE_TARGET_END

#include "lib/cpu/engines/engine_table-inl.h"
