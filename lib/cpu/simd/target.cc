// haste_cpu_target: which of the compiled SIMD targets runs here.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/simd/target.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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
extern "C" const char* haste_cpu_target(void) {
  using namespace haste;
  return HASTE_DISPATCH(TargetName)();
}
#endif  // HWY_ONCE
