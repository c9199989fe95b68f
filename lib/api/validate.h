// Checks the arguments of a call. An error names the argument, what was expected and what was
// given.
#pragma once

#include <stdint.h>

#include "haste/c_api.h"
#include "lib/api/registry.h"
#include "lib/base/status.h"

namespace haste {

// Finds the cell and checks everything that both directions share.
int32_t CheckConfig(const HasteRnnConfig&, const CellEntry** cell, HasteStatus*);

// For a call with work to do: checks every pointer that the cell needs and that may not be NULL.
int32_t CheckForward(const HasteRnnConfig&, const HasteCellInfo&, const HasteRnnForwardArgs&,
                     const void* workspace, HasteStatus*);
// Backward has no int8.
int32_t CheckHasGradient(const HasteRnnConfig&, HasteStatus*);
int32_t CheckBackward(const HasteRnnConfig&, const HasteCellInfo&, const HasteRnnBackwardArgs&,
                      const void* workspace, HasteStatus*);
int32_t CheckSeed(const HasteRnnConfig&, const HasteCellInfo&, const int64_t* seed, HasteStatus*);

// Whether a product with int8 weights takes this dtype and depth, which the caller calls `name`.
int32_t CheckInt8(int32_t dtype, const char* name, int64_t depth, HasteStatus*);
int32_t CheckDevice(int32_t device, HasteStatus*);
int32_t CheckDtype(int32_t dtype, HasteStatus*);

}  // namespace haste
