// The cells of this library with their engines, and the checks of what a call is given.
#ifndef HASTE_LIB_API_REGISTRY_H_
#define HASTE_LIB_API_REGISTRY_H_

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

// A direction of a call that has something to do: its plan on the executor's device, and its
// engine.
int32_t PlanRnn(const HasteRnnConfig&, const CellEntry&, bool backward, const HasteExecutor&,
                PlannedRnn*, HasteStatus*);

// Finds the cell and checks everything that both directions share.
int32_t CheckConfig(const HasteRnnConfig&, const CellEntry** cell, HasteStatus*);

// Of a call with work to do: every pointer that the cell names and that may not be NULL.
int32_t CheckForward(const HasteCellInfo&, const HasteRnnForwardArgs&, const void* workspace,
                     HasteStatus*);
int32_t CheckBackward(const HasteCellInfo&, const HasteRnnBackwardArgs&, const void* workspace,
                      HasteStatus*);
int32_t CheckSeed(const HasteRnnConfig&, const HasteCellInfo&, const int64_t* seed, HasteStatus*);

int32_t CheckDevice(int32_t device, HasteStatus*);
int32_t CheckDtype(int32_t dtype, HasteStatus*);

}  // namespace haste

#endif  // HASTE_LIB_API_REGISTRY_H_
