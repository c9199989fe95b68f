// Devices and errors: whether this build runs here and, if not, how to get one that does.
#include "lib/cuda/host/device.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "lib/cuda/host/clusters.h"
#include "lib/cuda/host/context.h"
#include "lib/cuda/host/driver.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/relaxed_capture.h"

namespace haste {
namespace {

// A kernel to query. It is compiled for the same GPUs as the engines. Its largest number of threads
// shows whether the loaded code is that of 9.0a, which plans for 9.0 rely on: code that the driver
// compiles from PTX is not.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr int kProbeThreads = 512;
#else
constexpr int kProbeThreads = 1024;
#endif
__global__ void __launch_bounds__(kProbeThreads) Probe() {}

int32_t NoCodeForDevice(HasteStatus* status) {
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  cudaGetLastError();
  return SetStatus(
      status, HASTE_UNIMPLEMENTED,
      "CUDA: this library holds no code for a GPU of compute capability %d.%d (7.5 and "
      "newer are supported); build it on a toolkit that knows this GPU: "
      "make wheel CUDA_HOME=/path/to/cuda",
      major, minor);
}

// How many clusters of `size` blocks can be resident, each block alone on its multiprocessor.
bool QueryClusters(int size, int shared_bytes, int* count) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = size;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(size);
  launch.blockDim = kPersistentWarps * 32;
  launch.dynamicSmemBytes = shared_bytes;
  launch.attrs = &attribute;
  launch.numAttrs = 1;
  if (cudaOccupancyMaxActiveClusters(count, Probe, &launch) == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

// Counts the resident clusters of each size. A failing query counts as no clusters.
void SetClusters(CudaProperties* properties) {
  const int shared = static_cast<int>(properties->shared_bytes_per_block);
  // Clusters of more than eight blocks need this attribute.
  cudaFuncSetAttribute(Probe, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaFuncSetAttribute(Probe, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  cudaGetLastError();
  CountClusters(
      properties->multiprocessors,
      [shared](int size, int* count) { return QueryClusters(size, shared, count); },
      properties->clusters);
}

// Reads the properties of the current context. The driver takes tens of microseconds for each size
// of cluster.
int32_t Inspect(int device, CudaProperties* properties, HasteStatus* status) {
  const RelaxedCapture relaxed;
  int shared = 0, l2 = 0, multiprocessors = 0;
  const auto get = [device](cudaDeviceAttr attribute, int* value) {
    return cudaDeviceGetAttribute(value, attribute, device);
  };
  HASTE_CUDA_TRY(get(cudaDevAttrComputeCapabilityMajor, &properties->sm_major), status);
  HASTE_CUDA_TRY(get(cudaDevAttrComputeCapabilityMinor, &properties->sm_minor), status);
  HASTE_CUDA_TRY(get(cudaDevAttrMultiProcessorCount, &multiprocessors), status);
  HASTE_CUDA_TRY(get(cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared), status);
  HASTE_CUDA_TRY(get(cudaDevAttrL2CacheSize, &l2), status);
  properties->multiprocessors = MultiprocessorsOfContext(multiprocessors);
  properties->shared_bytes_per_block = shared;
  properties->l2_bytes = l2;
  if (properties->sm_major < 8) return HASTE_OK;
  cudaFuncAttributes attributes;
  HASTE_CUDA_TRY(cudaFuncGetAttributes(&attributes, Probe), status);
  int code = attributes.ptxVersion;
  // Plans for 9.0 rely on instructions that only 9.0a has.
  if (properties->sm_major == 9 && attributes.maxThreadsPerBlock < kProbeThreads) code = 89;
  if (code >= 90) {
    SetClusters(properties);
  } else {  // plan as for the GPU that the code was compiled for
    properties->sm_major = code / 10;
    properties->sm_minor = code % 10;
  }
  return HASTE_OK;
}

// Contexts whose properties are known. Failures are not cached.
struct Inspected {
  std::mutex mutex;
  std::map<ContextKey, CudaProperties> contexts;
};

int32_t PropertiesOf(const ContextKey& context, CudaProperties* properties, HasteStatus* status) {
  Inspected& inspected = OfProcess<Inspected>();
  {
    std::lock_guard<std::mutex> lock(inspected.mutex);
    const auto known = inspected.contexts.find(context);
    if (known != inspected.contexts.end()) {
      *properties = known->second;
      return HASTE_OK;
    }
  }
  *properties = CudaProperties();
  HASTE_TRY(Inspect(static_cast<int>(context.device), properties, status));
  std::lock_guard<std::mutex> lock(inspected.mutex);
  inspected.contexts.emplace(context, *properties);
  return HASTE_OK;
}

int32_t DriverTooOld(HasteStatus* status) {
  return SetStatus(status, HASTE_UNIMPLEMENTED, "%s",
                   DriverSentence(DriverVersion(), CUDART_VERSION).c_str());
}

}  // namespace

int32_t CudaFailure(cudaError_t error, const char* call, HasteStatus* status) {
  cudaGetLastError();  // clears the error, so that the next caller does not report it again
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion: return DriverTooOld(status);
    case cudaErrorNoDevice:
      return SetStatus(status, HASTE_UNIMPLEMENTED, "CUDA: no GPU is visible to this process");
    case cudaErrorNoKernelImageForDevice: return NoCodeForDevice(status);
    // Plans use the number of multiprocessors that the driver reports for the stream.
    case cudaErrorCooperativeLaunchTooLarge:
      return SetStatus(status, HASTE_UNIMPLEMENTED,
                       "%s failed with %s: this stream has fewer multiprocessors than the driver "
                       "reports; choose an engine whose blocks do not wait for each other: "
                       "\"block\", \"blas\" or \"stepwise\"",
                       call, cudaGetErrorName(error));
    // The errors that `trap` of patience.cuh causes, in this call or an earlier one.
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalInstruction:
      return SetStatus(
          status, HASTE_INTERNAL,
          "%s failed with %s: %s. A kernel of this process aborted. Kernels of this library abort "
          "after waiting 60 s for a kernel that should run at the same time. If that is the cause, "
          "set HASTE_OVERLAP=0 in the environment: layers then run no products during the time "
          "loop",
          call, cudaGetErrorName(error), cudaGetErrorString(error));
    default:
      return SetStatus(status, HASTE_INTERNAL, "%s failed with %s: %s", call,
                       cudaGetErrorName(error), cudaGetErrorString(error));
  }
}

int32_t GetCudaProperties(CudaProperties* properties, HasteStatus* status) {
  ContextKey context;
  return GetStreamProperties({}, &context, properties, status);
}

int32_t GetStreamProperties(const HasteExecutor& executor, ContextKey* context,
                            CudaProperties* properties, HasteStatus* status) {
  HASTE_TRY(GetContext(context, status));
  HASTE_TRY(PropertiesOf(*context, properties, status));
  const int most = MultiprocessorsOfStream(executor);
  if (most > 0) LimitMultiprocessors(most, properties);
  return HASTE_OK;
}

int32_t CudaAllocate(size_t bytes, void** memory, HasteStatus* status) {
  return HASTE_CUDA_STATUS(cudaMalloc(memory, std::max<size_t>(bytes, 1)), status);
}

int32_t CudaFree(void* memory, HasteStatus* status) {
  return HASTE_CUDA_STATUS(cudaFree(memory), status);
}

int32_t CudaCopy(void* to, const void* from, size_t bytes, const HasteExecutor& executor,
                 HasteStatus* status) {
  const cudaStream_t stream = static_cast<cudaStream_t>(executor.stream);
  if (from == nullptr) {
    HASTE_CUDA_TRY(cudaMemsetAsync(to, 0, bytes, stream), status);
  } else {
    HASTE_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), status);
  }
  return HASTE_OK;
}

int32_t CudaToolkit() { return CUDART_VERSION; }

int32_t CudaDriverStatus(HasteStatus* status) {
  return DriverRuns(DriverVersion(), CudaToolkit()) ? HASTE_OK : DriverTooOld(status);
}

int32_t CudaDeviceStatus(HasteStatus* status) {
  int devices = 0;
  HASTE_TRY(CudaDriverStatus(status));
  HASTE_CUDA_TRY(cudaGetDeviceCount(&devices), status);
  if (devices == 0) return CudaFailure(cudaErrorNoDevice, "cudaGetDeviceCount", status);
  const RelaxedCapture relaxed;
  cudaFuncAttributes attributes;
  return HASTE_CUDA_STATUS(cudaFuncGetAttributes(&attributes, Probe), status);
}

}  // namespace haste
