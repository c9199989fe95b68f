// What the CUDA half gives to the rest of the library, by the table of backend.cc. Plain C++:
// includes nothing of the toolkit.
#ifndef HASTE_LIB_CUDA_HOST_DEVICE_H_
#define HASTE_LIB_CUDA_HOST_DEVICE_H_

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/cuda/host/context.h"
#include "lib/plan/gemm.h"
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

// c = a·b + bias, m, n > 0. Any strides of a and b; accumulates in float (double for double).
int32_t CudaGemmWorkspace(const HasteGemm& gemm, size_t* bytes, HasteStatus* status);
int32_t CudaGemm(const HasteGemm& gemm, void* workspace, const HasteExecutor& executor,
                 HasteStatus* status);

// Of a part of a product (lib/plan/gemm.h) that takes no more bytes than `most`. What is no exact
// float of compute capability 9.0, and no sum in float32, is cuBLAS's, which must be there, and has
// no runs of depths and nothing more.
int32_t CudaProductChunkWorkspace(const ProductChunk& part, int64_t most, size_t* bytes,
                                  HasteStatus* status);
int32_t CudaProductChunk(const ProductChunk& part, int64_t most, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status);

// out[c] = Σ_r in[r, c] of in [rows, columns]. Sums in one fixed order.
int32_t CudaReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                       const HasteExecutor& executor, HasteStatus* status);

// Arguments were checked: rows, lanes, features > 0.
int32_t CudaLayerNorm(const HasteLayerNorm& norm, const HasteExecutor& executor,
                      HasteStatus* status);
size_t CudaLayerNormWorkspace(const HasteLayerNormGrad& norm, const HasteExecutor& executor);
int32_t CudaLayerNormGrad(const HasteLayerNormGrad& norm, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status);

// Arguments were checked.
int32_t CudaWindows(const HasteWindows& windows, const HasteExecutor& executor,
                    HasteStatus* status);
int32_t CudaWindowsGrad(const HasteWindowsGrad& windows, const HasteExecutor& executor,
                        HasteStatus* status);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_HOST_DEVICE_H_
