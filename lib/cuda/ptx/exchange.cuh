// How the blocks of a persistent kernel hand each other what every step makes, without a barrier.
//
// In a thread-block cluster (sm_90+): stores into the other blocks' shared memory that count
// themselves on the receiver's mbarrier. Over the whole GPU: words of global memory that say
// themselves that they have arrived, so that nothing but the data travels.
#ifndef HASTE_LIB_CUDA_PTX_EXCHANGE_CUH_
#define HASTE_LIB_CUDA_PTX_EXCHANGE_CUH_

#include <stdint.h>

#include "lib/cuda/ptx/patience.cuh"

namespace haste {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// --- Clusters. Not to be called by kernels of other architectures.

// All threads of all blocks of the cluster; what was written before is visible after.
__device__ __forceinline__ void ClusterSync() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#endif
}

// Counts bytes as they arrive, or threads. Used again and again: `parity` of its n-th use is n & 1.
class ArrivalCounter {
 public:
  // By one thread, before a ClusterSync, or a __syncthreads if only this block waits. arrivals: of
  // a use, those that Expect counts too.
  __device__ __forceinline__ void Init(uint32_t arrivals = 1) {
    Set(arrivals);
    FenceInit();
  }
  template <int kCount>
  static __device__ __forceinline__ void Init(ArrivalCounter (&counters)[kCount],
                                              uint32_t arrivals) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) counters[i].Set(arrivals);
    FenceInit();
  }
  // By one thread a use. Bytes may have arrived before.
  __device__ __forceinline__ void Expect(uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(SharedAddress(&state_)),
                 "r"(bytes)
                 : "memory");
#endif
  }
  __device__ __forceinline__ void Arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(SharedAddress(&state_)) : "memory");
#endif
  }
  // The same, of the counter that block `rank` of the cluster has here.
  __device__ __forceinline__ void ArriveIn(uint32_t rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n\t.reg .b32 there;\n\t"
        "mapa.shared::cluster.u32 there, %0, %1;\n\t"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(SharedAddress(&state_)),
        "r"(rank)
        : "memory");
#endif
  }
  // By every thread that reads what has arrived.
  __device__ __forceinline__ void Wait(uint32_t parity) const {
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
  __device__ __forceinline__ void Set(uint32_t arrivals) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(&state_)), "r"(arrivals)
                 : "memory");
#endif
  }
  static __device__ __forceinline__ void FenceInit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }

  uint64_t state_;
};

// Where block `rank` of the cluster has what this block has at `shared`.
__device__ __forceinline__ uint32_t AddressIn(uint32_t shared, uint32_t rank) {
  uint32_t there = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
#endif
  return there;
}

// 16 bytes to another block's shared memory, counted there. Both addresses by AddressIn.
__device__ __forceinline__ void Push(uint32_t to, uint4 v, uint32_t counter) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(counter)
      : "memory");
#endif
}

// The same of 8 bytes.
__device__ __forceinline__ void Push(uint32_t to, float2 v, uint32_t counter) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(v.x), "f"(v.y), "r"(counter)
      : "memory");
#endif
}

// --- Bulk copies (sm_90+) run beside the threads. What threads have written where one reads or
// writes must be fenced.
__device__ __forceinline__ void FenceSharedBulkCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ __forceinline__ void FenceGlobalBulkCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}
// By one thread; addresses and bytes are multiples of 16. Counted in bytes.
__device__ __forceinline__ void CopyBulk(void* shared, const void* global, uint32_t bytes,
                                         ArrivalCounter* counter) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(counter))
      : "memory");
#endif
}

// The same to all blocks of the cluster that `blocks` has a bit of, at the same place of each;
// their counters, at the same place too, count it.
__device__ __forceinline__ void CopyBulkTo(uint16_t blocks, void* shared, const void* global,
                                           uint32_t bytes, ArrivalCounter* counter) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(counter)), "h"(blocks)
      : "memory");
#endif
}

// --- The whole GPU.

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

// Past the first-level cache, and not to be reordered with others at the same address.
__device__ __forceinline__ uint4 LoadRelaxed(const uint4* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ void StoreRelaxed(uint4* to, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
// The same of 16 bytes that are there together or not at all: what is in one word holds for all.
__device__ __forceinline__ uint4 LoadWhole(const uint4* from) {
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
__device__ __forceinline__ void StoreWhole(uint4* to, uint4 v) {
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
__device__ __forceinline__ void StoreRelaxed(uint32_t* to, uint32_t v) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

// What this thread has written is visible to who sees what it, or a thread behind its next barrier,
// writes from here on.
__device__ __forceinline__ void FenceRelease() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && HASTE_PTX_HAS_FENCE_RELEASE
  // Leaves the first-level cache as it is.
  asm volatile("fence.release.gpu;" ::: "memory");
#else
  // Empties it, but waits for less than __threadfence, which is sequentially consistent.
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

// Counts a block that has ended a step. By all its threads; what they wrote before is visible to
// who sees the count.
__device__ __forceinline__ void CountArrival(uint32_t* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
  }
}
// Counts what this thread, and those it has met at a barrier, have written: for another kernel, or
// for a stream that waits for the count.
__device__ __forceinline__ void CountPart(uint32_t* counter) {
  __threadfence_system();
  asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
// Until so many are counted; by each thread for itself.
__device__ __forceinline__ void WaitForPart(const uint32_t* counter, uint32_t count) {
  Patience patience;
  for (;;) {
    uint32_t seen;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    if (seen >= count) return;
    patience.Poll();
  }
}
// Until so many have arrived, give or take 2^32.
__device__ __forceinline__ void WaitForArrivals(const uint32_t* counter, uint32_t count) {
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

__device__ __forceinline__ bool HasArrived(uint4 v) {
  return v.x != kAbsent && v.y != kAbsent && v.z != kAbsent && v.w != kAbsent;
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_PTX_EXCHANGE_CUH_
