// What the CUDA half gives to the rest of the library, by the table of backend.cc. Plain C++:
// includes nothing of the toolkit.
#ifndef HASTE_LIB_CUDA_HOST_DEVICE_H_
#define HASTE_LIB_CUDA_HOST_DEVICE_H_

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/cuda/host/context.h"
#include "lib/plan/plan.h"

namespace haste {

// The version of CUDA that device code is compiled with, as CUDA counts them: 12040 is 12.4.
int32_t CudaToolkit();

// HASTE_OK if this machine's NVIDIA driver runs this library. Does not initialise CUDA.
int32_t CudaDriverStatus(HasteStatus* status);

// Properties of the calling thread's current device.
int32_t GetCudaProperties(CudaProperties* properties, HasteStatus* status);
// The same of what a stream's kernels may have of it, and the current context. A stream of a green
// context has no more than that context's multiprocessors, whichever context is the current one.
int32_t GetStreamProperties(const HasteExecutor&, ContextKey*, CudaProperties*, HasteStatus*);

// HASTE_OK if this build can run on the current device: a device is there, its driver is new
// enough, and the library holds code for its architecture. Else one sentence in `status`.
int32_t CudaDeviceStatus(HasteStatus* status);

// Memory of the current device; a free waits for what was queued.
int32_t CudaAllocate(size_t bytes, void** memory, HasteStatus* status);
int32_t CudaFree(void* memory, HasteStatus* status);

// `to` = `from`, or 0 if that is NULL; both on the device.
int32_t CudaCopy(void* to, const void* from, size_t bytes, const HasteExecutor& executor,
                 HasteStatus* status);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_HOST_DEVICE_H_
