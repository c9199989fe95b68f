// Whether the ops have GPU kernels in this process.
#ifndef HASTE_FRAMEWORKS_TF_C_API_GPU_KERNELS_H_
#define HASTE_FRAMEWORKS_TF_C_API_GPU_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#include <string>

#include "haste/c_api.h"

namespace haste {
namespace tf {

// Whether GPU kernels can run here. If not, *why (may be null) says in a sentence what is missing,
// and they are not registered: TensorFlow then places the ops on the CPU. The answer does not
// change during the process.
bool GpuKernelsCanRun(std::string* why);

}  // namespace tf
}  // namespace haste

extern "C" {
// 1 if the ops' GPU kernels are registered. Otherwise 0, and `why` says why not.
HASTE_API int32_t haste_tf_gpu_kernels(char* why, size_t capacity);
}

#endif  // HASTE_FRAMEWORKS_TF_C_API_GPU_KERNELS_H_
