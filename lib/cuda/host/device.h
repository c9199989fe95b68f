// What the rest of the library calls through the table of backend.cc. Plain C++: includes nothing
// from the toolkit.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/cuda/host/context.h"
#include "lib/plan/plan.h"

namespace haste {

// The CUDA version that device code is compiled with, as CUDA numbers them: 12040 is 12.4.
int32_t CudaToolkit();

// HASTE_OK if this machine's NVIDIA driver runs this library. Does not initialise CUDA.
int32_t CudaDriverStatus(HasteStatus* status);

// Properties of the calling thread's current device.
int32_t GetCudaProperties(CudaProperties* properties, HasteStatus* status);
// The same as far as kernels of a stream can use them, and the current context. A stream of a green
// context has only that context's multiprocessors, whichever context is current.
int32_t GetStreamProperties(const HasteExecutor&, ContextKey*, CudaProperties*, HasteStatus*);

// HASTE_OK if this build runs on the current device: a device exists, its driver is new enough, and
// the library holds code for its architecture. Otherwise `status` says in one sentence why not.
int32_t CudaDeviceStatus(HasteStatus* status);

// Memory of the current device. A free waits for queued work.
int32_t CudaAllocate(size_t bytes, void** memory, HasteStatus* status);
int32_t CudaFree(void* memory, HasteStatus* status);

// `to` = `from`, or 0 if that is NULL; both on the device.
int32_t CudaCopy(void* to, const void* from, size_t bytes, const HasteExecutor& executor,
                 HasteStatus* status);

}  // namespace haste
