// Flags in global memory, each of one warp: how many steps it has ended.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/device_code.cuh"

namespace haste {

// Called by one lane after a barrier of its warp. Whoever sees the flag sees what the warp wrote.
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
