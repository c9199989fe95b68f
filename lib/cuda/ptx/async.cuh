// Memory traffic that needs no registers: prefetches, and copies into shared memory (sm_80+). Also
// the overlap of a kernel's prologue with the end of the previous kernel (sm_90+). Older GPUs do
// the same work in order.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/assembly.cuh"

namespace haste {

HASTE_DEVICE void PrefetchL2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// 4, 8 or 16 bytes, both sides aligned to that.
template <int kBytes>
HASTE_DEVICE void CopyAsync(void* shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "what cp.async copies");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
#else
  if constexpr (kBytes == 16) {
    *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
  } else if constexpr (kBytes == 8) {
    *static_cast<uint2*>(shared) = *static_cast<const uint2*>(global);
  } else {
    *static_cast<uint32_t*>(shared) = *static_cast<const uint32_t*>(global);
  }
#endif
}

// Commits a group of this thread's copies. Groups complete in order.
HASTE_DEVICE void CommitCopies() { HASTE_ASM_80("cp.async.commit_group;" :: : "memory"); }

// Waits until at most `pending` (0 to 2) of this thread's groups are in flight.
HASTE_DEVICE void WaitCopies(int pending) {
  if (pending >= 2) {
    HASTE_ASM_80("cp.async.wait_group 2;" :: : "memory");
  } else if (pending == 1) {
    HASTE_ASM_80("cp.async.wait_group 1;" :: : "memory");
  } else {
    HASTE_ASM_80("cp.async.wait_group 0;" :: : "memory");
  }
}

// Waits until at most kPending of this thread's groups are in flight.
template <int kPending>
HASTE_DEVICE void WaitForGroups() {
  HASTE_ASM_80("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Called by all threads of a warpgroup (sm_90a): gives registers of a thread back, or takes some
// that were given back.
template <int kRegisters>
HASTE_DEVICE void DeallocateRegisters() {
  HASTE_ASM_90A("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
HASTE_DEVICE void AllocateRegisters() {
  HASTE_ASM_90A("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// After this, everything that earlier kernels of the stream have written is visible.
HASTE_DEVICE void WaitForPreviousKernel() { HASTE_ASM_90("griddepcontrol.wait;" :: : "memory"); }

// Lets the next kernel start its prologue, which reads nothing that this one writes. Call it after
// WaitForPreviousKernel, so that no more than two kernels of a stream run at once.
HASTE_DEVICE void LetNextKernelStart() {
  HASTE_ASM_90("griddepcontrol.launch_dependents;" :: : "memory");
}

}  // namespace haste
