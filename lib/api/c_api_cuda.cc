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
    HasteCudaInfo full = {};
    snprintf(full.path, sizeof full.path, "%s", haste::CudaBackendPath().c_str());
    snprintf(full.architectures, sizeof full.architectures, "%s", cuda->architectures);
    full.toolkit_version = cuda->toolkit;
    full.driver_version = haste::DriverVersion();
    return haste::Give(full, info, status);
  });
}

int32_t haste_cuda_device(HasteDeviceProperties* device, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    HASTE_TRY(haste::CheckDevice(HASTE_CUDA, status));
    haste::CudaProperties cuda;
    HASTE_TRY(haste::Cuda().properties(&cuda, status));
    HasteDeviceProperties full = {};
    full.sm_major = cuda.sm_major;
    full.sm_minor = cuda.sm_minor;
    full.multiprocessors = cuda.multiprocessors;
    full.shared_bytes_per_block = static_cast<int32_t>(cuda.shared_bytes_per_block);
    full.l2_bytes = cuda.l2_bytes;
    std::copy(std::begin(cuda.clusters), std::end(cuda.clusters), full.clusters);
    return haste::Give(full, device, status);
  });
}

}  // extern "C"
