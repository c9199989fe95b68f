// Devices and errors: can this build run here, and if not, what to do about it.
#include "lib/cuda/cuda.h"
#include "lib/cuda/error.h"

namespace haste {
namespace {

// Its image is there exactly where those of the engines are: all are compiled alike.
__global__ void Probe() {}

// 13000 → 13.0
int Major(int version) { return version / 1000; }
int Minor(int version) { return version % 1000 / 10; }

int32_t DriverTooOld(HasteStatus* status) {
  int driver = 0;
  cudaDriverGetVersion(&driver);  // 0 if there is none
  cudaGetLastError();
  if (driver == 0) {
    return SetStatus(status, HASTE_UNIMPLEMENTED,
                     "CUDA: no NVIDIA driver is loaded on this machine (this library was built "
                     "with CUDA %d.%d)",
                     Major(CUDART_VERSION), Minor(CUDART_VERSION));
  }
  return SetStatus(status, HASTE_UNIMPLEMENTED,
                   "CUDA: the NVIDIA driver runs CUDA up to %d.%d, but this library was built with "
                   "CUDA %d.%d; update the driver, or build with an older toolkit: "
                   "make wheel CUDA_HOME=/path/to/cuda-%d",
                   Major(driver), Minor(driver), Major(CUDART_VERSION), Minor(CUDART_VERSION),
                   Major(driver));
}

int32_t NoCodeForDevice(HasteStatus* status) {
  CudaDevice device;
  if (CudaCurrentDevice(&device, status) != HASTE_OK) return status->code;
  return SetStatus(status, HASTE_UNIMPLEMENTED,
                   "CUDA: this library holds no code for a GPU of compute capability %d.%d (7.5 and "
                   "newer are supported); build it on a toolkit that knows this GPU: "
                   "make wheel CUDA_HOME=/path/to/cuda",
                   device.major, device.minor);
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
    default:
      return SetStatus(status, HASTE_INTERNAL, "%s failed with %s: %s", call,
                       cudaGetErrorName(error), cudaGetErrorString(error));
  }
}

int32_t CudaCurrentDevice(CudaDevice* device, HasteStatus* status) {
  HASTE_CUDA_TRY(cudaGetDevice(&device->ordinal), status);
  const auto get = [device](cudaDeviceAttr attribute, int* value) {
    return cudaDeviceGetAttribute(value, attribute, device->ordinal);
  };
  int shared = 0, l2 = 0;
  HASTE_CUDA_TRY(get(cudaDevAttrComputeCapabilityMajor, &device->major), status);
  HASTE_CUDA_TRY(get(cudaDevAttrComputeCapabilityMinor, &device->minor), status);
  HASTE_CUDA_TRY(get(cudaDevAttrMultiProcessorCount, &device->multiprocessors), status);
  HASTE_CUDA_TRY(get(cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared), status);
  HASTE_CUDA_TRY(get(cudaDevAttrL2CacheSize, &l2), status);
  device->shared_bytes_per_block = static_cast<size_t>(shared);
  device->l2_bytes = static_cast<size_t>(l2);
  return HASTE_OK;
}

int32_t CudaDeviceStatus(HasteStatus* status) {
  int driver = 0, devices = 0;
  HASTE_CUDA_TRY(cudaDriverGetVersion(&driver), status);
  if (Major(driver) < Major(CUDART_VERSION)) return DriverTooOld(status);
  HASTE_CUDA_TRY(cudaGetDeviceCount(&devices), status);
  if (devices == 0) return CudaFailure(cudaErrorNoDevice, "cudaGetDeviceCount", status);
  cudaFuncAttributes attributes;
  HASTE_CUDA_TRY(cudaFuncGetAttributes(&attributes, Probe), status);
  return HASTE_OK;
}

}  // namespace haste
