// PTX instructions of newer GPUs, as asm volatile has them. On older ones, and in host code, there
// are none: kernels that need them are not launched there, or do the same work in order.
#pragma once

#include "lib/cuda/ptx/device_code.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HASTE_ASM_80(...) asm volatile(__VA_ARGS__)
#else
#define HASTE_ASM_80(...) static_cast<void>(0)
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HASTE_ASM_90(...) asm volatile(__VA_ARGS__)
#else
#define HASTE_ASM_90(...) static_cast<void>(0)
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HASTE_ASM_90A(...) asm volatile(__VA_ARGS__)
#else
#define HASTE_ASM_90A(...) static_cast<void>(0)
#endif
