#include "lib/base/dtypes.h"
#include "lib/cuda/ops/ops.h"
#include "lib/cuda/ptx/reduce.cuh"

namespace haste {

int32_t CudaReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                       const HasteExecutor& executor, HasteStatus* status) {
  if (columns <= 0) return HASTE_OK;
  return WithDtype(dtype, [&](auto of) {
    using T = decltype(of);
    return LaunchSumOverRows<T, T>(rows, columns, static_cast<const T*>(in), out, executor, status);
  });
}

}  // namespace haste
