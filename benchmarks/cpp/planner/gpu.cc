#include "benchmarks/cpp/planner/gpu.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace benchmark {
namespace {

constexpr int kNotReady = 600;
constexpr double kPatience = 5;  // seconds
constexpr unsigned kDefaultEvent = 0, kNonBlockingStream = 1;

// Nanoseconds and clocks of 0.1 ms.
constexpr char kClockKernel[] = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .entry clock_rate(.param .u64 to) {
  .reg .pred %p;
  .reg .u64 %to, %begin, %end, %now, %first, %last;
  ld.param.u64 %to, [to];
  cvta.to.global.u64 %to, %to;
  mov.u64 %begin, %globaltimer;
  mov.u64 %first, %clock64;
  add.u64 %end, %begin, 100000;
again:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %p, %now, %end;
  @%p bra again;
  mov.u64 %last, %clock64;
  sub.u64 %now, %now, %begin;
  sub.u64 %last, %last, %first;
  st.global.u64 [%to], %now;
  st.global.u64 [%to+8], %last;
  ret;
}
)";

// Calls a function of the driver; its name there may have a version.
template <class... Args>
int Ask(const char* name, Args... args) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) Fail("no NVIDIA driver");
  const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(driver, name));
  if (function == nullptr) Fail(std::string("the driver has no ") + name);
  return function(args...);
}
template <class... Args>
void Call(const char* name, Args... args) {
  const int code = Ask(name, args...);
  if (code != 0) Fail(std::string(name) + " failed with " + std::to_string(code));
}

}  // namespace

void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

Gpu::Gpu() {
  int device = 0;
  void* context = nullptr;
  Call("cuInit", 0u);
  Call("cuCtxGetCurrent", &context);
  if (context == nullptr) {
    Call("cuDeviceGet", &device, 0);
    Call("cuDevicePrimaryCtxRetain", &context, device);
    Call("cuCtxSetCurrent", context);
  }
  Call("cuCtxGetDevice", &device);
  char name[100] = {};
  Call("cuDeviceGetName", &name[0], static_cast<int>(sizeof name), device);
  name_ = name;
  void* module = nullptr;
  Call("cuModuleLoadData", &module, static_cast<const void*>(kClockKernel));
  Call("cuModuleGetFunction", &clock_kernel_, module, "clock_rate");
  Call("cuMemAlloc_v2", &clocks_, 2 * sizeof(uint64_t));
  Call("cuStreamCreate", &stream_, kNonBlockingStream);
  Call("cuEventCreate", &start_, kDefaultEvent);
  Call("cuEventCreate", &stop_, kDefaultEvent);
}

void Gpu::Upload(void* to, const void* from, size_t bytes) const {
  Call("cuMemcpyHtoD_v2", to, from, bytes);
}

void Gpu::Download(void* to, const void* from, size_t bytes) const {
  Call("cuMemcpyDtoH_v2", to, from, bytes);
}

void Gpu::KeepBusy() const {
  void* to = clocks_;
  void* arguments[] = {&to};
  Call("cuLaunchKernel", clock_kernel_, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream_, &arguments[0],
       static_cast<void**>(nullptr));
}

void Gpu::Start() const { Call("cuEventRecord", start_, stream_); }

double Gpu::MicrosecondsSinceStart() const {
  Call("cuEventRecord", stop_, stream_);
  const auto begin = std::chrono::steady_clock::now();
  int code;
  while ((code = Ask("cuEventQuery", stop_)) == kNotReady) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <
        kPatience) {
      continue;
    }
    return -1;
  }
  if (code != 0) Fail("the GPU failed with " + std::to_string(code));
  float milliseconds = 0;
  Call("cuEventElapsedTime", &milliseconds, start_, stop_);
  return 1e3 * milliseconds;
}

double Gpu::Megahertz() const {
  KeepBusy();
  Call("cuStreamSynchronize", stream_);
  uint64_t clocks[2] = {};
  Call("cuMemcpyDtoH_v2", static_cast<void*>(clocks), static_cast<const void*>(clocks_),
       sizeof clocks);
  return 1e3 * static_cast<double>(clocks[1]) / static_cast<double>(clocks[0]);
}

}  // namespace benchmark
