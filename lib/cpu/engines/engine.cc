// The CPU engine of one cell with a matrix and one dtype: the build compiles this file once for
// each, with HASTE_CELL, HASTE_T and HASTE_DTYPE_NAME set.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/engines/engine.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "lib/cpu/engines/backward-inl.h"
#include "lib/cpu/engines/forward-inl.h"
#include "lib/cpu/engines/norm_backward-inl.h"
#include "lib/cpu/engines/norm_forward-inl.h"
#include "lib/cpu/threads/team.h"
#include "lib/plan/plan.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

// Up to this many steps a walk is over before a helper could take a slice of all of them. Then each
// step is divided anew, in parts small enough that one is left when a helper arrives.
constexpr int64_t kStepsApart = 2;
constexpr int kPartsOfThread = 4;

template <class Plain, class Norm>
using WalkOf = std::conditional_t<HASTE_CELL::kNormalizes, Norm, Plain>;
using Forward = WalkOf<ForwardWalk<HASTE_CELL, HASTE_T>, NormForwardWalk<HASTE_CELL, HASTE_T>>;
using Backward = WalkOf<BackwardWalk<HASTE_CELL, HASTE_T>, NormBackwardWalk<HASTE_CELL, HASTE_T>>;

// Runs slice `slice` of `slices` of a step: whole parts, counted through all lanes.
template <class W>
void RunSlice(W& walk, int64_t step, int slice, int slices, const HasteRnnConfig& config) {
  const int64_t parts = walk.parts(step), total = config.lanes * parts;
  const Range mine{total * slice / slices, total * (slice + 1) / slices};
  for (int64_t p = mine.begin; p < mine.end;) {
    const int64_t first = p % parts, count = std::min(parts - first, mine.end - p);
    walk.Step(step, p / parts, {first, first + count}, {0, config.batch});
    p += count;
  }
}

// task(lane, i) for i < count of each lane.
template <class Task>
void EachOfLanes(const HasteExecutor& team, int64_t lanes, int64_t count, const Task& task) {
  ParallelFor(team, lanes * count, [&](int64_t i) { task(i / count, i % count); });
}

template <class W>
void Run(W& walk, const HasteRnnConfig& config, const Plan& plan, const HasteExecutor& executor) {
  HasteExecutor team = executor;
  team.threads = plan.threads;
  const int64_t lanes = config.lanes, steps = walk.steps();
  walk.Prepare();
  // All that is to be packed, in the order of phases, lanes and panels.
  int64_t begin[W::kPhases + 1] = {};
  for (int phase = 0; phase < W::kPhases; ++phase) {
    begin[phase + 1] = begin[phase] + (walk.packs() ? lanes * walk.panels(phase) : 0);
  }
  const auto pack = [&](int64_t i) {
    int phase = 0;
    while (i >= begin[phase + 1]) ++phase;
    const int64_t at = i - begin[phase], panels = walk.panels(phase);
    walk.Pack(phase, at / panels, at % panels);
  };
  if (plan.split == CpuSplit::kRows || steps <= kStepsApart) {
    ParallelFor(team, begin[W::kPhases], pack);
  }
  if (plan.split == CpuSplit::kUnits) {
    const Range all{0, config.batch};
    for (int64_t k = 0; k < lanes; ++k) walk.Begin(k, all);
    if (steps <= kStepsApart) {
      const int parts = plan.threads * kPartsOfThread;
      for (int64_t step = 0; step < steps; ++step) {
        ParallelFor(team, parts,
                    [&](int64_t i) { RunSlice(walk, step, static_cast<int>(i), parts, config); });
      }
    } else {
      Lockstep(team, begin[W::kPhases], pack, steps, plan.threads,
               [&](int64_t step, int slice) { RunSlice(walk, step, slice, plan.threads, config); });
    }
    for (int64_t k = 0; k < lanes; ++k) walk.End(k, all);
  } else {
    const int64_t groups = (config.batch + plan.rows_per_task - 1) / plan.rows_per_task;
    EachOfLanes(team, lanes, groups, [&](int64_t k, int64_t group) {
      const int64_t n = group * plan.rows_per_task;
      const Range rows{n, std::min(config.batch, n + plan.rows_per_task)};
      walk.Begin(k, rows);
      for (int64_t step = 0; step < steps; ++step) walk.Step(step, k, {0, walk.parts(step)}, rows);
      walk.End(k, rows);
    });
  }
  if constexpr (W::kFinishes) {
    EachOfLanes(team, lanes, walk.finishes(), [&](int64_t k, int64_t i) { walk.Finish(k, i); });
  }
}

}  // namespace

HASTE_TARGET_END

#include "lib/cpu/engines/engine_table-inl.h"
