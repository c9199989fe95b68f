#include "lib/cuda/host/context.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "lib/cuda/host/error.h"
#include "lib/cuda/host/relaxed_capture.h"

namespace haste {
namespace {

template <class Function>
void Find(const char* name, unsigned int version, Function* function) {
  *function = reinterpret_cast<Function>(FindDriverFunction(name, version));
}

struct Driver {
  CUresult (*current)(CUcontext*) = nullptr;
  CUresult (*id)(CUcontext, unsigned long long*) = nullptr;
  CUresult (*affinity)(CUexecAffinityParam*, CUexecAffinityType) = nullptr;
#if CUDA_VERSION >= 12040
  CUresult (*resource)(CUcontext, CUdevResource*, CUdevResourceType) = nullptr;
  CUresult (*green)(CUstream, CUgreenCtx*) = nullptr;
  CUresult (*green_resource)(CUgreenCtx, CUdevResource*, CUdevResourceType) = nullptr;
#endif
};

const Driver& GetDriver() {
  static const Driver driver = [] {
    Driver found;
    Find("cuCtxGetCurrent", 4000, &found.current);
    Find("cuCtxGetId", 12000, &found.id);
    Find("cuCtxGetExecAffinity", 11040, &found.affinity);
#if CUDA_VERSION >= 12040
    Find("cuCtxGetDevResource", 12040, &found.resource);
    Find("cuStreamGetGreenCtx", 12040, &found.green);
    Find("cuGreenCtxGetDevResource", 12040, &found.green_resource);
#endif
    return found;
  }();
  return driver;
}

CUcontext CurrentContext() {
  CUcontext context = nullptr;
  const Driver& driver = GetDriver();
  if (driver.current == nullptr || driver.current(&context) != CUDA_SUCCESS) return nullptr;
  return context;
}

}  // namespace

void* FindDriverFunction(const char* name, [[maybe_unused]] unsigned int version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found : nullptr;
}

int32_t GetContext(ContextKey* key, HasteStatus* status) {
  int device = 0;
  HASTE_CUDA_TRY(cudaGetDevice(&device), status);
  CUcontext context = CurrentContext();
  if (context == nullptr) {  // the first call of this thread
    const RelaxedCapture relaxed;
    HASTE_CUDA_TRY(cudaFree(nullptr), status);
    context = CurrentContext();
  }
  key->device = device;
  key->id = reinterpret_cast<uintptr_t>(context);
  unsigned long long id = 0;
  const Driver& driver = GetDriver();
  if (context != nullptr && driver.id != nullptr && driver.id(context, &id) == CUDA_SUCCESS) {
    key->id = id;
  }
  return HASTE_OK;
}

int MultiprocessorsOfContext(int multiprocessors) {
  const CUcontext context = CurrentContext();
  if (context == nullptr) return multiprocessors;
  const Driver& driver = GetDriver();
  const auto cap = [&](unsigned int most) {
    if (most > 0) multiprocessors = std::min(multiprocessors, static_cast<int>(most));
  };
  // MPS can limit the multiprocessors of a context (cuCtxCreate_v3).
  CUexecAffinityParam affinity = {};
  if (driver.affinity != nullptr &&
      driver.affinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT) == CUDA_SUCCESS) {
    cap(affinity.param.smCount.val);
  }
#if CUDA_VERSION >= 12040
  CUdevResource resource = {};
  if (driver.resource != nullptr &&
      driver.resource(context, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS) {
    cap(resource.sm.smCount);
  }
#endif
  return multiprocessors;
}

int MultiprocessorsOfStream([[maybe_unused]] const HasteExecutor& executor) {
#if CUDA_VERSION >= 12040
  const auto stream = static_cast<CUstream>(executor.stream);
  // Streams without a handle of their own belong to the current context.
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return 0;
  const Driver& driver = GetDriver();
  CUgreenCtx green = nullptr;
  CUdevResource resource = {};
  if (driver.green != nullptr && driver.green_resource != nullptr &&
      driver.green(stream, &green) == CUDA_SUCCESS && green != nullptr &&
      driver.green_resource(green, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS) {
    return static_cast<int>(resource.sm.smCount);
  }
#endif
  return 0;
}

}  // namespace haste
