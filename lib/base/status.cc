#include "lib/base/status.h"

#include <cstdarg>
#include <cstdio>

namespace haste {

int32_t SetStatus(HasteStatus* status, int32_t code, const char* format, ...) {
  if (status != nullptr) {
    status->code = code;
    va_list values;
    va_start(values, format);
    vsnprintf(status->message, sizeof status->message, format, values);
    va_end(values);
  }
  return code;
}

int32_t CheckPointer(const void* pointer, const char* name, HasteStatus* status) {
  if (pointer != nullptr) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT, "%s: expected memory, got NULL", name);
}

}  // namespace haste
