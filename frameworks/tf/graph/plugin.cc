#include "frameworks/tf/graph/plugin.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/tf/abi/tf_abi.h"
#include "frameworks/tf/c_api/gpu_kernels.h"
#include "frameworks/tf/graph/rewrite.h"
#include "frameworks/tf/graph/tag.h"
#include "tensorflow/c/experimental/grappler/grappler.h"

namespace haste {
namespace tf {
namespace {

// An optimizer is registered for one type of device, and runs on the graphs that have a node there.
constexpr const char* kDevices[] = {"CPU", "GPU"};
constexpr int kDeviceCount = 2;

struct Plugin {
  std::atomic<int> registered{0};  // the first so many of kDevices
  std::atomic<int64_t> calls{0};   // that became ops
  std::string why_not;
};

Plugin& ThePlugin() {
  static Plugin* const plugin = new Plugin;  // outlives TensorFlow's threads
  return *plugin;
}

void ReportOnce(const Rewritten& rewritten) {
  static std::atomic<bool> said{false};
  if (rewritten.problem.empty() || said.exchange(true)) return;
  fprintf(stderr, "haste_keras %s: a portable model, or a part of it, runs as stock ops: ",
          haste_version());
  if (rewritten.unknown) {
    fprintf(stderr, "it has %s, which this version does not know (it reads tags of version %d)\n",
            rewritten.problem.c_str(), kTagVersion);
  } else {
    fprintf(stderr, "%s\n", rewritten.problem.c_str());
  }
}

void FreeGraph(void* data, size_t) { free(data); }

void Optimize(void*, const TF_Buffer* graph, const TF_GrapplerItem*, TF_Buffer* result,
              TF_Status* status) {
  const std::string_view bytes(static_cast<const char*>(graph->data), graph->length);
  const Rewritten rewritten = RewriteGraph(bytes, RegisteredOps(), GpuKernelsCanRun(nullptr));
  ReportOnce(rewritten);
  void* copy = rewritten.calls > 0 ? malloc(rewritten.graph.size()) : nullptr;
  if (copy == nullptr) {
    // To Grappler this code says that the graph stays as it is; it is no error.
    TF_SetStatus(status, TF_ABORTED, "nothing to do");
    return;
  }
  memcpy(copy, rewritten.graph.data(), rewritten.graph.size());
  result->data = copy;
  result->length = rewritten.graph.size();
  result->data_deallocator = FreeGraph;
  ThePlugin().calls += rewritten.calls;
  TF_SetStatus(status, TF_OK, "");
}

// TensorFlow wants the two, or neither; there is no state.
void* Create() { return &ThePlugin(); }
void Destroy(void*) {}

void Describe(const char* device, TP_OptimizerRegistrationParams* params) {
  params->struct_size = TP_OPTIMIZER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->device_type = device;
  // All of TensorFlow's own optimizers stay as they are.
  params->optimizer_configs->struct_size = TP_OPTIMIZER_CONFIGS_STRUCT_SIZE;
  params->optimizer->struct_size = TP_OPTIMIZER_STRUCT_SIZE;
  params->optimizer->create_func = Create;
  params->optimizer->optimize_func = Optimize;
  params->optimizer->destroy_func = Destroy;
}

// Registers for the next type of device.
void RegisterNext(TP_OptimizerRegistrationParams* params, TF_Status* status) {
  Describe(kDevices[ThePlugin().registered++], params);
  TF_SetStatus(status, TF_OK, "");
}

int AddName(dl_phdr_info* info, size_t, void* names) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0') {
    static_cast<std::vector<std::string>*>(names)->push_back(info->dlpi_name);
  }
  return 0;
}

// A library, other than this one, that has a graph optimizer, or is a copy of this one; empty if
// there is none. A second optimizer for the same type of device ends the process.
std::string OtherOptimizer() {
  std::vector<std::string> names;
  dl_iterate_phdr(AddName, &names);
  Dl_info us, found;
  if (dladdr(reinterpret_cast<void*>(&AddName), &us) == 0) return "";
  for (const std::string& name : names) {
    void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    for (const char* symbol : {"TF_InitGraph", "haste_tf_graph_plugin"}) {
      const void* address = dlsym(library, symbol);  // of the library or of what it needs
      if (address == nullptr || dladdr(address, &found) == 0) continue;
      if (found.dli_fbase == us.dli_fbase) continue;
      dlclose(library);
      return found.dli_fname;
    }
    dlclose(library);
  }
  return "";
}

// tensorflow::grappler::InitGraphPlugin(TF_InitGraph*). It returns a status, which is an object of
// one pointer: only its size and that it is no trivial type matter to the call.
struct OpaqueStatus {
  uintptr_t representation = 0;
  ~OpaqueStatus() {}  // never freed; only an error has something to free
};
using InitGraphPlugin = OpaqueStatus (*)(void (*)(TP_OptimizerRegistrationParams*, TF_Status*));
constexpr const char* kInitGraphPlugin[] = {
    "_ZN10tensorflow8grappler15InitGraphPluginEPFvP30TP_OptimizerRegistrationParamsP10TSL_StatusE",
    "_ZN10tensorflow8grappler15InitGraphPluginEPFvP30TP_OptimizerRegistrationParamsP9TF_StatusE",
};

bool RegisterPlugin() {
  Plugin& plugin = ThePlugin();
  const char* wanted = getenv("HASTE_GRAPH_PLUGIN");
  if (wanted != nullptr && strcmp(wanted, "0") == 0) {
    plugin.why_not = "HASTE_GRAPH_PLUGIN is 0";
    return false;
  }
  const std::string other = OtherOptimizer();
  if (!other.empty()) {
    plugin.why_not = "another library has a graph optimizer: " + other;
    return false;
  }
  void* init = nullptr;
  for (const char* name : kInitGraphPlugin) init = init == nullptr ? TensorFlowSymbol(name) : init;
  if (init == nullptr) {
    plugin.why_not = "this TensorFlow does not take graph optimizers from a library of ops";
    return false;
  }
  for (int i = 0; i < kDeviceCount; ++i) {
    reinterpret_cast<InitGraphPlugin>(init)(RegisterNext);
  }
  return true;
}

const bool registered = RegisterPlugin();

}  // namespace
}  // namespace tf
}  // namespace haste

int32_t haste_tf_graph_plugin(char* text, size_t capacity) {
  const haste::tf::Plugin& plugin = haste::tf::ThePlugin();
  haste::tf::CopyText(plugin.why_not, text, capacity);
  return plugin.registered > 0;
}

int64_t haste_tf_graph_calls(void) { return haste::tf::ThePlugin().calls; }
