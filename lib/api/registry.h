// The cells of this library with their engines.
#pragma once

#include <stdint.h>

#include "haste/c_api.h"
#include "lib/engine/engine.h"

namespace haste {

// Its engines on a CPU, in the order of HasteDtype. (On a GPU: lib/cuda/registry/engines.h.)
struct CellEntry {
  HasteCellInfo info;
  const Engine* cpu[4];
};

int CellCount();
const CellEntry& CellAt(int index);
int CellIndex(const CellEntry&);

// Plans one direction of a call with work to do: the plan on the executor's device, and the engine.
int32_t PlanRnn(const HasteRnnConfig&, const CellEntry&, bool backward, const HasteExecutor&,
                PlannedRnn*, HasteStatus*);

// The plan of the same on a CPU. A thread keeps its latest ones, so `cpu` differs between its calls
// in `threads` alone.
int32_t PlanOnCpu(const HasteRnnConfig&, const CellEntry&, bool backward, const CpuProperties& cpu,
                  Plan*, HasteStatus*);

}  // namespace haste
