#include "lib/cuda/host/cublas.h"

#include <dlfcn.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "lib/cuda/host/relaxed_capture.h"

namespace haste {
namespace {

// As in cuBLAS 12 and 13. Declared here, so that a toolkit without cuBLAS builds this.
constexpr size_t kCublasAlignment = 256;  // of a workspace
enum : int { kSuccess = 0, kAsIs = 0, kTransposed = 1, kDefaultAlgorithm = -1 };
enum DataType : int { kFloat = 0, kDouble = 1, kHalf = 2, kBfloat16 = 14 };
enum ComputeType : int { kComputeFloat = 68, kComputeDouble = 70, kComputeTf32 = 77 };

}  // namespace

struct CublasFunctions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*set_stream)(void* handle, cudaStream_t stream);
  int (*set_math_mode)(void* handle, int mode);
  int (*set_workspace)(void* handle, void* workspace, size_t bytes);
  int (*gemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k,
              const void* alpha, const void* a, int a_type, int lda, long long a_stride,
              const void* b, int b_type, int ldb, long long b_stride, const void* beta, void* c,
              int c_type, int ldc, long long c_stride, int batch, int compute, int algorithm);
};

namespace {

using Functions = CublasFunctions;

template <class Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool FindAll(void* library, Functions* found) {
  return Find(library, "cublasCreate_v2", &found->create) &&
         Find(library, "cublasDestroy_v2", &found->destroy) &&
         Find(library, "cublasSetStream_v2", &found->set_stream) &&
         Find(library, "cublasSetMathMode", &found->set_math_mode) &&
         Find(library, "cublasSetWorkspace_v2", &found->set_workspace) &&
         Find(library, "cublasGemmStridedBatchedEx", &found->gemm);
}

// cuBLAS's error, or 0.
int CreateHandle(const Functions& cublas, void** handle) {
  // Partial sums of split products stay in the compute type.
  constexpr int kNoReducedPrecisionReduction = 16;
  const RelaxedCapture relaxed;
  int code = cublas.create(handle);
  if (code == kSuccess) {
    code = cublas.set_math_mode(*handle, kNoReducedPrecisionReduction);
    if (code != kSuccess) cublas.destroy(*handle);
  }
  cudaGetLastError();
  return code;
}

// Unused handles, by context. A handle costs a few megabytes and milliseconds, so they are kept.
struct Handles {
  std::mutex mutex;
  std::condition_variable given_back;
  std::map<ContextKey, std::vector<void*>> free;
  std::map<ContextKey, int> made;
};

void GiveHandle(const ContextKey& context, void* handle) {
  Handles& handles = OfProcess<Handles>();
  {
    std::lock_guard<std::mutex> lock(handles.mutex);
    handles.free[context].push_back(handle);
  }
  handles.given_back.notify_all();
}

// Paths to try for a library: the loader's, NVIDIA's pip packages next to this one, and the usual
// folder of a toolkit.
std::vector<std::string> PlacesOf(const std::string& name) {
  std::vector<std::string> places = {name};
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&HaveCublas), &here) != 0 && here.dli_fname != nullptr) {
    const std::string path = here.dli_fname;
    const size_t slash = path.rfind('/');
    const std::string packages =
        (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/../nvidia/";
    places.push_back(packages + "cublas/lib/" + name);
    places.push_back(packages + "cu13/lib/" + name);
  }
  places.push_back("/usr/local/cuda/lib64/" + name);
  return places;
}

// Whether the error may be due to a full GPU, for which cuBLAS has several codes. Then a later call
// may succeed.
bool IsForWantOfMemory(int code) {
  constexpr int kNotInitialized = 1, kNoMemory = 3, kInternal = 14;
  constexpr size_t kEnough = size_t{256} << 20;  // for a handle and cuBLAS's code
  if (code == kNoMemory) return true;
  if (code != kNotInitialized && code != kInternal) return false;
  const RelaxedCapture relaxed;
  size_t left = 0, all = 0;
  const bool known = cudaMemGetInfo(&left, &all) == cudaSuccess;
  cudaGetLastError();
  return known && left < kEnough;
}

enum class Found { kYes, kNo, kNoMemory };

// Opens a library that has all functions and runs with this driver. If memory ran out, the library
// stays open, so that the next call finds it immediately.
Found Open(const std::string& place, int flags, const ContextKey& context, Functions* found) {
  void* const library = dlopen(place.c_str(), flags);
  if (library == nullptr) return Found::kNo;
  void* handle = nullptr;
  int code = 0;
  if (FindAll(library, found) && (code = CreateHandle(*found, &handle)) == kSuccess) {
    {
      Handles& handles = OfProcess<Handles>();
      std::lock_guard<std::mutex> lock(handles.mutex);
      ++handles.made[context];
    }
    GiveHandle(context, handle);
    return Found::kYes;
  }
  if (IsForWantOfMemory(code)) return Found::kNoMemory;
  dlclose(library);
  return Found::kNo;
}

// The cuBLAS that the process has loaded, or else the newest installed one.
Found OpenAny(const ContextKey& context, Functions* found) {
  const char* const names[] = {"libcublas.so.13", "libcublas.so.12"};
  for (const char* name : names) {
    const Found here = Open(name, RTLD_LAZY | RTLD_NOLOAD, context, found);
    if (here != Found::kNo) return here;
  }
  for (const char* name : names) {
    for (const std::string& place : PlacesOf(name)) {
      const Found here = Open(place, RTLD_LAZY, context, found);
      if (here != Found::kNo) return here;
    }
  }
  return Found::kNo;
}

// nullptr if there is no cuBLAS (permanently) or not enough memory (for now).
const Functions* GetFunctions(const ContextKey& context) {
  static std::mutex mutex;
  static Found found = Found::kNoMemory;
  static Functions functions;
  std::lock_guard<std::mutex> lock(mutex);
  if (found == Found::kNoMemory) found = OpenAny(context, &functions);
  return found == Found::kYes ? &functions : nullptr;
}

// cuBLAS's error, or 0. If there is no memory for another handle, waits for an existing one: calls
// hold them only while they launch.
int TakeHandle(const Functions& cublas, const ContextKey& context, void** handle) {
  Handles& handles = OfProcess<Handles>();
  std::unique_lock<std::mutex> lock(handles.mutex);
  std::vector<void*>& free = handles.free[context];
  if (free.empty()) {
    const int code = CreateHandle(cublas, handle);
    if (code == kSuccess) {
      ++handles.made[context];
      return code;
    }
    if (handles.made[context] == 0) return code;
    handles.given_back.wait(lock, [&] { return !free.empty(); });
  }
  *handle = free.back();
  free.pop_back();
  return kSuccess;
}

int TypeOf(int32_t dtype) {
  switch (dtype) {
    case HASTE_FLOAT64: return kDouble;
    case HASTE_FLOAT16: return kHalf;
    case HASTE_BFLOAT16: return kBfloat16;
    default: return kFloat;
  }
}

int32_t Failure(int code, const char* call, HasteStatus* status) {
  return SetStatus(status, HASTE_INTERNAL, "%s (cuBLAS) failed with status %d", call, code);
}

}  // namespace

bool HaveCublas() {
  ContextKey context;
  HasteStatus ignored = {};
  if (GetContext(&context, &ignored) != HASTE_OK) return false;
  const Functions* const cublas = GetFunctions(context);
  if (cublas == nullptr) return false;
  static std::mutex mutex;
  static std::map<ContextKey, bool> have;
  std::lock_guard<std::mutex> lock(mutex);
  const auto known = have.find(context);
  if (known != have.end()) return known->second;
  void* handle = nullptr;
  const int code = TakeHandle(*cublas, context, &handle);
  if (code == kSuccess) GiveHandle(context, handle);
  if (code == kSuccess || !IsForWantOfMemory(code)) have[context] = code == kSuccess;
  return code == kSuccess;
}

bool HaveCublasFor(int32_t dtype) {
  int device = 0, major = 0;
  if (dtype == HASTE_BFLOAT16 &&
      (cudaGetDevice(&device) != cudaSuccess ||
       cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
       major < 8)) {
    return false;
  }
  return HaveCublas();
}

CublasCall::~CublasCall() {
  if (handle_ != nullptr) GiveHandle(context_, handle_);
}

int32_t CublasCall::Begin(const HasteExecutor& executor, void* workspace, size_t bytes,
                          HasteStatus* status) {
  HASTE_TRY(GetContext(&context_, status));
  cublas_ = GetFunctions(context_);
  if (cublas_ == nullptr) {
    return SetStatus(
        status, HASTE_UNIMPLEMENTED,
        "cuBLAS: neither libcublas.so.13 nor libcublas.so.12 was found that can start here");
  }
  int code = TakeHandle(*cublas_, context_, &handle_);
  if (code != kSuccess) {
    handle_ = nullptr;
    return Failure(code, "cublasCreate", status);
  }
  code = cublas_->set_stream(handle_, static_cast<cudaStream_t>(executor.stream));
  if (code != kSuccess) return Failure(code, "cublasSetStream", status);
  if (workspace == nullptr) return HASTE_OK;
  const size_t past = reinterpret_cast<uintptr_t>(workspace) % kCublasAlignment;
  const size_t skipped = past == 0 ? 0 : kCublasAlignment - past;
  code = cublas_->set_workspace(handle_, static_cast<char*>(workspace) + skipped, bytes - skipped);
  return code == kSuccess ? HASTE_OK : Failure(code, "cublasSetWorkspace", status);
}

int32_t CublasCall::Multiply(const CublasProduct& p, HasteStatus* status) const {
  const bool is_double = p.dtype == HASTE_FLOAT64;
  const float factors[] = {0, 1};
  const double double_factors[] = {0, 1};
  const auto factor = [&](bool one) {
    return is_double ? static_cast<const void*>(double_factors + one) : factors + one;
  };
  const int compute = is_double                                  ? kComputeDouble
                      : p.dtype == HASTE_FLOAT32 && p.allow_tf32 ? kComputeTf32
                                                                 : kComputeFloat;
  const int type = TypeOf(p.dtype);
  // cuBLAS counts along columns: it makes cᵀ = bᵀ·aᵀ.
  const int code = cublas_->gemm(
      handle_, p.b.along_rows ? kAsIs : kTransposed, p.a.along_rows ? kAsIs : kTransposed,
      static_cast<int>(p.columns), static_cast<int>(p.rows), static_cast<int>(p.depth),
      factor(true), p.b.data, type, static_cast<int>(p.b.stride), p.b.batch_stride, p.a.data, type,
      static_cast<int>(p.a.stride), p.a.batch_stride, factor(p.adds), p.c, TypeOf(p.c_dtype),
      static_cast<int>(p.c_stride), p.c_batch_stride, static_cast<int>(p.batch), compute,
      kDefaultAlgorithm);
  return code == kSuccess ? HASTE_OK : Failure(code, "cublasGemmStridedBatchedEx", status);
}

}  // namespace haste
