// What the rest of the library sees of CUDA. Plain C++: includes nothing of the toolkit.
#ifndef HASTE_LIB_CUDA_CUDA_H_
#define HASTE_LIB_CUDA_CUDA_H_

#include <stddef.h>
#include <stdint.h>

#include "lib/haste/c_api.h"

namespace haste {

struct CudaDevice {
  int ordinal = 0;
  int major = 0, minor = 0;         // compute capability
  int multiprocessors = 0;
  size_t shared_bytes_per_block = 0;  // with the opt-in of cudaFuncSetAttribute
  size_t l2_bytes = 0;
};

// Properties of the calling thread's current device.
int32_t CudaCurrentDevice(CudaDevice* device, HasteStatus* status);

// HASTE_OK if this build can run on the current device: a device is there, its driver is new
// enough, and the library holds code for its architecture. Else one sentence in `status`.
int32_t CudaDeviceStatus(HasteStatus* status);

// c = a·b + bias. Any strides of a and b; accumulates in float (double for double).
int32_t CudaGemm(const HasteGemm& gemm, const HasteExecutor& executor, HasteStatus* status);

// out[c] = Σ_r in[r·row_stride + c], r in [0, rows), c in [0, columns). Sums in one fixed order.
int32_t CudaReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in,
                       int64_t row_stride, void* out, const HasteExecutor& executor,
                       HasteStatus* status);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_CUDA_H_
