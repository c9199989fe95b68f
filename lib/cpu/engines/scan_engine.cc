// The CPU engine of one cell without a matrix product and one dtype: the build compiles this file
// once for each, with HASTE_CELL, HASTE_T and HASTE_DTYPE_NAME set.
#include <algorithm>

#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/engines/scan_engine.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/cpu/engines/scan_backward-inl.h"
#include "lib/cpu/engines/scan_forward-inl.h"
#include "lib/cpu/threads/team.h"
#include "lib/plan/plan.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

using Forward = ScanForward<HASTE_CELL, HASTE_T>;
using Backward = ScanBackward<HASTE_CELL, HASTE_T>;

// Strips begin where a cache line does, if the lane does.
constexpr int64_t kLineUnits = 64 / sizeof(HASTE_T);

// Units of a strip. Lanes are divided into equal parts. Strips are narrow enough for the cache, and
// there are enough of them that all threads end at about the same time.
int64_t StripUnits(const HasteRnnConfig& config, int threads) {
  const int64_t rows = config.batch * config.lanes;
  const int64_t lines = (config.hidden + kLineUnits - 1) / kLineUnits;
  const int64_t least = (config.hidden + Forward::kMaxUnits - 1) / Forward::kMaxUnits;
  int64_t parts = least;
  const auto idle = [&] {  // the share of the threads' time that is spent waiting
    const int64_t rounds = (rows * parts + threads - 1) / threads;
    return 1 - static_cast<double>(rows * parts) / (rounds * threads);
  };
  while (parts < lines && parts < least + threads && idle() > 0.15) ++parts;
  return (lines + parts - 1) / parts * kLineUnits;
}

template <class Walk>
void Run(Walk& walk, const HasteRnnConfig& config, const Plan& plan,
         const HasteExecutor& executor) {
  HasteExecutor team = executor;
  team.threads = plan.threads;
  const int64_t units = StripUnits(config, team.threads), K = config.lanes, H = config.hidden;
  const int64_t parts = (H + units - 1) / units;
  if constexpr (Walk::kProjects) {
    const int64_t panels = walk.panels();
    ParallelFor(team, K * panels, [&](int64_t i) { walk.Pack(i / panels, i % panels); });
  }
  ParallelFor(team, config.batch * K * parts, [&](int64_t i) {
    const int64_t unit = i % parts * units;
    walk.Walk({i / parts / K, i / parts % K, unit, std::min(units, H - unit)});
  });
  if constexpr (Walk::kSumsRows) {
    constexpr int64_t kColumns = 256;
    const int64_t columns = walk.columns();
    ParallelFor(team, (columns + kColumns - 1) / kColumns, [&](int64_t i) {
      walk.SumRows(i * kColumns, std::min(columns, (i + 1) * kColumns));
    });
  }
}

}  // namespace

HASTE_TARGET_END

#include "lib/cpu/engines/engine_table-inl.h"
