// How device code is compiled.
#pragma once

// A function of kernels: all of them are inlined.
#define HASTE_DEVICE __device__ __forceinline__

// Stands before a loop over arrays that registers hold: its index is a constant in each iteration.
// Where a factor is given, `#pragma unroll` says it.
#if defined(__CUDA_ARCH__)
#define HASTE_UNROLL _Pragma("unroll")
#else
#define HASTE_UNROLL
#endif
