// Storage types on the device: conversions and vector loads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include <type_traits>

#include "lib/base/dtypes.h"
#include "lib/cuda/ptx/assembly.cuh"

namespace haste {

HASTE_DEVICE float ToCompute(float x) { return x; }
HASTE_DEVICE double ToCompute(double x) { return x; }
HASTE_DEVICE float ToCompute(TensorFloat x) { return x.value; }
template <int kTerms>
HASTE_DEVICE float ToCompute(Scaled<kTerms> x) {
  return x.value;
}
HASTE_DEVICE float ToCompute(Half x) { return __half2float(__ushort_as_half(x.bits)); }
HASTE_DEVICE float ToCompute(Bfloat16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

template <class T>
HASTE_DEVICE T FromCompute(Compute<T> x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return {x};  // TensorFloat, Scaled
  }
}
template <>
HASTE_DEVICE Half FromCompute<Half>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
template <>
HASTE_DEVICE Bfloat16 FromCompute<Bfloat16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

// Two neighbours in 32 bits, the first lowest.
template <class T>
HASTE_DEVICE uint32_t PackTwo(float low, float high) {
  const auto bits = [](auto both) {
    uint32_t packed;
    memcpy(&packed, &both, sizeof packed);
    return packed;
  };
  if constexpr (std::is_same_v<T, Half>) return bits(__floats2half2_rn(low, high));
  return bits(__floats2bfloat162_rn(low, high));
}

// Returns x, but opaque: the compiler would otherwise compute it again at every use.
HASTE_DEVICE int Opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

HASTE_DEVICE int64_t Opaque(int64_t x) {
  asm volatile("" : "+l"(x));
  return x;
}

// The same for values made from the thread index: the assembler would rather read its special
// register again, which is slow. Called by whole warps.
HASTE_DEVICE int OpaqueOfThread(int x) { return __shfl_sync(0xFFFFFFFFu, x, threadIdx.x % 32); }

// x, which all threads of a warp have: so that the compiler knows it, and keeps what follows from
// it in uniform registers. Called by whole warps.
HASTE_DEVICE int UniformOfWarp(int x) { return __shfl_sync(0xFFFFFFFFu, x, 0); }

template <class V>
HASTE_DEVICE V* Opaque(V* x) {
  asm volatile("" : "+l"(x));
  return x;
}

// The same for global memory, which the compiler still knows it to be.
template <class V>
HASTE_DEVICE V* OpaqueGlobal(V* x) {
  const int64_t address = static_cast<int64_t>(__cvta_generic_to_global(x));
  return static_cast<V*>(__cvta_global_to_generic(static_cast<size_t>(Opaque(address))));
}

// Widest access, up to 16 bytes, that divides `bytes`.
constexpr int AccessBytes(size_t bytes) {
  return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2;
}

// kCount neighbours, moved by the widest accesses that their size allows.
template <class T, int kCount>
struct alignas(AccessBytes(sizeof(T) * kCount)) Fragment {
  T v[kCount];
};

template <int kCount, class T>
HASTE_DEVICE Fragment<T, kCount> LoadFragment(const T* from) {
  return *reinterpret_cast<const Fragment<T, kCount>*>(from);
}

template <int kCount, class T>
HASTE_DEVICE void StoreFragment(T* to, const T (&values)[kCount]) {
  Fragment<T, kCount> fragment;
  HASTE_UNROLL for (int i = 0; i < kCount; ++i) fragment.v[i] = values[i];
  *reinterpret_cast<Fragment<T, kCount>*>(to) = fragment;
}

// Loads from shared memory, where it is called: the compiler would move the load to where its
// result is used, and what comes before would not hide it.
HASTE_DEVICE uint4 LoadShared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// Stores to shared memory, in PTX: the compiler would store element by element.
template <int kCount, class T>
HASTE_DEVICE void StoreShared(T* to, const T (&values)[kCount]) {
  constexpr int kBytes = AccessBytes(sizeof(T) * kCount);
  constexpr int kElements = kBytes / sizeof(T);
  HASTE_UNROLL for (int i = 0; i < kCount; i += kElements) {
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to + i));
    if constexpr (kBytes == 16) {
      uint32_t w[4];
      memcpy(w, values + i, kBytes);
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(w[0]), "r"(w[1]),
                   "r"(w[2]), "r"(w[3])
                   : "memory");
    } else {
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) to[i + e] = values[i + e];
    }
  }
}

// Adds to four numbers in global memory (sm_90+), and does not wait. What one thread adds to the
// same place is added in order.
HASTE_DEVICE void AddGlobal(float4* to, const float4& v) {
  HASTE_ASM_90("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x),
               "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

}  // namespace haste
