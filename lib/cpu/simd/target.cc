// haste_cpu_target: which of the compiled SIMD targets runs here.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/simd/target.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "haste/c_api.h"
#include "lib/base/per_target.h"

HASTE_TARGET_BEGIN

namespace {

const char* TargetName() {
#if HWY_TARGET & (HWY_AVX3 | HWY_AVX3_DL)
  return "AVX-512";
#elif HWY_TARGET == HWY_AVX2
  return "AVX2";
#elif HWY_TARGET == HWY_NEON
  return "NEON";
#else
  return "baseline";
#endif
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
#if defined(__x86_64__)
namespace haste {
namespace {

bool AskForAmx() {
  unsigned a, b, c, d;
  constexpr unsigned kAll = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAll) != kAll) return false;
#if defined(__linux__)
  // Tiles are large: since 5.16 the kernel saves them only for a process that asked for it. Its
  // threads share the permission.
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

bool HasAmx() {
  static const bool has = AskForAmx();
  return has;
}

}  // namespace haste
#endif

extern "C" const char* haste_cpu_target(void) {
  using namespace haste;
  return HASTE_DISPATCH(TargetName)();
}
#endif  // HWY_ONCE
