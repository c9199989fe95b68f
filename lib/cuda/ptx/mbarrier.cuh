// mbarrier (sm_90+): threads and bytes that arrive in shared memory. On older architectures the
// functions do nothing; kernels that call them are not launched there.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/assembly.cuh"

namespace haste {

HASTE_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Counts bytes as they arrive, or threads. Used again and again: `parity` of its n-th use is n & 1.
class TransactionBarrier {
 public:
  // Called by one thread, before a ClusterSync, or a __syncthreads if only this block waits.
  // arrivals: of a use, including that of ArriveAndExpect.
  HASTE_DEVICE void Init(uint32_t arrivals = 1) {
    Set(arrivals);
    FenceInit();
  }
  template <int kCount>
  static HASTE_DEVICE void Init(TransactionBarrier (&counters)[kCount], uint32_t arrivals) {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) counters[i].Set(arrivals);
    FenceInit();
  }
  // Called by one thread for each use. Bytes may have arrived before.
  HASTE_DEVICE void ArriveAndExpect(uint32_t bytes) {
    HASTE_ASM_90("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(SharedAddress(&state_)),
                 "r"(bytes) : "memory");
  }
  HASTE_DEVICE void Arrive() {
    HASTE_ASM_90("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(SharedAddress(&state_)) : "memory");
  }
  // The same, of the counter that block `rank` of the cluster has here.
  HASTE_DEVICE void ArriveIn(uint32_t rank) {
    HASTE_ASM_90(
        "{\n\t.reg .b32 there;\n\t"
        "mapa.shared::cluster.u32 there, %0, %1;\n\t"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(SharedAddress(&state_)),
        "r"(rank) : "memory");
  }
  // Called by every thread that reads what has arrived.
  HASTE_DEVICE void Wait(uint32_t parity) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n\t.reg .pred p;\n\t"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, p;\n\t}"
          : "=r"(done)
          : "r"(SharedAddress(&state_)), "r"(parity)
          : "memory");
    }
#endif
  }

 private:
  HASTE_DEVICE void Set(uint32_t arrivals) {
    HASTE_ASM_90("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(&state_)),
                 "r"(arrivals) : "memory");
  }
  static HASTE_DEVICE void FenceInit() {
    HASTE_ASM_90("fence.mbarrier_init.release.cluster;" :: : "memory");
  }

  uint64_t state_;
};

}  // namespace haste
