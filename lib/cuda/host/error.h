// Every CUDA call goes through HASTE_CUDA_TRY. An error names the call and gives CUDA's message.
#pragma once

#include <cuda_runtime.h>

#include "lib/base/status.h"

namespace haste {

// Sets `status` for a failed call. If the build does not fit the GPU or the driver, the message
// says how to build one that does.
int32_t CudaFailure(cudaError_t error, const char* call, HasteStatus* status);

inline int32_t CudaStatus(cudaError_t error, const char* call, HasteStatus* status) {
  return error == cudaSuccess ? HASTE_OK : CudaFailure(error, call, status);
}

}  // namespace haste

// The code of `call`; if that is an error, it is in `status`.
#define HASTE_CUDA_STATUS(call, status) ::haste::CudaStatus(call, #call, status)
// Returns from the function with the code unless `call` succeeds.
#define HASTE_CUDA_TRY(call, status) HASTE_TRY(::haste::CudaStatus(call, #call, status))
