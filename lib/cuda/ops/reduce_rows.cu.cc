#include "lib/cuda/ops/reduce_rows.h"

#include "lib/base/dtypes.h"
#include "lib/base/status.h"
#include "lib/cuda/ptx/reduce.cuh"

namespace haste {

int32_t CudaReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                       const HasteExecutor& executor, HasteStatus* status) {
  if (columns <= 0) return HASTE_OK;
  switch (dtype) {
#define HASTE_CASE(name, type, value)                                                      \
  case value:                                                                              \
    return LaunchSumOverRows<type, type>(rows, columns, static_cast<const type*>(in), out, \
                                         executor, status);
    HASTE_DTYPES(HASTE_CASE)
#undef HASTE_CASE
    default:
      return SetStatus(status, HASTE_INVALID_ARGUMENT, "dtype: expected a HasteDtype, got %d",
                       dtype);
  }
}

}  // namespace haste
