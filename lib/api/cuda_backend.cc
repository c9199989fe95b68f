#include "lib/engine/cuda_backend.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

// Where the CUDA half is linked in; null elsewhere.
extern "C" __attribute__((weak)) const haste::CudaBackend* haste_cuda_backend(void);

namespace haste {
namespace {

constexpr char kLibrary[] = "libhaste_cuda.so";
constexpr char kVariable[] = "HASTE_CUDA_LIBRARY";

struct State {
  std::atomic<const CudaBackend*> backend{nullptr};
  std::mutex mutex;  // guards the rest
  bool searched = false;
  std::string path, why;
};

State& TheState() {
  static State* const state = new State;  // outlives threads that end after main
  return *state;
}

// The folder of the library or program that this code is in.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&haste_version), &info) == 0) return ".";
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

std::string Refusal(const std::string& where, const CudaBackend* backend) {
  if (backend == nullptr) return where + " is not the CUDA half of haste";
  if (strcmp(backend->version, HASTE_VERSION) != 0) {
    return where + " is of haste " + backend->version + ", but this is haste " HASTE_VERSION +
           ": install haste-keras-cuda " HASTE_VERSION;
  }
  if (backend->table_bytes != sizeof(CudaBackend)) {
    return where + " is of another build of haste " HASTE_VERSION ": build both halves together";
  }
  return "";
}

// Guarded by the state's mutex, as are those below.
bool Use(const std::string& path, const CudaBackend* backend, State* state) {
  state->why = Refusal(path.empty() ? "the linked CUDA half" : path, backend);
  if (!state->why.empty()) return false;
  state->path = path;
  state->backend.store(backend, std::memory_order_release);
  return true;
}

bool Open(const std::string& path, State* state) {
  // Never closed, also if it is refused: device code is registered for the life of the process.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    state->why = dlerror();
    return false;
  }
  using Function = const CudaBackend* (*)();
  const auto function = reinterpret_cast<Function>(dlsym(library, "haste_cuda_backend"));
  return Use(path, function == nullptr ? nullptr : function(), state);
}

// The first of the places that has one.
void Search(State* state) {
  if (haste_cuda_backend != nullptr) {
    Use("", haste_cuda_backend(), state);
    return;
  }
  if (const char* named = getenv(kVariable)) {
    if (*named != '\0') {
      Open(named, state);
    } else {
      state->why = std::string(kVariable) + " is empty, which leaves the CUDA half out";
    }
    return;
  }
  const std::string folder = OwnFolder();
  for (const char* place : {"/", "/../haste_keras_cuda/"}) {
    const std::string path = folder + place + kLibrary;
    if (access(path.c_str(), F_OK) != 0) continue;
    Open(path, state);
    return;
  }
  state->why =
      "the CUDA half of haste is not installed: `pip install haste-keras-cuda==" HASTE_VERSION
      "`, or set " +
      std::string(kVariable) + " to the path of " + kLibrary;
}

}  // namespace

int32_t LoadCudaBackend(const char* path, HasteStatus* status) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (state.backend.load(std::memory_order_relaxed) != nullptr) {
    if (state.path == path) return HASTE_OK;
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "path: expected a call before the CUDA half is in use, got %s, but %s is",
                     path, state.path.empty() ? "one that is linked in" : state.path.c_str());
  }
  state.searched = true;
  if (Open(path, &state)) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT, "path: %s", state.why.c_str());
}

const CudaBackend* FindCudaBackend(std::string* why) {
  State& state = TheState();
  const CudaBackend* backend = state.backend.load(std::memory_order_acquire);
  if (backend != nullptr) return backend;
  std::lock_guard<std::mutex> lock(state.mutex);
  if (!state.searched) {
    state.searched = true;
    Search(&state);
  }
  if (why != nullptr) *why = state.why;
  return state.backend.load(std::memory_order_relaxed);
}

std::string CudaBackendPath() {
  FindCudaBackend();
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.path;
}

}  // namespace haste
