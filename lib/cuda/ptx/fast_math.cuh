// ApproximateFloat: a float whose activations are as exact as 16 bits of storage need, with a
// quarter of the instructions. Cells are written for any scalar. Kernels of 16-bit tensors, and
// those that may be as coarse as TensorFloat-32, use this one.
//
// Largest relative error, in addition to that of rounding x · log2(e); tests/lib/fast_math_test.cc
// checks the formulas against it:
//
//   ExpNegative   1e-6   x in [-87, 0]; below: 0
//   Sigmoid       1e-6   x >= -87; below: 0
//   Tanh          1e-5   every x
//   LogSigmoid    1e-6 of max(1, |x|), absolute
#pragma once

#include <type_traits>

#include "lib/base/dtypes.h"
#include "lib/base/math.h"

HASTE_TARGET_BEGIN

// Estimates of the special function unit, within 2^-22 and an ULP; on a CPU, the exact value.
#if defined(__CUDA_ARCH__)
#define HASTE_ESTIMATE(NAME, INSTRUCTION, EXACT)                   \
  HASTE_FN float NAME(float x) {                                   \
    float y;                                                       \
    asm(INSTRUCTION ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); \
    return y;                                                      \
  }
#else
#define HASTE_ESTIMATE(NAME, INSTRUCTION, EXACT) \
  HASTE_FN float NAME(float x) { return EXACT; }
#endif
HASTE_ESTIMATE(EstimateExp2, "ex2", exp2f(x))
HASTE_ESTIMATE(EstimateReciprocal, "rcp", 1.0f / x)
HASTE_ESTIMATE(EstimateLog2, "lg2", log2f(x))
#undef HASTE_ESTIMATE

struct ApproximateFloat {
  float v;

  ApproximateFloat() = default;
  HASTE_FN constexpr explicit ApproximateFloat(double x) : v(static_cast<float>(x)) {}
  HASTE_FN constexpr explicit ApproximateFloat(float x) : v(x) {}
  HASTE_FN friend ApproximateFloat operator+(ApproximateFloat a, ApproximateFloat b) {
    return ApproximateFloat(a.v + b.v);
  }
  HASTE_FN friend ApproximateFloat operator-(ApproximateFloat a, ApproximateFloat b) {
    return ApproximateFloat(a.v - b.v);
  }
  HASTE_FN friend ApproximateFloat operator*(ApproximateFloat a, ApproximateFloat b) {
    return ApproximateFloat(a.v * b.v);
  }
  HASTE_FN friend ApproximateFloat operator/(ApproximateFloat a, ApproximateFloat b) {
    return ApproximateFloat(a.v * EstimateReciprocal(b.v));
  }
  HASTE_FN friend ApproximateFloat operator-(ApproximateFloat a) { return ApproximateFloat(-a.v); }
};

HASTE_FN ApproximateFloat MulAdd(ApproximateFloat a, ApproximateFloat b, ApproximateFloat c) {
  return ApproximateFloat(MulAdd(a.v, b.v, c.v));
}
HASTE_FN ApproximateFloat IfPositive(ApproximateFloat x, ApproximateFloat yes,
                                     ApproximateFloat no) {
  return ApproximateFloat(IfPositive(x.v, yes.v, no.v));
}
HASTE_FN ApproximateFloat AtLeast(ApproximateFloat x, ApproximateFloat low) {
  return ApproximateFloat(AtLeast(x.v, low.v));
}
HASTE_FN ApproximateFloat StopGradient(ApproximateFloat x) { return x; }
// Compares with a NaN that no instruction produces. If it occurred nevertheless, results from
// `first` and x would be NaN anyway.
HASTE_FN ApproximateFloat OrderAfter(ApproximateFloat first, ApproximateFloat x) {
  uint32_t bits;
  memcpy(&bits, &first.v, sizeof bits);
  return ApproximateFloat(bits == 0xFFFFFFFFu ? 0.0f : x.v);
}

constexpr float kLog2E = 1.44269504088896340736f;

HASTE_FN ApproximateFloat ExpNegative(ApproximateFloat x) {
  return ApproximateFloat(EstimateExp2(x.v * kLog2E));
}
HASTE_FN ApproximateFloat Sigmoid(ApproximateFloat x) {
  return ApproximateFloat(EstimateReciprocal(1.0f + EstimateExp2(x.v * -kLog2E)));
}
// 1 - 2 / (1 + e^2x); near 0, where that cancels, the first terms of the series.
HASTE_FN ApproximateFloat Tanh(ApproximateFloat x) {
  const float far =
      fmaf(-2.0f, EstimateReciprocal(1.0f + EstimateExp2(x.v * (2.0f * kLog2E))), 1.0f);
  const float near = fmaf(x.v * x.v * (-1.0f / 3.0f), x.v, x.v);
  return ApproximateFloat(fabsf(x.v) < 0.03f ? near : far);
}
HASTE_FN ApproximateFloat LogSigmoid(ApproximateFloat x) {
  const float e = EstimateExp2(-fabsf(x.v) * kLog2E);
  return ApproximateFloat(fminf(x.v, 0.0f) - EstimateLog2(1.0f + e) * (1.0f / kLog2E));
}

HASTE_TARGET_END

namespace haste {

// The scalar in which a cell is computed, for a storage type.
template <class T>
using CellScalar = std::conditional_t<sizeof(T) == 2 || std::is_same_v<T, TensorFloat> ||
                                          std::is_same_v<T, Scaled<1>>,
                                      ApproximateFloat, Compute<T>>;

}  // namespace haste
