// The CPU engine of one cell that normalises h·R and one dtype: the build compiles this file once
// for each, with HASTE_CELL, HASTE_T and HASTE_DTYPE_NAME set.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/engines/norm_engine.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "lib/cpu/engines/norm_backward-inl.h"
#include "lib/cpu/engines/norm_forward-inl.h"
#include "lib/cpu/threads/team.h"
#include "lib/plan/plan.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

using Forward = NormForwardWalk<HASTE_CELL, HASTE_T>;
using Backward = NormBackwardWalk<HASTE_CELL, HASTE_T>;

// A step's two phases: forward multiplies first, backward last.
template <class W>
constexpr bool Multiplies(int64_t phase) {
  return (phase % 2 == 0) == W::kProductFirst;
}

// A phase's share of `slices`: whole panels, or rows, through all lanes.
template <class W>
void RunSlice(W& walk, int64_t phase, int slice, int slices, const HasteRnnConfig& config) {
  const int64_t each = Multiplies<W>(phase) ? walk.panels() : config.batch;
  const int64_t total = config.lanes * each;
  const Range part{total * slice / slices, total * (slice + 1) / slices};
  for (int64_t i = part.begin; i < part.end;) {
    const int64_t k = i / each, first = i % each;
    const int64_t count = std::min(each - first, part.end - i);
    if (Multiplies<W>(phase)) {
      for (int64_t p = first; p < first + count; ++p) walk.Multiply(k, p, {0, config.batch});
    } else {
      walk.Rows(phase / 2, k, {first, first + count});
    }
    i += count;
  }
}

template <class W>
void Run(W& walk, const HasteRnnConfig& config, const Plan& plan, const HasteExecutor& executor) {
  HasteExecutor team = executor;
  team.threads = plan.threads;
  const int64_t lanes = config.lanes, panels = walk.panels(), phases = 2 * config.time;
  walk.Prepare();
  ParallelFor(team, lanes * panels, [&](int64_t i) { walk.Pack(i / panels, i % panels); });
  if (plan.split == CpuSplit::kUnits) {
    const Range all{0, config.batch};
    for (int64_t k = 0; k < lanes; ++k) walk.Begin(k, all);
    Lockstep(team, phases, plan.threads,
             [&](int64_t phase, int slice) { RunSlice(walk, phase, slice, plan.threads, config); });
    for (int64_t k = 0; k < lanes; ++k) walk.End(k, all);
  } else {
    const int64_t groups = (config.batch + plan.rows_per_task - 1) / plan.rows_per_task;
    ParallelFor(team, lanes * groups, [&](int64_t i) {
      const int64_t k = i / groups, n = i % groups * plan.rows_per_task;
      const Range rows{n, std::min(config.batch, n + plan.rows_per_task)};
      walk.Begin(k, rows);
      for (int64_t phase = 0; phase < phases; ++phase) {
        if (Multiplies<W>(phase)) {
          for (int64_t p = 0; p < panels; ++p) walk.Multiply(k, p, rows);
        } else {
          walk.Rows(phase / 2, k, rows);
        }
      }
      walk.End(k, rows);
    });
  }
  if constexpr (W::kFinishes) {
    constexpr int64_t kRows = W::kParamRows;
    ParallelFor(team, lanes * kRows,
                [&](int64_t i) { walk.Finish(i / kRows, static_cast<int>(i % kRows)); });
  }
}

}  // namespace

HASTE_TARGET_END

#include "lib/cpu/engines/engine_table-inl.h"
