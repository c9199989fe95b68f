// Checks lib/base/math.h against the errors in its table, with long double as the reference, for
// the scalar code and for every SIMD target that this machine can run.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/lib/math_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lib/cpu/simd/simd-inl.h"
#include "tests/lib/check.h"
#include "tests/lib/math_bounds.h"

HASTE_TARGET_BEGIN
namespace {

// One call of fn on each element of x.
template <class C, class Fn>
void Map(const std::vector<C>& x, std::vector<C>* y, const Fn& fn) {
  const int64_t n = static_cast<int64_t>(x.size());
  for (int64_t i = 0; i < n; i += Width<C>()) {
    StorePart<C>(fn(LoadPart<C>(&x[i], n - i)), &(*y)[i], n - i);
  }
}

template <class C>
void RunAll(const std::vector<C>& x, haste_test::Results<C>* y) {
  Map(x, &y->exp_negative, [](Vec<C> v) HWY_ATTR { return ExpNegative(-Abs(v)); });
  Map(x, &y->tanh, [](Vec<C> v) HWY_ATTR { return Tanh(v); });
  Map(x, &y->sigmoid, [](Vec<C> v) HWY_ATTR { return Sigmoid(v); });
  Map(x, &y->log_sigmoid, [](Vec<C> v) HWY_ATTR { return LogSigmoid(v); });
}

void RunFloat(const std::vector<float>& x, haste_test::Results<float>* y) { RunAll(x, y); }
void RunDouble(const std::vector<double>& x, haste_test::Results<double>* y) { RunAll(x, y); }

}  // namespace
HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

using haste_test::Bounds;
using haste_test::Results;

template <class C>
double Ulps(C got, long double want) {
  const C nearest = static_cast<C>(want);
  int exponent;
  std::frexp(nearest, &exponent);
  const int least = std::numeric_limits<C>::min_exponent;
  const C ulp = std::ldexp(C(1), std::max(exponent, least) - std::numeric_limits<C>::digits);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / ulp);
}

// Dense where the functions bend, sparse in the tails, and values that are easily wrong.
template <class C>
std::vector<C> Points(unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<C> x = {C(0),
                      -C(0),
                      std::numeric_limits<C>::infinity(),
                      -std::numeric_limits<C>::infinity(),
                      std::numeric_limits<C>::denorm_min(),
                      std::numeric_limits<C>::min(),
                      std::numeric_limits<C>::max(),
                      std::numeric_limits<C>::lowest()};
  for (int i = -2000; i <= 2000; ++i) x.push_back(static_cast<C>(i) / 2 * C(0.6931471805599453));
  for (const double scale : {1e-30, 1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 800.0}) {
    std::uniform_real_distribution<double> uniform(-scale, scale);
    for (int i = 0; i < 100000; ++i) x.push_back(static_cast<C>(uniform(random)));
  }
  return x;
}

// The largest error of one function: in ULP where `exact`, absolute elsewhere.
template <class C>
class Worst {
 public:
  explicit Worst(const Bounds& bounds) : bounds_(bounds) {}
  void See(const char* function, C got, long double want, bool exact, long double x) {
    if (exact) {
      if (got != want) ulps_ = std::max(ulps_, Ulps(got, want));
      EXPECT_TRUE(!std::isnan(got), "%s(%Lg) is NaN", function, x);
    } else {
      EXPECT_NEAR(got, static_cast<double>(want), bounds_.clamp_error, "%s(%Lg)", function, x);
    }
  }
  void Check(const char* target, const char* function, double bound) const {
    std::printf(" %s %.2f", function, ulps_);
    EXPECT_TRUE(ulps_ <= bound, "%s: %s off by %g ULP", target, function, ulps_);
  }

 private:
  const Bounds& bounds_;
  double ulps_ = 0;
};

template <class C, class Run>
void Check(const char* target, const Run& run, const Bounds& bounds, unsigned seed) {
  const std::vector<C> x = Points<C>(seed);
  Results<C> got(x.size());
  run(x, &got);
  Worst<C> exp(bounds), tanh(bounds), sigmoid(bounds), log_sigmoid(bounds);
  for (size_t i = 0; i < x.size(); ++i) {
    const long double v = x[i];
    const long double e = std::exp(-std::fabs(v));
    exp.See("exp", got.exp_negative[i], e, -std::fabs(v) >= bounds.lowest, v);
    tanh.See("tanh", got.tanh[i], std::tanh(v), true, v);
    sigmoid.See("sigmoid", got.sigmoid[i], (v > 0 ? 1 : e) / (1 + e), v >= bounds.lowest, v);
    log_sigmoid.See("log sigmoid", got.log_sigmoid[i], std::min(v, 0.0L) - std::log1p(e),
                    v <= -bounds.lowest, v);
    EXPECT_TRUE(std::signbit(got.tanh[i]) == std::signbit(x[i]), "sign of tanh(%Lg)", v);
  }
  std::printf("%-9s %zu bytes, ULP:", target, sizeof(C));
  exp.Check(target, "exp", bounds.exp_negative);
  tanh.Check(target, "tanh", bounds.tanh);
  sigmoid.Check(target, "sigmoid", bounds.sigmoid);
  log_sigmoid.Check(target, "log sigmoid", bounds.log_sigmoid);
  std::printf("\n");
  Results<C> of_nan(33);
  run(std::vector<C>(33, std::numeric_limits<C>::quiet_NaN()), &of_nan);
  for (const auto* y : {&of_nan.exp_negative, &of_nan.tanh, &of_nan.sigmoid, &of_nan.log_sigmoid}) {
    for (const C v : *y) EXPECT_TRUE(std::isnan(v), "NaN gives NaN");
  }
}

using FloatRun = decltype(HWY_STATIC_DISPATCH(RunFloat));
using DoubleRun = decltype(HWY_STATIC_DISPATCH(RunDouble));
void CheckTarget(const char* name, FloatRun* run_float, DoubleRun* run_double, unsigned seed) {
  if (run_float == nullptr) return;  // a target that was not compiled
  Check<float>(name, *run_float, haste_test::kFloatBounds, seed);
  Check<double>(name, *run_double, haste_test::kDoubleBounds, seed);
}

}  // namespace
}  // namespace haste

int main() {
  using namespace haste;
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  CheckTarget("baseline", &HWY_STATIC_DISPATCH(RunFloat), &HWY_STATIC_DISPATCH(RunDouble), seed);
#if defined(__x86_64__)
  const SimdTarget best = BestTarget();
  if (best != SimdTarget::kBaseline) {
    CheckTarget("avx2", HWY_CHOOSE_AVX2(RunFloat), HWY_CHOOSE_AVX2(RunDouble), seed);
  }
  if (best >= SimdTarget::kAvx3) {
    CheckTarget("avx512", HWY_CHOOSE_AVX3(RunFloat), HWY_CHOOSE_AVX3(RunDouble), seed);
  }
#endif
  return haste_test::Report("math_test");
}
#endif  // HWY_ONCE
