#include "benchmarks/cpp/peak.h"

#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/cpp/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

namespace {

constexpr int kChains = 12;  // enough to hide the latency of any of them
constexpr int64_t kRounds = 200000;

double Macs() { return static_cast<double>(kRounds) * kChains * Width<float>(); }

float Burst() {
  Vec<float> sums[kChains];
  Vec<float> x(0.999), y(1e-3);
  for (int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) sums[c] = MulAdd(sums[c], x, y);
  }
  Vec<float> all;
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) all = all + sums[c];
  return hn::GetLane(all.v);
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {
double MacsOfBest() { return HASTE_DISPATCH(Macs)(); }
float BurstOfBest() { return HASTE_DISPATCH(Burst)(); }
}  // namespace
}  // namespace haste

namespace benchmark {
double BurstMacs() { return haste::MacsOfBest(); }
float FmaBurst() { return haste::BurstOfBest(); }
}  // namespace benchmark
#endif  // HWY_ONCE
