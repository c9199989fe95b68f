#include "frameworks/tf/c_api/gpu_kernels.h"

#include "frameworks/tf/abi/tf_abi.h"

namespace haste {
namespace tf {
namespace {

// Whether the CUDA half is installed and the driver runs it.
bool DeviceCodeCanRun(std::string* why) {
  HasteStatus status = {};
  if (haste_cuda_driver_status(&status) == HASTE_OK) return true;
  *why = status.message;
  return false;
}

// Empty if GPU kernels can run.
std::string WhyNot() {
  std::string why;
  if (DeviceCodeCanRun(&why) && RunningAbi() == nullptr) why = AbiError();
  return why;
}

}  // namespace

bool GpuKernelsCanRun(std::string* why) {
  static const std::string* const why_not = new std::string(WhyNot());
  if (why != nullptr) *why = *why_not;
  return why_not->empty();
}

}  // namespace tf
}  // namespace haste

int32_t haste_tf_gpu_kernels(char* why, size_t capacity) {
  std::string text;
  const bool can = haste::tf::GpuKernelsCanRun(&text);
  haste::tf::CopyText(text, why, capacity);
  return can;
}
