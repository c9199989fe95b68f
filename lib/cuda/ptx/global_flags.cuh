// How blocks of a grid, or of two kernels, pass data through global memory without a barrier: words
// that themselves tell whether they have arrived, and counters.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/patience.cuh"

namespace haste {

// PTX 8.6. HASTE_NEWER_PTXAS: that of the compiler's own is older, but a newer assembler takes it
// where it makes the code itself, that is for 9.0a (tools/cuda/fetch_toolkit.sh).
#if __CUDACC_VER_MAJOR__ >= 13 || (defined(HASTE_NEWER_PTXAS) && defined(__CUDA_ARCH_FEAT_SM90_ALL))
#define HASTE_PTX_HAS_FENCE_RELEASE 1
#else
#define HASTE_PTX_HAS_FENCE_RELEASE 0
#endif

// PTX 8.3. Before, vectors of 4 words: the same instructions, of which PTX promises less.
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 3)
#define HASTE_PTX_HAS_B128 1
#else
#define HASTE_PTX_HAS_B128 0
#endif

// Loads past the first-level cache, not reordered with other accesses to the same address.
HASTE_DEVICE uint4 LoadRelaxed(const uint4* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
HASTE_DEVICE void StoreRelaxed(uint4* to, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
// The same for 16 bytes that arrive all at once: if one word has arrived, all have.
HASTE_DEVICE uint4 LoadWhole(const uint4* from) {
#if HASTE_PTX_HAS_B128
  uint64_t low, high;
  asm volatile(
      "{\n\t.reg .b128 v;\n\t"
      "ld.relaxed.gpu.global.b128 v, [%2];\n\t"
      "mov.b128 {%0, %1}, v;\n\t}"
      : "=l"(low), "=l"(high)
      : "l"(from)
      : "memory");
  return make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                    static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32));
#else
  return LoadRelaxed(from);
#endif
}
HASTE_DEVICE void StoreWhole(uint4* to, uint4 v) {
#if HASTE_PTX_HAS_B128
  asm volatile(
      "{\n\t.reg .b128 v;\n\t"
      "mov.b128 v, {%1, %2};\n\t"
      "st.relaxed.gpu.global.b128 [%0], v;\n\t}" ::"l"(to),
      "l"(static_cast<uint64_t>(v.y) << 32 | v.x), "l"(static_cast<uint64_t>(v.w) << 32 | v.z)
      : "memory");
#else
  StoreRelaxed(to, v);
#endif
}
HASTE_DEVICE void StoreRelaxed(uint2* to, uint2 v) {
  asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y)
               : "memory");
}
HASTE_DEVICE void StoreRelaxed(uint32_t* to, uint32_t v) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

// Whoever sees a later write of this thread, or of a thread after its next barrier, also sees what
// this thread has written so far.
HASTE_DEVICE void FenceRelease() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && HASTE_PTX_HAS_FENCE_RELEASE
  // Leaves the first-level cache as it is.
  asm volatile("fence.release.gpu;" ::: "memory");
#else
  // Empties it, but waits for less than __threadfence, which is sequentially consistent.
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

// Counts a block that has ended a step. Called by all its threads. Whoever sees the count sees what
// they wrote before.
HASTE_DEVICE void CountArrival(uint32_t* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
  }
}
// Counts what this thread, and those it has met at a barrier, have written: for another kernel, or
// for a stream that waits for the count.
HASTE_DEVICE void SignalFlag(uint32_t* counter) {
  __threadfence_system();
  asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
// Waits until `count` are counted, each thread for itself.
HASTE_DEVICE void WaitForFlag(const uint32_t* counter, uint32_t count) {
  Patience patience;
  for (;;) {
    uint32_t seen;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    if (seen >= count) return;
    patience.Poll();
  }
}
// Waits until `count` have arrived, modulo 2^32.
HASTE_DEVICE void WaitForArrivals(const uint32_t* counter, uint32_t count) {
  if (threadIdx.x == 0) {
    Patience patience;
    for (;;) {
      uint32_t seen;
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
      if (static_cast<int32_t>(seen - count) >= 0) break;
      patience.Poll();
    }
  }
  __syncthreads();
}

// A word that has not arrived. No number that is stored has these bits: NaN is stored as another.
constexpr uint32_t kAbsent = 0xFFFFFFFFu;

HASTE_DEVICE bool HasArrived(uint4 v) {
  return v.x != kAbsent && v.y != kAbsent && v.z != kAbsent && v.w != kAbsent;
}

}  // namespace haste
