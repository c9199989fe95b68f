#include "lib/api/registry.h"

#include <string.h>

#include "lib/cells/cells.h"
#include "lib/cells/info.h"
#include "lib/cpu/cpu.h"
#include "lib/engine/cuda_backend.h"
#include "lib/plan/plan.h"

namespace haste {

#define HASTE_DECLARE(CELL)                                                                   \
  extern const Engine CpuEngine_##CELL##_f32, CpuEngine_##CELL##_f64, CpuEngine_##CELL##_f16, \
      CpuEngine_##CELL##_bf16;
HASTE_CELLS(HASTE_DECLARE)

namespace {

#define HASTE_CELL_ENTRY(CELL)                                                 \
  {CellInfo<CELL>(),                                                           \
   {&CpuEngine_##CELL##_f32, &CpuEngine_##CELL##_f64, &CpuEngine_##CELL##_f16, \
    &CpuEngine_##CELL##_bf16}},
// constexpr, so that initialisers of other files can read it.
constexpr CellEntry kCells[] = {HASTE_CELLS(HASTE_CELL_ENTRY)};

// All that a plan on the CPU depends on, but for the engine's name, which is checked before, and
// what the processor has, which does not change. It has no padding, because keys are compared byte
// by byte.
struct CpuKey {
  const CellEntry* cell;
  int64_t batch, time, lanes, hidden;
  int32_t dtype, weights_dtype, threads, backward;
};
static_assert(sizeof(CpuKey) == 7 * 8, "padding");

// Plans of a thread's latest calls, each where its key's hash says. They are a thread's own,
// because a lock would take half as long as planning does.
struct KeptCpuPlan {
  CpuKey key;  // cell: NULL if there is no plan
  Plan plan;
};
constexpr uint64_t kKeptCpuPlans = 16;
thread_local KeptCpuPlan kept_cpu_plans[kKeptCpuPlans];

KeptCpuPlan& KeptAt(const CpuKey& key) {
  uint64_t sum = 2 * CellIndex(*key.cell) + key.backward;
  for (const int64_t size : {key.batch, key.time, key.lanes, key.hidden}) sum = 31 * sum + size;
  return kept_cpu_plans[sum % kKeptCpuPlans];
}

}  // namespace

int CellCount() { return sizeof kCells / sizeof kCells[0]; }
const CellEntry& CellAt(int index) { return kCells[index]; }
int CellIndex(const CellEntry& cell) { return static_cast<int>(&cell - kCells); }

int32_t PlanOnCpu(const HasteRnnConfig& config, const CellEntry& cell, bool backward,
                  const CpuProperties& cpu, Plan* plan, HasteStatus* status) {
  HASTE_TRY(CheckEngine(config, cell.info, status));
  const CpuKey key = {&cell,        config.batch,         config.time, config.lanes, config.hidden,
                      config.dtype, config.weights_dtype, cpu.threads, backward};
  KeptCpuPlan& kept = KeptAt(key);
  if (memcmp(&kept.key, &key, sizeof key) != 0) {
    kept.key = {};
    HASTE_TRY(PlanRecurrence(config, cell.info, cpu, {}, &kept.plan, status, backward));
    kept.key = key;
  }
  *plan = kept.plan;
  return HASTE_OK;
}

int32_t PlanRnn(const HasteRnnConfig& config, const CellEntry& cell, bool backward,
                const HasteExecutor& executor, PlannedRnn* planned, HasteStatus* status) {
  if (config.device == HASTE_CUDA) {
    return Cuda().plan(config, CellIndex(cell), backward, executor, planned, status);
  }
  planned->backward = backward;
  planned->engine = cell.cpu[config.dtype];
  return PlanOnCpu(config, cell, backward, GetCpuProperties(executor), &planned->plan, status);
}

}  // namespace haste
