// Launches kernels. A returned error belongs to this launch, not to an earlier failure.
#pragma once

#include <cuda_runtime.h>

#include <cinttypes>

#include "lib/base/status.h"
#include "lib/cuda/host/relaxed_capture.h"

namespace haste {

// Lets launches of a kernel use all the shared memory that the device allows a block, not only what
// this launch needs: the setting belongs to the kernel, and another thread may need more.
template <class... Params>
cudaError_t AllowSharedMemory(void (*kernel)(Params...)) {
  const RelaxedCapture relaxed;  // the first query of a kernel loads it
  int device = 0, most = 0;
  cudaFuncAttributes attributes;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              most - static_cast<int>(attributes.sharedSizeBytes));
}

// An error if a launch would have more blocks than there can be. of: the sizes that they come of.
inline int32_t CheckBlocks(int64_t blocks, const char* of, HasteStatus* status) {
  if (blocks <= INT32_MAX) return HASTE_OK;
  return SetStatus(status, HASTE_UNIMPLEMENTED,
                   "%s: expected sizes for at most 2^31 - 1 blocks of a launch, got %" PRId64, of,
                   blocks);
}

struct LaunchShape {
  int64_t blocks = 0;
  dim3 threads;
  size_t shared_bytes = 0;
  int cluster = 1;           // blocks of a thread-block cluster
  bool cooperative = false;  // all blocks are resident at the same time
  bool overlap = false;      // the kernel may start before the previous one ends, and waits for it
  cudaEvent_t begun = nullptr;  // recorded once all blocks have started (CUDA 12.3)
};

// Lets a kernel be launched in this shape.
template <class... Params>
cudaError_t AllowShape(void (*kernel)(Params...), const LaunchShape& shape) {
  const cudaError_t error = AllowSharedMemory(kernel);
  // 8 is what every GPU with clusters supports.
  if (error != cudaSuccess || shape.cluster <= 8) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

// cudaLaunchKernelEx; through HASTE_CUDA_TRY an error names the kernel.
template <class... Params, class... Args>
cudaError_t Launch(void (*kernel)(Params...), const LaunchShape& shape,
                   const HasteExecutor& executor, Args&&... args) {
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  launch.blockDim = shape.threads;
  launch.dynamicSmemBytes = shape.shared_bytes;
  launch.stream = static_cast<cudaStream_t>(executor.stream);
  cudaLaunchAttribute attributes[4] = {};
  launch.attrs = attributes;
  const auto add = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
    cudaLaunchAttribute& attribute = attributes[launch.numAttrs++];
    attribute.id = id;
    return attribute.val;
  };
  if (shape.cluster > 1) {
    auto& dimension = add(cudaLaunchAttributeClusterDimension).clusterDim;
    dimension.x = shape.cluster;
    dimension.y = dimension.z = 1;
  }
  if (shape.cooperative) add(cudaLaunchAttributeCooperative).cooperative = 1;
  if (shape.overlap) {
    add(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed =
        1;
  }
#if CUDART_VERSION >= 12030
  if (shape.begun != nullptr) {
    add(cudaLaunchAttributeLaunchCompletionEvent).launchCompletionEvent.event = shape.begun;
  }
#endif
  return cudaLaunchKernelEx(&launch, kernel, static_cast<Params>(args)...);
}

// Sets memory to 0, after what the stream has to do already.
inline cudaError_t Clear(void* memory, size_t bytes, const HasteExecutor& executor) {
  return cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(executor.stream));
}

}  // namespace haste
