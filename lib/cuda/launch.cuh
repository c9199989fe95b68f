// How kernels are launched: an error is that of this launch, not of whatever failed before it.
#ifndef HASTE_LIB_CUDA_LAUNCH_CUH_
#define HASTE_LIB_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include "lib/haste/c_api.h"

namespace haste {

// cudaLaunchKernelEx; through HASTE_CUDA_TRY an error names the kernel. `overlap`: the kernel may
// start before the one ahead of it has ended, and waits for it itself.
template <class... Params, class... Args>
cudaError_t Launch(void (*kernel)(Params...), int64_t blocks, dim3 threads, size_t shared_bytes,
                   bool overlap, const HasteExecutor& executor, Args&&... args) {
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(static_cast<unsigned>(blocks));
  launch.blockDim = threads;
  launch.dynamicSmemBytes = shared_bytes;
  launch.stream = static_cast<cudaStream_t>(executor.stream);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  launch.attrs = &attribute;
  launch.numAttrs = overlap ? 1 : 0;
  return cudaLaunchKernelEx(&launch, kernel, static_cast<Params>(args)...);
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_LAUNCH_CUH_
