// Flags in global memory: how many steps a block has ended.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/device_code.cuh"

namespace haste {

// Called by one thread. Whoever sees the flag sees what this thread, and those it has met at a
// barrier, wrote before.
HASTE_DEVICE void SetEnded(uint32_t* flag, int64_t steps) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(static_cast<uint32_t>(steps))
               : "memory");
}
HASTE_DEVICE bool HasEnded(const uint32_t* flag, int64_t steps) {
  uint32_t ended;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(ended) : "l"(flag) : "memory");
  return static_cast<int32_t>(ended - static_cast<uint32_t>(steps)) >= 0;
}

}  // namespace haste
