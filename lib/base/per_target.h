// Where element-wise mathematics is compiled: once for each SIMD target on the CPU, once
// for the host and the device under nvcc, once as plain scalar code elsewhere.
//
// A header with such code wraps it in HASTE_TARGET_BEGIN … HASTE_TARGET_END, declares its
// functions HASTE_FN, and uses the toggling guard of Highway's per-target headers, because
// Highway includes it once for each target:
//
//   #if defined(GUARD_) == defined(HWY_TARGET_TOGGLE)
//   #ifdef HWY_TARGET_TOGGLE
//   #undef GUARD_
//   #else
//   #define GUARD_
//   #endif
#ifndef HASTE_LIB_BASE_PER_TARGET_H_
#define HASTE_LIB_BASE_PER_TARGET_H_

#if defined(HASTE_SIMD)  // set by lib/cpu before it includes Highway
// Highway's macro is a pragma and comes last: GCC 14.4 and 16.2 drop what follows one in a macro.
#define HASTE_TARGET_BEGIN  \
  namespace haste {         \
  namespace HWY_NAMESPACE { \
  HWY_BEFORE_NAMESPACE();
#define HASTE_TARGET_END \
  }                      \
  }                      \
  HWY_AFTER_NAMESPACE();
#define HASTE_FN HWY_INLINE
#else
#define HASTE_TARGET_BEGIN \
  namespace haste {        \
  inline namespace scalar {
#define HASTE_TARGET_END \
  }                      \
  }
#if defined(__CUDACC__)
#define HASTE_FN __host__ __device__ __forceinline__
#else
#define HASTE_FN inline __attribute__((always_inline))
#endif
#endif

#endif  // HASTE_LIB_BASE_PER_TARGET_H_
