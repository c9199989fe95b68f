// Checks the formulas of lib/cuda/ptx/fast_math.cuh against the bounds stated there. The host's
// exact exponential and reciprocal take the place of the GPU's estimates with errors of 2^-22.
#include "lib/cuda/ptx/fast_math.cuh"

#include <cmath>
#include <cstring>

#include "tests/lib/check.h"

namespace haste {
namespace {

double Relative(double got, double want) { return std::fabs(got - want) / std::fabs(want); }

void Bounds() {
  for (double x = -86.9; x < 87.0; x += 1.7e-3) {
    const ApproximateFloat v(static_cast<float>(x));
    const double at = v.v;
    // The error from rounding x · log2(e).
    const double argument = std::fabs(at) * 1.5e-7;
    EXPECT_TRUE(Relative(Sigmoid(v).v, 1 / (1 + std::exp(-at))) < 1e-6 + argument, "sigmoid(%g)",
                at);
    if (at <= 0) {
      EXPECT_TRUE(Relative(ExpNegative(v).v, std::exp(at)) < 1e-6 + argument, "exp(%g)", at);
    }
    const double log_sigmoid = at < 0 ? at - std::log1p(std::exp(at)) : -std::log1p(std::exp(-at));
    EXPECT_TRUE(std::fabs(LogSigmoid(v).v - log_sigmoid) < 1e-6 * std::fmax(1, std::fabs(at)),
                "log sigmoid(%g)", at);
  }
  for (double size = 1e-30; size < 100; size *= 1.003) {
    for (const double x : {size, -size}) {
      const ApproximateFloat v(static_cast<float>(x));
      EXPECT_TRUE(Relative(Tanh(v).v, std::tanh(static_cast<double>(v.v))) < 1e-5, "tanh(%g)", x);
    }
  }
}

// OrderAfter returns x bit for bit for any `first`, and multiplying with a NaN `first` gives NaN.
void Order() {
  const float values[] = {0.0f, -0.0f, 0.3f, 1.0f, -2.5f, 1e-40f, INFINITY, -INFINITY, NAN};
  for (const float first : values) {
    for (const float x : values) {
      const float got = OrderAfter(ApproximateFloat(first), ApproximateFloat(x)).v;
      EXPECT_TRUE(std::memcmp(&got, &x, sizeof x) == 0, "%g after %g: %g", x, first, got);
    }
  }
  float marked;
  std::memset(&marked, 0xFF, sizeof marked);
  const ApproximateFloat first(marked);
  EXPECT_TRUE(std::isnan((first * Tanh(OrderAfter(first, ApproximateFloat(0.5f)))).v), "%s",
              "after a NaN");
}

void Ends() {
  const float infinity = INFINITY;
  EXPECT_TRUE(
      Sigmoid(ApproximateFloat(infinity)).v == 1 && Sigmoid(ApproximateFloat(-infinity)).v == 0,
      "%s", "sigmoid at infinity");
  EXPECT_TRUE(Tanh(ApproximateFloat(infinity)).v == 1 && Tanh(ApproximateFloat(-infinity)).v == -1,
              "%s", "tanh at infinity");
  EXPECT_TRUE(std::isnan(Sigmoid(ApproximateFloat(NAN)).v) &&
                  std::isnan(Tanh(ApproximateFloat(NAN)).v) &&
                  std::isnan(ExpNegative(ApproximateFloat(NAN)).v),
              "%s", "NaN stays");
}

}  // namespace
}  // namespace haste

int main() {
  haste::Bounds();
  haste::Order();
  haste::Ends();
  return haste_test::Report("fast_math_test");
}
