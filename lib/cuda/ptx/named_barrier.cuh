// Named barriers of a block: some of its warps synchronize, which may be at different places of the
// code. Names are 1 to 15, as 0 is that of __syncthreads. The number of threads of all these warps
// is a multiple of 32. Constants are template arguments, because otherwise each takes a register.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/device_code.cuh"

namespace haste {

template <int kName, int kThreads>
HASTE_DEVICE void NamedBarrierSync() {
  asm volatile("barrier.sync %0, %1;" ::"n"(kName), "n"(kThreads) : "memory");
}
template <int kThreads>
HASTE_DEVICE void NamedBarrierSync(uint32_t name) {
  asm volatile("barrier.sync %0, %1;" ::"r"(name), "n"(kThreads) : "memory");
}
template <int kName>
HASTE_DEVICE void NamedBarrierSyncOf(uint32_t threads) {
  asm volatile("barrier.sync %0, %1;" ::"n"(kName), "r"(threads) : "memory");
}

// For places that all threads of a warp reach together.
template <int kName, int kThreads>
HASTE_DEVICE void NamedBarrierSyncAligned() {
  asm volatile("bar.sync %0, %1;" ::"n"(kName), "n"(kThreads) : "memory");
}

// Counts this thread as arrived, and does not wait.
template <int kThreads>
HASTE_DEVICE void NamedBarrierArrive(uint32_t name) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(name), "n"(kThreads) : "memory");
}

}  // namespace haste
