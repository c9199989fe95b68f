// The CPU engine of one cell without a matrix product and one dtype: the build compiles this file
// once for each, with HASTE_CELL, HASTE_T and HASTE_DTYPE_NAME set.
#include <algorithm>

#include "lib/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/scan_engine.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/cells/info.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/scan_backward-inl.h"
#include "lib/cpu/scan_forward-inl.h"
#include "lib/cpu/team.h"
#include "lib/engine.h"
#include "lib/workspace.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

using Forward = ScanForward<HASTE_CELL, HASTE_T>;
using Backward = ScanBackward<HASTE_CELL, HASTE_T>;

// Strips begin where a cache line does, if the lane does.
constexpr int64_t kLineUnits = 64 / sizeof(HASTE_T);

// Units of a strip: a lane in equal parts, so few that a strip's arrays stay small and so many that
// all threads end at about the same time.
int64_t StripUnits(const HasteRnnConfig& config, int threads) {
  const int64_t rows = config.batch * config.lanes;
  const int64_t lines = (config.hidden + kLineUnits - 1) / kLineUnits;
  const int64_t least = (config.hidden + Forward::kMaxUnits - 1) / Forward::kMaxUnits;
  int64_t parts = least;
  const auto idle = [&] {  // of all that the threads could do, the share that they wait
    const int64_t rounds = (rows * parts + threads - 1) / threads;
    return 1 - static_cast<double>(rows * parts) / (rounds * threads);
  };
  while (parts < lines && parts < least + threads && idle() > 0.15) ++parts;
  return (lines + parts - 1) / parts * kLineUnits;
}

template <class Walk>
void Run(const Walk& walk, const HasteRnnConfig& config, const HasteExecutor& team) {
  const int64_t units = StripUnits(config, team.threads), K = config.lanes, H = config.hidden;
  const int64_t parts = (H + units - 1) / units;
  ParallelFor(team, config.batch * K * parts, [&](int64_t i) {
    const int64_t unit = i % parts * units;
    walk.Walk({i / parts / K, i / parts % K, unit, std::min(units, H - unit)});
  });
}

size_t WorkspaceBytes(const HasteRnnConfig& config, bool backward) {
  Workspace count(nullptr);
  if (backward) {
    const HasteRnnBackwardArgs args = {};
    Backward walk(config, args, &count);
  }
  return std::max<size_t>(count.used(), 1);  // a caller has memory to show for it
}

void RunForward(const HasteRnnConfig& config, const HasteRnnForwardArgs& args,
                const HasteExecutor& team) {
  Run(Forward(config, args), config, team);
}

void RunBackward(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args, void* memory,
                 const HasteExecutor& team) {
  Workspace workspace(memory);
  const Backward walk(config, args, &workspace);
  Run(walk, config, team);
  constexpr int64_t kColumns = 256;
  const int64_t columns = walk.columns();
  ParallelFor(team, (columns + kColumns - 1) / kColumns, [&](int64_t i) {
    walk.SumRows(i * kColumns, std::min(columns, (i + 1) * kColumns));
  });
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

size_t DispatchWorkspace(const HasteRnnConfig& config, bool backward, const HasteExecutor&) {
  return HASTE_DISPATCH(WorkspaceBytes)(config, backward);
}

// The executor, with as many threads as are worth waking.
int32_t Team(const HasteRnnConfig& config, const HasteExecutor& executor, HasteExecutor* team,
             HasteStatus* status) {
  Plan plan;
  const int32_t code = PlanRecurrence(config, CellInfo<HWY_NAMESPACE::HASTE_CELL>(),
                                      GetCpuProperties(executor), CudaProperties(), &plan, status);
  *team = executor;
  team->threads = plan.threads;
  return code;
}

int32_t DispatchForward(const HasteRnnConfig& config, const HasteRnnForwardArgs& args, void*,
                        const HasteExecutor& executor, HasteStatus* status) {
  HasteExecutor team;
  const int32_t code = Team(config, executor, &team, status);
  if (code == HASTE_OK) HASTE_DISPATCH(RunForward)(config, args, team);
  return code;
}

int32_t DispatchBackward(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args,
                         void* workspace, const HasteExecutor& executor, HasteStatus* status) {
  HasteExecutor team;
  const int32_t code = Team(config, executor, &team, status);
  if (code == HASTE_OK) HASTE_DISPATCH(RunBackward)(config, args, workspace, team);
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
