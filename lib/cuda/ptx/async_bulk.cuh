// Copies into shared memory as the tiles of a scan need them, beside lib/cuda/ptx/async.cuh.
#ifndef HASTE_LIB_CUDA_PTX_ASYNC_BULK_CUH_
#define HASTE_LIB_CUDA_PTX_ASYNC_BULK_CUH_

#include "lib/cuda/ptx/async.cuh"

namespace haste {

// 4, 8 or 16 bytes, both sides aligned to that.
template <int kBytes>
__device__ __forceinline__ void CopyPiece(void* shared, const void* global) {
  if constexpr (kBytes >= 8) {
    CopyAsync<kBytes>(shared, global);
  } else {
    static_assert(kBytes == 4, "the smallest asynchronous copy");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
#else
    *static_cast<uint32_t*>(shared) = *static_cast<const uint32_t*>(global);
#endif
  }
}

// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void WaitForGroups() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_PTX_ASYNC_BULK_CUH_
