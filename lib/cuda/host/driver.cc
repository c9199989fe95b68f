#include "lib/cuda/host/driver.h"

#include <dlfcn.h>

namespace haste {
namespace {

int Major(int version) { return version / 1000; }
std::string Text(int version) {
  return std::to_string(Major(version)) + "." + std::to_string(version % 1000 / 10);
}

// The series of NVIDIA's Linux drivers that first ran a major version of CUDA.
std::string OldestDriver(int toolkit) {
  switch (Major(toolkit)) {
    case 11: return "450";
    case 12: return "525";
    case 13: return "580";
    default: return "that runs CUDA " + std::to_string(Major(toolkit)) + ".0";
  }
}

}  // namespace

int DriverVersion() {
  static const int version = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // not closed: CUDA uses it too
    if (driver == nullptr) return 0;
    const auto get = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
    int version = 0;
    return get != nullptr && get(&version) == 0 ? version : 0;
  }();
  return version;
}

bool DriverRuns(int driver, int toolkit) { return Major(driver) >= Major(toolkit); }

std::string DriverSentence(int driver, int toolkit) {
  if (driver == 0) {
    return "CUDA: no NVIDIA driver is loaded on this machine (this library was built with CUDA " +
           Text(toolkit) + ")";
  }
  return "CUDA: the NVIDIA driver runs CUDA up to " + Text(driver) +
         ", but this library was built with CUDA " + Text(toolkit) + ", which needs driver " +
         OldestDriver(toolkit) +
         " or newer; update the driver, or install a build of haste-keras-cuda for it (make wheel "
         "CUDA_HOME=/path/to/cuda-" +
         std::to_string(Major(driver)) + ")";
}

}  // namespace haste
