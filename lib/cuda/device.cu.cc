// Devices and errors: can this build run here, and if not, what to do about it.
#include <algorithm>
#include <iterator>
#include <mutex>

#include "lib/cuda/cublas.h"
#include "lib/cuda/cuda.h"
#include "lib/cuda/driver.h"
#include "lib/cuda/error.h"

namespace haste {
namespace {

// Its image is there exactly where those of the engines are: all are compiled alike.
// How many threads it may have tells whether the code that runs here has what 9.0a adds to 9.0, on
// which plans for such a GPU count: made from PTX it has not.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr int kProbeThreads = 512;
#else
constexpr int kProbeThreads = 1024;
#endif
__global__ void __launch_bounds__(kProbeThreads) Probe() {}

// For which compute capability the code was made that runs here; and thread-block clusters that are
// resident at once, of blocks that have a multiprocessor each. None where that code has none.
cudaError_t Inspect(int sm_major, int shared_bytes, int* code, int (&clusters)[kMaxCluster + 1]) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, Probe);
  if (error != cudaSuccess) return error;
  *code = attributes.ptxVersion;
  if (sm_major == 9 && attributes.maxThreadsPerBlock < kProbeThreads) *code = 89;
  if (*code < 90) return error;
  error = cudaFuncSetAttribute(Probe, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(Probe, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  for (int size = 2; size <= kMaxCluster && error == cudaSuccess; ++size) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = size;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(size);
    launch.blockDim = kResidentWarps * 32;
    launch.dynamicSmemBytes = shared_bytes;
    launch.attrs = &attribute;
    launch.numAttrs = 1;
    error = cudaOccupancyMaxActiveClusters(&clusters[size], Probe, &launch);
  }
  return error;
}

// The driver takes tens of microseconds for each: once a device and process.
constexpr int kMaxDevices = 64;
struct Inspected {
  std::once_flag once;
  cudaError_t error = cudaSuccess;
  int code = 0;
  int clusters[kMaxCluster + 1] = {};
} inspected[kMaxDevices];

int32_t DriverTooOld(HasteStatus* status) {
  return SetStatus(status, HASTE_UNIMPLEMENTED, "%s",
                   DriverSentence(DriverVersion(), CUDART_VERSION).c_str());
}

int32_t NoCodeForDevice(HasteStatus* status) {
  CudaProperties device;
  const int32_t code = GetCudaProperties(&device, status);
  if (code != HASTE_OK) return code;
  return SetStatus(
      status, HASTE_UNIMPLEMENTED,
      "CUDA: this library holds no code for a GPU of compute capability %d.%d (7.5 and "
      "newer are supported); build it on a toolkit that knows this GPU: "
      "make wheel CUDA_HOME=/path/to/cuda",
      device.sm_major, device.sm_minor);
}

}  // namespace

int32_t CudaFailure(cudaError_t error, const char* call, HasteStatus* status) {
  cudaGetLastError();  // an error that is reported must not be found again by the next caller
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:
      return DriverTooOld(status);
    case cudaErrorNoDevice:
      return SetStatus(status, HASTE_UNIMPLEMENTED, "CUDA: no GPU is visible to this process");
    case cudaErrorNoKernelImageForDevice:
      return NoCodeForDevice(status);
    // What `trap` of patience.cuh comes back as, of this call or of one before it.
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalInstruction:
      return SetStatus(
          status, HASTE_INTERNAL,
          "%s failed with %s: %s. A kernel of this process ended early; those of this library do "
          "where they waited 60 s for what runs beside them. If that is it, HASTE_OVERLAP=0 in the "
          "environment keeps layers from running products beside the time loop",
          call, cudaGetErrorName(error), cudaGetErrorString(error));
    default:
      return SetStatus(status, HASTE_INTERNAL, "%s failed with %s: %s", call,
                       cudaGetErrorName(error), cudaGetErrorString(error));
  }
}

int32_t GetCudaProperties(CudaProperties* properties, HasteStatus* status) {
  int device = 0, shared = 0, l2 = 0;
  HASTE_CUDA_TRY(cudaGetDevice(&device), status);
  const auto get = [device](cudaDeviceAttr attribute, int* value) {
    return cudaDeviceGetAttribute(value, attribute, device);
  };
  HASTE_CUDA_TRY(get(cudaDevAttrComputeCapabilityMajor, &properties->sm_major), status);
  HASTE_CUDA_TRY(get(cudaDevAttrComputeCapabilityMinor, &properties->sm_minor), status);
  HASTE_CUDA_TRY(get(cudaDevAttrMultiProcessorCount, &properties->multiprocessors), status);
  HASTE_CUDA_TRY(get(cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared), status);
  HASTE_CUDA_TRY(get(cudaDevAttrL2CacheSize, &l2), status);
  properties->shared_bytes_per_block = shared;
  properties->l2_bytes = l2;
  if (properties->sm_major >= 8 && device < kMaxDevices) {
    Inspected& entry = inspected[device];
    std::call_once(entry.once, [&] {
      entry.error = Inspect(properties->sm_major, shared, &entry.code, entry.clusters);
    });
    HASTE_CUDA_TRY(entry.error, status);
    if (entry.code < 90) {  // then no better than the GPUs that it was made for
      properties->sm_major = entry.code / 10;
      properties->sm_minor = entry.code % 10;
    }
    std::copy(std::begin(entry.clusters), std::end(entry.clusters), properties->clusters);
  }
  return HASTE_OK;
}

int32_t PlanOnGpu(const HasteRnnConfig& config, const HasteCellInfo& cell, bool backward,
                  Plan* plan, HasteStatus* status) {
  CudaProperties device;
  int32_t code = GetCudaProperties(&device, status);
  if (code != HASTE_OK) return code;
  device.has_cublas = true;
  code = PlanRecurrence(config, cell, CpuProperties(), device, plan, status, backward);
  if (code != HASTE_OK || plan->engine != EngineKind::kBlas || HaveCublas()) return code;
  device.has_cublas = false;
  return PlanRecurrence(config, cell, CpuProperties(), device, plan, status, backward);
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
  cudaFuncAttributes attributes;
  HASTE_CUDA_TRY(cudaFuncGetAttributes(&attributes, Probe), status);
  return HASTE_OK;
}

}  // namespace haste
