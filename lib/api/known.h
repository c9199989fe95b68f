// Structures of callers that were compiled with another version of c_api.h (struct_size).
//
// A field that is added stands after all others and after the padding that they end with, and
// leaves no padding itself: `int32_t reserved` fills it. Its 0 means what the library did before.
// Fields that are there keep their place, and so every HASTE_MAX_ its number.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "haste/c_api.h"

namespace haste {

// A structure by its name, with the bytes of its first version and of this one.
struct Growth {
  const char* name;
  size_t first, known;
};

// LAST: the last field of its first version.
#define HASTE_GROWTH(TYPE, LAST)                                                                   \
  constexpr Growth GrowthOf(const TYPE*) {                                                         \
    return {#TYPE, offsetof(TYPE, LAST) + sizeof static_cast<TYPE*>(nullptr)->LAST, sizeof(TYPE)}; \
  }
HASTE_GROWTH(HasteRnnConfig, allow_tf32)
HASTE_GROWTH(HasteRnnForwardArgs, saved)
HASTE_GROWTH(HasteRnnBackwardArgs, ds0)
HASTE_GROWTH(HasteExecutor, pool)
HASTE_GROWTH(HasteGemm, allow_tf32)
HASTE_GROWTH(HasteLayerNorm, y)
HASTE_GROWTH(HasteLayerNormGrad, dbeta)
HASTE_GROWTH(HasteWindows, after)
HASTE_GROWTH(HasteWindowsGrad, dbefore)
HASTE_GROWTH(HasteLayerForwardArgs, xw)
HASTE_GROWTH(HasteLayerBackwardArgs, dgamma)
HASTE_GROWTH(HasteDeviceProperties, clusters)
HASTE_GROWTH(HasteCudaInfo, driver_version)
#undef HASTE_GROWTH

// *to = what the caller gave, with zeros where it has no field.
int32_t Take(const Growth&, const void* given, void* to, HasteStatus*);
// *wanted = from, as far as the caller has fields, with zeros where the library has none.
int32_t Give(const Growth&, const void* from, void* wanted, HasteStatus*);

template <class T>
int32_t Take(const T* given, T* to, HasteStatus* status) {
  if (std::is_same_v<T, HasteExecutor> && given == nullptr) {  // it may be left out
    *to = HASTE_INIT(T);
    return HASTE_OK;
  }
  if (given == nullptr || given->struct_size != sizeof(T)) {
    return Take(GrowthOf(given), given, to, status);
  }
  *to = *given;
  return HASTE_OK;
}
template <class T>
int32_t Give(const T& from, T* wanted, HasteStatus* status) {
  return Give(GrowthOf(wanted), &from, wanted, status);
}

}  // namespace haste
