// Holds lib/math.h to the errors that its table states, against long double, for the scalar code
// and for every SIMD target that this machine can run.
#include "lib/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/lib/math_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lib/cpu/simd-inl.h"
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
void RunAll(const std::vector<C>& x, std::vector<C>* exp, std::vector<C>* tanh,
            std::vector<C>* sigmoid) {
  Map(x, exp, [](Vec<C> v) HWY_ATTR { return ExpNegative(-Abs(v)); });
  Map(x, tanh, [](Vec<C> v) HWY_ATTR { return Tanh(v); });
  Map(x, sigmoid, [](Vec<C> v) HWY_ATTR { return Sigmoid(v); });
}

void RunFloat(const std::vector<float>& x, std::vector<float>* e, std::vector<float>* t,
              std::vector<float>* s) {
  RunAll(x, e, t, s);
}
void RunDouble(const std::vector<double>& x, std::vector<double>* e, std::vector<double>* t,
               std::vector<double>* s) {
  RunAll(x, e, t, s);
}

}  // namespace
HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

using haste_test::Bounds;

template <class C>
double Ulps(C got, long double want) {
  const C nearest = static_cast<C>(want);
  int exponent;
  std::frexp(nearest, &exponent);
  const int least = std::numeric_limits<C>::min_exponent;
  const C ulp = std::ldexp(C(1), std::max(exponent, least) - std::numeric_limits<C>::digits);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / ulp);
}

// Dense where the functions bend, sparse in the tails, and the places that are easily wrong.
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

template <class C, class Run>
void Check(const char* target, const Run& run, const Bounds& bounds, unsigned seed) {
  const std::vector<C> x = Points<C>(seed);
  std::vector<C> exp(x.size()), tanh(x.size()), sigmoid(x.size());
  run(x, &exp, &tanh, &sigmoid);
  double worst[3] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    const long double v = x[i];
    const long double want_exp = std::exp(-std::fabs(v));
    const long double want_sigmoid = v > 0 ? 1 / (1 + want_exp) : want_exp / (1 + want_exp);
    if (-std::fabs(v) >= bounds.lowest) {
      worst[0] = std::max(worst[0], Ulps(exp[i], want_exp));
    } else {
      EXPECT_NEAR(exp[i], static_cast<double>(want_exp), bounds.clamp_error, "exp(-%Lg)", v);
    }
    worst[1] = std::max(worst[1], Ulps(tanh[i], std::tanh(v)));
    if (v >= bounds.lowest) {
      worst[2] = std::max(worst[2], Ulps(sigmoid[i], want_sigmoid));
    } else {
      EXPECT_NEAR(sigmoid[i], static_cast<double>(want_sigmoid), bounds.clamp_error, "sigmoid(%Lg)",
                  v);
    }
    EXPECT_TRUE(std::signbit(tanh[i]) == std::signbit(x[i]), "sign of tanh(%Lg)", v);
  }
  std::printf("%-9s %zu bytes: exp %.2f, tanh %.2f, sigmoid %.2f ULP\n", target, sizeof(C),
              worst[0], worst[1], worst[2]);
  EXPECT_TRUE(worst[0] <= bounds.exp_negative, "%s: exp off by %g ULP", target, worst[0]);
  EXPECT_TRUE(worst[1] <= bounds.tanh, "%s: tanh off by %g ULP", target, worst[1]);
  EXPECT_TRUE(worst[2] <= bounds.sigmoid, "%s: sigmoid off by %g ULP", target, worst[2]);
  std::vector<C> nan(33, std::numeric_limits<C>::quiet_NaN()), a(33), b(33), c(33);
  run(nan, &a, &b, &c);
  for (int i = 0; i < 33; ++i) {
    EXPECT_TRUE(std::isnan(a[i]) && std::isnan(b[i]) && std::isnan(c[i]), "NaN gives NaN");
  }
}

template <class FloatRun, class DoubleRun>
void CheckTarget(const char* name, FloatRun* run_float, DoubleRun* run_double, unsigned seed) {
  if (run_float == nullptr) return;
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
  if (best == SimdTarget::kAvx3) {
    CheckTarget("avx512", HWY_CHOOSE_AVX3(RunFloat), HWY_CHOOSE_AVX3(RunDouble), seed);
  }
#endif
  return haste_test::Report("math_test");
}
#endif  // HWY_ONCE
