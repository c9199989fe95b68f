#include "lib/cuda/driver.h"

namespace haste {
namespace {

int Major(int version) { return version / 1000; }
std::string Text(int version) {
  return std::to_string(Major(version)) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

bool DriverRuns(int driver, int toolkit) { return Major(driver) >= Major(toolkit); }

std::string DriverSentence(int driver, int toolkit) {
  if (driver == 0) {
    return "CUDA: no NVIDIA driver is loaded on this machine (this library was built with CUDA " +
           Text(toolkit) + ")";
  }
  return "CUDA: the NVIDIA driver runs CUDA up to " + Text(driver) +
         ", but this library was built with CUDA " + Text(toolkit) +
         "; update the driver, or build with an older toolkit: make wheel "
         "CUDA_HOME=/path/to/cuda-" +
         std::to_string(Major(driver));
}

}  // namespace haste
