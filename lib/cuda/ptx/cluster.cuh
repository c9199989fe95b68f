// Thread-block clusters (sm_90+): the barrier of all blocks, and stores into another block's shared
// memory that its mbarrier counts. On older architectures the functions do nothing.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/assembly.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"

namespace haste {

// All threads of all blocks of the cluster; what was written before is visible after.
HASTE_DEVICE void ClusterSync() {
  HASTE_ASM_90(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" :: : "memory");
}

// Where block `rank` of the cluster has what this block has at `shared`.
HASTE_DEVICE uint32_t AddressIn(uint32_t shared, uint32_t rank) {
  uint32_t there = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
#endif
  return there;
}

// Sends 16 bytes to another block's shared memory, counted there. Both addresses are from
// AddressIn.
HASTE_DEVICE void Push(uint32_t to, uint4 v, uint32_t counter) {
  HASTE_ASM_90(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(counter) : "memory");
}

// The same for 8 bytes.
HASTE_DEVICE void Push(uint32_t to, float2 v, uint32_t counter) {
  HASTE_ASM_90(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(v.x), "f"(v.y), "r"(counter) : "memory");
}

}  // namespace haste
