#include "frameworks/tf/shim_loader.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <mutex>

// The shim itself, where it is linked into the program (:haste_ops_serving); null elsewhere.
extern "C" {
__attribute__((weak)) void* haste_tf_cuda_stream(void* op_kernel_context);
__attribute__((weak)) int haste_tf_num_threads(void* op_kernel_context);
__attribute__((weak)) void* haste_tf_pool(void* op_kernel_context);
__attribute__((weak)) void haste_tf_schedule(void* pool, void (*fn)(void*), void* arg);
}

namespace haste {
namespace tf {
namespace {

struct Loaded {
  std::atomic<const Shim*> shim{nullptr};
  std::atomic<bool> refused{false};  // haste_tf_set_shim has told its caller
  std::once_flag searched;
  std::mutex mutex;  // guards error
  std::string error;
};

Loaded& State() {
  static Loaded* const state = new Loaded;  // outlives the threads of TensorFlow
  return *state;
}

// A symbol of TensorFlow that its C API does not put in the library that op libraries link to.
void* TensorFlowSymbol(const char* name) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  for (const char* library : {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"}) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* symbol = dlsym(handle, name);
    dlclose(handle);
    if (symbol != nullptr) return symbol;
  }
  return nullptr;
}

// "2.21.0", or "" in a program that hides it.
std::string TensorFlowVersion() {
  auto version = reinterpret_cast<const char* (*)()>(TensorFlowSymbol("TF_Version"));
  return version == nullptr ? "" : version();
}

template <class Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// nullptr, with a sentence in *error.
const Shim* Load(const std::string& path, std::string* error) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *error = dlerror();
    return nullptr;
  }
  Shim shim;
  if (!Find(library, "haste_tf_cuda_stream", &shim.cuda_stream) ||
      !Find(library, "haste_tf_num_threads", &shim.num_threads) ||
      !Find(library, "haste_tf_pool", &shim.pool) ||
      !Find(library, "haste_tf_schedule", &shim.schedule)) {
    *error = path + " is not a shim of haste_keras: " + dlerror();
    dlclose(library);
    return nullptr;
  }
  return new Shim(shim);  // for as long as the process lives, like the library
}

std::string DefaultPath() {
  if (const char* path = getenv("HASTE_TF_SHIM")) return path;
  std::string version = TensorFlowVersion();  // "2.21.0" -> "2_21"
  version = version.substr(0, version.find('.', version.find('.') + 1));
  for (char& c : version) {
    if (c == '.') c = '_';
  }
  Dl_info info;
  std::string folder = ".";
  if (dladdr(reinterpret_cast<void*>(&haste_tf_set_shim), &info) != 0) {
    const std::string file = info.dli_fname;
    const size_t slash = file.rfind('/');
    if (slash != std::string::npos) folder = file.substr(0, slash);
  }
  return folder + "/shims/libhaste_shim_" + version + ".so";
}

bool Use(const std::string& path) {
  std::string error;
  const Shim* shim = Load(path, &error);
  Loaded& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.error = error;
  if (shim != nullptr) state.shim.store(shim, std::memory_order_release);
  return shim != nullptr;
}

}  // namespace

const Shim* GetShim() {
  static const Shim linked = {haste_tf_cuda_stream, haste_tf_num_threads, haste_tf_pool,
                              haste_tf_schedule};
  if (linked.schedule != nullptr) return &linked;
  Loaded& state = State();
  if (const Shim* shim = state.shim.load(std::memory_order_acquire)) return shim;
  std::call_once(state.searched, [] { Use(DefaultPath()); });
  return state.shim.load(std::memory_order_acquire);
}

std::string ShimError() {
  const std::string version = TensorFlowVersion();
  Loaded& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (version.empty()) {
    return "haste_keras cannot tell which TensorFlow this program has (" + state.error +
           "); set HASTE_TF_SHIM to the path of the shim for it";
  }
  return "haste_keras has no shim for TensorFlow " + version + " (" + state.error +
         "); `make wheel TF_VERSIONS=" + version + "` builds it";
}

void WarnOfMissingShim() {
  static const bool warned = [] {
    if (State().refused.load(std::memory_order_relaxed)) return false;
    fprintf(stderr, "%s. Until then CPU ops run on threads of their own.\n", ShimError().c_str());
    return true;
  }();
  (void)warned;
}

}  // namespace tf
}  // namespace haste

int haste_tf_set_shim(const char* path) {
  const bool used = haste::tf::Use(path);
  if (!used) haste::tf::State().refused.store(true, std::memory_order_relaxed);
  return used ? 0 : 1;
}

const char* haste_tf_shim_error(void) {
  thread_local std::string error;
  haste::tf::Loaded& state = haste::tf::State();
  std::lock_guard<std::mutex> lock(state.mutex);
  error = state.error;
  return error.c_str();
}
