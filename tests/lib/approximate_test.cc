// Checks lib/cpu/simd/approximate-inl.h against the errors in its table, with long double as the
// reference, for every SIMD target that this machine can run.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/lib/approximate_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "lib/cpu/simd/approximate-inl.h"
#include "tests/lib/check.h"
#include "tests/lib/math_bounds.h"

HASTE_TARGET_BEGIN
namespace {

// One call of fn on each element of x.
template <class Fn>
void Map(const std::vector<float>& x, std::vector<float>* y, const Fn& fn) {
  const int64_t n = static_cast<int64_t>(x.size());
  for (int64_t i = 0; i < n; i += Width<float>()) {
    const ApproximateVec v = LoadPart<float>(&x[i], n - i);
    StorePart<float>(fn(v), &(*y)[i], n - i);
  }
}

void Run(const std::vector<float>& x, haste_test::Results<float>* y) {
  using A = ApproximateVec;
  Map(x, &y->exp_negative, [](A v) HWY_ATTR { return ExpNegative(-Abs(v)); });
  Map(x, &y->tanh, [](A v) HWY_ATTR { return Tanh(v); });
  Map(x, &y->sigmoid, [](A v) HWY_ATTR { return Sigmoid(v); });
  Map(x, &y->log_sigmoid, [](A v) HWY_ATTR { return LogSigmoid(v); });
}

}  // namespace
HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

// The table.
constexpr double kExp = 1e-5, kSigmoid = 1e-5, kTanh = 2e-5, kLogSigmoid = 1e-5;
constexpr double kLowest = -87, kBelow = 2e-38;

std::vector<float> Points(unsigned seed) {
  std::mt19937_64 random(seed);
  using Limits = std::numeric_limits<float>;
  std::vector<float> x = {0.0f,
                          -0.0f,
                          Limits::infinity(),
                          -Limits::infinity(),
                          Limits::denorm_min(),
                          -Limits::denorm_min(),
                          Limits::min(),
                          -Limits::min(),
                          Limits::max(),
                          Limits::lowest()};
  // Where e^x passes a power of two, and beside it.
  for (int i = -300; i <= 300; ++i) {
    const float at = static_cast<float>(i * 0.34657359027997265);
    for (const float v : {at, std::nextafter(at, 1e9f), std::nextafter(at, -1e9f)}) x.push_back(v);
  }
  for (int i = -700000; i <= 700000; ++i) x.push_back(static_cast<float>(i * 1e-5));
  for (const double scale : {1e-40, 1e-30, 1e-6, 1e-3, 0.1, 10.0, 100.0, 1e4, 1e30}) {
    std::uniform_real_distribution<double> uniform(-scale, scale);
    for (int i = 0; i < 100000; ++i) x.push_back(static_cast<float>(uniform(random)));
  }
  return x;
}

// The largest relative error of one function; where not `relative`, the error is checked.
struct Worst {
  const char* function;
  double bound, top, most = 0;

  void See(float got, long double want, bool relative, float x) {
    EXPECT_TRUE(!std::isnan(got), "%s(%g) is NaN", function, x);
    EXPECT_TRUE(std::fabs(got) <= top, "%s(%g) is above %g", function, x, top);
    const double error = static_cast<double>(std::fabs(got - want));
    // Half of the last bit of a subnormal result is more than the bound.
    constexpr double kLastBit = std::numeric_limits<float>::denorm_min();
    if (!relative) {
      EXPECT_TRUE(error < kBelow, "%s(%g): %g", function, x, got);
    } else if (error > kLastBit) {
      most = std::max(most, error / static_cast<double>(std::fabs(want)));
    }
  }
  void Check(const char* target) const {
    std::printf(" %s %.2e", function, most);
    EXPECT_TRUE(most <= bound, "%s: %s off by %g", target, function, most);
  }
};

using RunTarget = decltype(HWY_STATIC_DISPATCH(Run));
void Check(const char* target, RunTarget* run, unsigned seed) {
  if (run == nullptr) return;  // a target that was not compiled
  const std::vector<float> x = Points(seed);
  haste_test::Results<float> got(x.size());
  run(x, &got);
  Worst exp{"exp", kExp, 1 + kExp}, tanh{"tanh", kTanh, 1}, sigmoid{"sigmoid", kSigmoid, 1},
      log_sigmoid{"log sigmoid", kLogSigmoid, INFINITY};
  for (size_t i = 0; i < x.size(); ++i) {
    const long double v = x[i], e = std::exp(-std::fabs(v));
    exp.See(got.exp_negative[i], e, std::fabs(v) <= -kLowest, x[i]);
    tanh.See(got.tanh[i], std::tanh(v), true, x[i]);
    sigmoid.See(got.sigmoid[i], (v > 0 ? 1 : e) / (1 + e), v >= kLowest, x[i]);
    // Of an infinity there is no relative error.
    const long double log_of = std::min(v, 0.0L) - std::log1p(e);
    if (std::isinf(log_of)) {
      EXPECT_TRUE(got.log_sigmoid[i] == log_of, "log sigmoid(%g)", x[i]);
    } else {
      log_sigmoid.See(got.log_sigmoid[i], log_of, v <= -kLowest, x[i]);
    }
    EXPECT_TRUE(std::signbit(got.tanh[i]) == std::signbit(x[i]), "sign of tanh(%g)", x[i]);
  }
  std::printf("%-9s", target);
  for (const Worst& worst : {exp, tanh, sigmoid, log_sigmoid}) worst.Check(target);
  std::printf("\n");
  haste_test::Results<float> of_nan(33);
  run(std::vector<float>(33, std::numeric_limits<float>::quiet_NaN()), &of_nan);
  for (const auto* y : {&of_nan.exp_negative, &of_nan.tanh, &of_nan.sigmoid, &of_nan.log_sigmoid}) {
    for (const float v : *y) EXPECT_TRUE(std::isnan(v), "%s", "NaN gives NaN");
  }
}

}  // namespace
}  // namespace haste

int main() {
  using namespace haste;
  const unsigned seed = std::random_device{}();
  std::printf("seed %u; largest relative errors:\n", seed);
  Check("baseline", &HWY_STATIC_DISPATCH(Run), seed);
#if defined(__x86_64__)
  const SimdTarget best = BestTarget();
  if (best != SimdTarget::kBaseline) Check("avx2", HWY_CHOOSE_AVX2(Run), seed);
  if (best >= SimdTarget::kAvx3) Check("avx512", HWY_CHOOSE_AVX3(Run), seed);
#endif
  return haste_test::Report("approximate_test");
}
#endif  // HWY_ONCE
