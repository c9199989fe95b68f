// The C ABI of weights that stay packed between calls.
#include "lib/api/guard.h"
#include "lib/base/status.h"
#include "lib/engine/packed_weights.h"

extern "C" {

int32_t haste_packed_weights_create(HastePackedWeights** packed, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    HASTE_TRY(haste::CheckPointer(packed, "packed", status));
    *packed = new HastePackedWeights;
    return HASTE_OK;
  });
}

int32_t haste_packed_weights_free(HastePackedWeights* packed, HasteStatus*) {
  delete packed;
  return HASTE_OK;
}

int32_t haste_packed_weights_clear(HastePackedWeights* packed, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    HASTE_TRY(haste::CheckPointer(packed, "packed", status));
    packed->Clear();
    return HASTE_OK;
  });
}

int32_t haste_packed_weights_bytes(const HastePackedWeights* packed, size_t* bytes,
                                   HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    HASTE_TRY(haste::CheckPointer(packed, "packed", status));
    HASTE_TRY(haste::CheckPointer(bytes, "bytes", status));
    *bytes = packed->bytes();
    return HASTE_OK;
  });
}

}  // extern "C"
