// Whether XLA compiles the ops in this process.
#ifndef HASTE_FRAMEWORKS_TF_XLA_XLA_KERNELS_H_
#define HASTE_FRAMEWORKS_TF_XLA_XLA_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"

extern "C" {
// 1 if XLA compiles the ops on `device`, a HasteDevice. Otherwise 0, and `why` says why not.
HASTE_API int32_t haste_tf_xla(int32_t device, char* why, size_t capacity);
}

#endif  // HASTE_FRAMEWORKS_TF_XLA_XLA_KERNELS_H_
