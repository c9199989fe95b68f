// Every CUDA call goes through HASTE_CUDA_TRY. An error names the call and gives CUDA's message.
#pragma once

#include <cuda_runtime.h>

#include "lib/base/status.h"

namespace haste {

// Sets `status` for a failed call. If the build does not fit the GPU or the driver, the message
// says how to build one that does.
int32_t CudaFailure(cudaError_t error, const char* call, HasteStatus* status);

}  // namespace haste

// Returns from the function with an error in `status` unless `call` succeeds.
#define HASTE_CUDA_TRY(call, status)                           \
  do {                                                         \
    const cudaError_t haste_error = (call);                    \
    if (haste_error != cudaSuccess) {                          \
      return ::haste::CudaFailure(haste_error, #call, status); \
    }                                                          \
  } while (false)
