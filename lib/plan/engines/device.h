// What cuts depend on of a GPU.
#pragma once

#include <stdint.h>

namespace haste {

constexpr int kMaxCluster = 16;

struct CudaProperties {
  int sm_major = 0, sm_minor = 0;
  int multiprocessors = 0;
  int64_t shared_bytes_per_block = 0;
  int64_t l2_bytes = 0;
  // [blocks]: how many thread-block clusters of this size are resident at once, each block alone on
  // its multiprocessor; 0: none.
  int clusters[kMaxCluster + 1] = {};
  bool has_cublas = false;
};

}  // namespace haste
