// Chooses, at run time, among the SIMD targets that a translation unit was compiled for.
//
// Highway's own dispatcher lives in a shared library that we would have to ship; the three targets
// that we build need only this.
#ifndef HASTE_LIB_CPU_TARGETS_H_
#define HASTE_LIB_CPU_TARGETS_H_

#include <stdlib.h>
#include <string.h>

// Baseline (whatever the compiler flags say; NEON on Arm), AVX2 + FMA + F16C, AVX-512.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#define HASTE_SIMD 1

namespace haste {

enum class SimdTarget { kBaseline, kAvx2, kAvx3 };

// The best that the machine has; HASTE_SIMD_TARGET=baseline or avx2 holds it back, to compare
// targets or to see on one machine what another computes.
inline SimdTarget BestTarget() {
#if defined(__x86_64__)
  static const SimdTarget target = [] {
    const char* wanted = getenv("HASTE_SIMD_TARGET");
    if (wanted != nullptr && strcmp(wanted, "baseline") == 0) return SimdTarget::kBaseline;
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                      __builtin_cpu_supports("f16c");
    const bool avx3 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
    if (wanted != nullptr && strcmp(wanted, "avx2") == 0 && avx2) return SimdTarget::kAvx2;
    return avx2 && avx3 ? SimdTarget::kAvx3 : avx2 ? SimdTarget::kAvx2 : SimdTarget::kBaseline;
  }();
  return target;
#else
  return SimdTarget::kBaseline;
#endif
}

// A target that was not compiled is nullptr: its flags are part of the baseline then.
template <class Fn>
Fn* ChooseTarget(Fn* avx3, Fn* avx2, Fn* baseline) {
  const SimdTarget best = BestTarget();
  if (best == SimdTarget::kAvx3 && avx3 != nullptr) return avx3;
  if (best != SimdTarget::kBaseline && avx2 != nullptr) return avx2;
  return baseline;
}

// Usable after HWY_ONCE, for functions in namespace haste::HWY_NAMESPACE.
#define HASTE_DISPATCH(FN)                                                                  \
  ChooseTarget<decltype(HWY_STATIC_DISPATCH(FN))>(HWY_CHOOSE_AVX3(FN), HWY_CHOOSE_AVX2(FN), \
                                                  &HWY_STATIC_DISPATCH(FN))

}  // namespace haste

#endif  // HASTE_LIB_CPU_TARGETS_H_
