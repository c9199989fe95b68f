#include "lib/api/registry.h"

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

}  // namespace

int CellCount() { return sizeof kCells / sizeof kCells[0]; }
const CellEntry& CellAt(int index) { return kCells[index]; }
int CellIndex(const CellEntry& cell) { return static_cast<int>(&cell - kCells); }

int32_t PlanRnn(const HasteRnnConfig& config, const CellEntry& cell, bool backward,
                const HasteExecutor& executor, PlannedRnn* planned, HasteStatus* status) {
  if (config.device == HASTE_CUDA) {
    return Cuda().plan(config, CellIndex(cell), backward, executor, planned, status);
  }
  planned->backward = backward;
  planned->engine = cell.cpu[config.dtype];
  return PlanRecurrence(config, cell.info, GetCpuProperties(executor), {}, &planned->plan, status,
                        backward);
}

}  // namespace haste
