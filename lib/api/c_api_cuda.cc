// The C ABI about the CUDA half: whether it is installed, its version, and which GPUs it runs on.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>

#include "lib/api/guard.h"
#include "lib/cuda/host/driver.h"

namespace haste {
namespace {

int32_t NeedBackend(const CudaBackend** backend, HasteStatus* status) {
  std::string why;
  *backend = FindCudaBackend(&why);
  if (*backend != nullptr) return HASTE_OK;
  return SetStatus(status, HASTE_UNIMPLEMENTED, "%s", why.c_str());
}

}  // namespace
}  // namespace haste

extern "C" {

int32_t haste_load_cuda(const char* path, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    HASTE_TRY(haste::CheckPointer(path, "path", status));
    return haste::LoadCudaBackend(path, status);
  });
}

int32_t haste_has_cuda(void) { return haste::FindCudaBackend() != nullptr; }

int32_t haste_cuda_driver_status(HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    const haste::CudaBackend* cuda;
    HASTE_TRY(haste::NeedBackend(&cuda, status));
    return cuda->driver_status(status);
  });
}

int32_t haste_cuda_status(HasteStatus* status) {
  return haste::Guarded(status, [&] { return haste::CheckDevice(HASTE_CUDA, status); });
}

int32_t haste_cuda_info(HasteCudaInfo* info, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    const haste::CudaBackend* cuda;
    HASTE_TRY(haste::NeedBackend(&cuda, status));
    *info = {};
    snprintf(info->path, sizeof info->path, "%s", haste::CudaBackendPath().c_str());
    snprintf(info->architectures, sizeof info->architectures, "%s", cuda->architectures);
    info->toolkit_version = cuda->toolkit;
    info->driver_version = haste::DriverVersion();
    return HASTE_OK;
  });
}

int32_t haste_cuda_device(HasteDeviceProperties* device, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    HASTE_TRY(haste::CheckDevice(HASTE_CUDA, status));
    haste::CudaProperties cuda;
    HASTE_TRY(haste::Cuda().properties(&cuda, status));
    *device = {};
    device->sm_major = cuda.sm_major;
    device->sm_minor = cuda.sm_minor;
    device->multiprocessors = cuda.multiprocessors;
    device->shared_bytes_per_block = static_cast<int32_t>(cuda.shared_bytes_per_block);
    device->l2_bytes = cuda.l2_bytes;
    std::copy(std::begin(cuda.clusters), std::end(cuda.clusters), device->clusters);
    return HASTE_OK;
  });
}

}  // extern "C"
