// What the functions of the C ABI share.
#ifndef HASTE_LIB_API_GUARD_H_
#define HASTE_LIB_API_GUARD_H_

#include <cstring>
#include <exception>
#include <new>

#include "haste/c_api.h"
#include "lib/api/registry.h"
#include "lib/api/validate.h"
#include "lib/engine/cuda_backend.h"
#include "lib/engine/engine.h"

namespace haste {

inline const HasteExecutor& OrDefault(const HasteExecutor* executor) {
  static const HasteExecutor none = {};
  return executor == nullptr ? none : *executor;
}

// `to` = `from`, or 0 if that is NULL.
inline int32_t Copy(int32_t device, size_t bytes, const void* from, void* to,
                    const HasteExecutor& executor, HasteStatus* status) {
  if (to == nullptr || bytes == 0) return HASTE_OK;
  if (device == HASTE_CUDA) return Cuda().copy(to, from, bytes, executor, status);
  if (from == nullptr) {
    memset(to, 0, bytes);
  } else {
    memcpy(to, from, bytes);
  }
  return HASTE_OK;
}

// Runs a function of the C ABI; exceptions end here.
template <class Call>
int32_t Guarded(HasteStatus* status, const Call& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return SetStatus(status, HASTE_INTERNAL, "out of memory on the host");
  } catch (const std::exception& error) {
    return SetStatus(status, HASTE_INTERNAL, "unexpected failure: %s", error.what());
  } catch (...) {
    return SetStatus(status, HASTE_INTERNAL, "unexpected failure of an unknown kind");
  }
}

}  // namespace haste

#endif  // HASTE_LIB_API_GUARD_H_
