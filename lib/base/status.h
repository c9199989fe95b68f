// How a function reports an error: a message in a HasteStatus, and a returned code.
#pragma once

#include <stdint.h>

#include "haste/c_api.h"

// Returns from the function with the code of CALL if that is an error.
#define HASTE_TRY(CALL)                            \
  do {                                             \
    const int32_t haste_code = (CALL);             \
    if (haste_code != HASTE_OK) return haste_code; \
  } while (0)

namespace haste {

// No tensor is larger, counted at 8 bytes an element. So the sums and paddings of a few tensors
// that engines compute fit 64 bits.
constexpr double kMaxBytes = 1152921504606846976.0;  // 2^60

// Formats a message into `status` and returns `code`.
int32_t SetStatus(HasteStatus* status, int32_t code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// An error that names the argument if `pointer` is NULL.
int32_t CheckPointer(const void* pointer, const char* name, HasteStatus*);

}  // namespace haste
