// Chooses, at run time, among the SIMD targets that a translation unit was compiled for.
//
// Highway's own dispatcher lives in a shared library that we would have to ship; the three targets
// that we build need only this.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>

// AVX-512, AVX2 + FMA + F16C, and a baseline that runs everywhere. Targets that a newer Highway
// adds are left out, because the code below would not choose them.
#ifdef HASTE_NATIVE_TARGET  // one of them and the baseline: a build for this machine alone
#define HWY_DISABLED_TARGETS (~(HASTE_NATIVE_TARGET | HWY_EMU128 | HWY_SCALAR))
#else
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_AVX2 | HWY_EMU128 | HWY_SCALAR))
#endif
#else
// The target of the compiler's flags, NEON on Arm. There is no choice at run time.
#define HWY_COMPILE_ONLY_STATIC
#endif
#define HASTE_SIMD 1

namespace haste {

// Each includes those before it. kAvx2: with AVX-VNNI where the machine has it. kAvx3Dot: AVX-512
// with VNNI, and BF16 where that is fast.
// Code is compiled for the first three, and lib/cpu/narrow for the others.
enum class SimdTarget { kBaseline, kAvx2, kAvx3, kAvx3Dot, kAmx };

#if defined(__x86_64__)
// Conversions of halves. Reads the bit of cpuid, because not every Clang has a name for it.
inline bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

// The same of newer instructions.
inline bool HasVnni() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 11 & 1);
}
// Ask once: each call of a walk wants to know, and on a virtual machine cpuid takes microseconds.
inline unsigned Leaf7Subleaf1() {
  static const unsigned bits = [] {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) ? a : 0;
  }();
  return bits;
}
inline bool HasAvx512Bf16() { return Leaf7Subleaf1() >> 5 & 1; }
// Whether vdpbf16ps multiplies faster than multiply-adds of float32 do. Intel's processors with
// AVX512-FP16, Sapphire Rapids and later, have it for compatibility, beside AMX.
inline bool HasFastAvx512Bf16() {
  static const bool has = [] {
    unsigned a, b, c, d;
    if (!HasAvx512Bf16() || !__get_cpuid(0, &a, &b, &c, &d)) return false;
    const bool intel = b == signature_INTEL_ebx;
    return !(intel && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1));
  }();
  return has;
}
inline bool HasAvxVnni() { return Leaf7Subleaf1() >> 4 & 1; }
// Whether this process may use the tiles of AMX, with bfloat16 and int8. Asks Linux, once.
bool HasAmx();
#endif

// The best that the machine has.
inline SimdTarget MachineTarget() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasF16c();
  const bool avx3 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl");
  if (!avx2) return SimdTarget::kBaseline;
  if (!avx3) return SimdTarget::kAvx2;
  if (!HasVnni()) return SimdTarget::kAvx3;
  return HasAvx512Bf16() && HasAmx() ? SimdTarget::kAmx : SimdTarget::kAvx3Dot;
#else
  return SimdTarget::kBaseline;
#endif
}

// The most that HASTE_SIMD_TARGET allows. On Arm "baseline" means NEON without dot products.
inline SimdTarget AllowedTarget() {
  constexpr struct {
    const char* name;
    SimdTarget target;
  } kTargets[] = {{"amx", SimdTarget::kAmx},
                  {"avx3_dot", SimdTarget::kAvx3Dot},
                  {"avx3", SimdTarget::kAvx3},
                  {"avx2", SimdTarget::kAvx2},
                  {"baseline", SimdTarget::kBaseline}};
  const char* wanted = getenv("HASTE_SIMD_TARGET");
  if (wanted == nullptr || *wanted == 0) return SimdTarget::kAmx;
  for (const auto& each : kTargets) {
    if (strcmp(wanted, each.name) == 0) return each.target;
  }
  fprintf(stderr,
          "haste: HASTE_SIMD_TARGET: expected baseline, avx2, avx3, avx3_dot or amx, got %s: "
          "ignored\n",
          wanted);
  return SimdTarget::kAmx;
}

// The best target of the machine. HASTE_SIMD_TARGET limits it, to compare targets or to get on one
// machine the results of another (of bfloat16 by avx3_dot: of another with as fast a BF16).
inline SimdTarget BestTarget() {
  static const SimdTarget target = std::min(MachineTarget(), AllowedTarget());
  return target;
}

// A target that was not compiled is nullptr, because the baseline's flags include it.
template <class Fn>
Fn* ChooseTarget(Fn* avx3, Fn* avx2, Fn* baseline) {
  const SimdTarget best = BestTarget();
  if (best >= SimdTarget::kAvx3 && avx3 != nullptr) return avx3;
  if (best != SimdTarget::kBaseline && avx2 != nullptr) return avx2;
  return baseline;
}

// Usable after HWY_ONCE, for functions in namespace haste::HWY_NAMESPACE.
#define HASTE_DISPATCH(FN)                                                                  \
  ChooseTarget<decltype(HWY_STATIC_DISPATCH(FN))>(HWY_CHOOSE_AVX3(FN), HWY_CHOOSE_AVX2(FN), \
                                                  &HWY_STATIC_DISPATCH(FN))

}  // namespace haste
