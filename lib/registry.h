// The cells of this build with their engines, and the checks of what a call is given.
#ifndef HASTE_LIB_REGISTRY_H_
#define HASTE_LIB_REGISTRY_H_

#include <stdint.h>

#include "lib/engine.h"
#include "lib/haste/c_api.h"

namespace haste {

// Engines in the order of HasteDtype; behind these, of those that tell it apart, that of float32
// where TensorFloat-32 is allowed.
constexpr int kTensorFloatForm = 4;
struct CellEntry {
  HasteCellInfo info;
  const Engine* cpu[4];
  const Engine* cuda[4];      // that runs it at any size: `stepwise` or `scan`
  const Engine* resident[5];  // `cluster` and `grid`; null where these never run it
  const Engine* block[5];     // the same
  const Engine* tiled[4];     // the same
  const Engine* blas[4];      // null where these never run it
};

int CellCount();
const CellEntry& CellAt(int index);

// The engine that PlanRecurrence gives a direction on the current device.
int32_t FindEngine(const CellEntry&, const HasteRnnConfig&, bool backward, const Engine**,
                   HasteStatus*);

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
int32_t CheckPointer(const void* pointer, const char* name, HasteStatus*);

}  // namespace haste

#endif  // HASTE_LIB_REGISTRY_H_
