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
// Of four neighbours, at a multiple of 16 bytes: whether their warps have ended so many steps.
HASTE_DEVICE bool HaveEnded(const uint32_t* flags, int64_t steps) {
  uint32_t ended[4];
  asm volatile("ld.acquire.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(ended[0]), "=r"(ended[1]), "=r"(ended[2]), "=r"(ended[3])
               : "l"(flags)
               : "memory");
  bool all = true;
  HASTE_UNROLL for (int i = 0; i < 4; ++i) {
    all &= static_cast<int32_t>(ended[i] - static_cast<uint32_t>(steps)) >= 0;
  }
  return all;
}

}  // namespace haste
