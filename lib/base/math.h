// Exp, Tanh, Sigmoid and its logarithm for every scalar that a cell is instantiated with: float and
// double here, vectors of them in lib/cpu/simd/simd-inl.h. One formula serves all of them, on CPU
// and GPU.
//
// Largest error, in units in the last place (ULP) of the exact result; tests/lib/math_test.cc
// holds every function to this table.
//
// clang-format off
//   function      float   double   range
//   ExpNegative     2       2      x in [-87, 0] (double: [-708, 0]); below: clamped, absolute
//                                  error < 2e-38 (double: 5e-308)
//   Tanh            4       4      every x
//   Sigmoid         3       3      x >= -87 (double: -708); below: as ExpNegative
//   LogSigmoid      4       4      every x <= 87 (double: 708); above: absolute, as ExpNegative
// clang-format on
//
// NaN gives NaN. None of them raises, allocates or branches on data.
#if defined(HASTE_LIB_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_MATH_H_
#else
#define HASTE_LIB_MATH_H_
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/per_target.h"

HASTE_TARGET_BEGIN

// The operations that the formulas below use; lib/cpu/simd/simd-inl.h defines them for vectors.
HASTE_FN float MulAdd(float a, float b, float c) { return fmaf(a, b, c); }
HASTE_FN double MulAdd(double a, double b, double c) { return fma(a, b, c); }
HASTE_FN float Abs(float x) { return fabsf(x); }
HASTE_FN double Abs(double x) { return fabs(x); }
HASTE_FN float CopySign(float magnitude, float sign) { return copysignf(magnitude, sign); }
HASTE_FN double CopySign(double magnitude, double sign) { return copysign(magnitude, sign); }
// x > 0 ? yes : no, so that NaN takes `no`.
HASTE_FN float IfPositive(float x, float yes, float no) { return x > 0.0f ? yes : no; }
HASTE_FN double IfPositive(double x, double yes, double no) { return x > 0.0 ? yes : no; }
// max(x, low) and min(x, high), but NaN if x is NaN.
HASTE_FN float AtLeast(float x, float low) { return x < low ? low : x; }
HASTE_FN double AtLeast(double x, double low) { return x < low ? low : x; }
HASTE_FN float AtMost(float x, float high) { return x > high ? high : x; }
HASTE_FN double AtMost(double x, double high) { return x > high ? high : x; }
// x as a constant for automatic differentiation (the dual numbers of the tests).
HASTE_FN float StopGradient(float x) { return x; }
HASTE_FN double StopGradient(double x) { return x; }
// x, but the compiler must compute `first` before anything that uses the result. Otherwise it may
// delay `first` until nothing is left to hide its latency. Only ApproximateFloat generates code.
template <class V>
HASTE_FN V OrderAfter(V, V x) {
  return x;
}
// a / b for b in [1, 2^126], where the quotient is not above 2. General division on a GPU is a
// branch and a call. An estimate of the reciprocal with one Newton step and one remainder step
// differs from it by at most two ULP.
HASTE_FN float Divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  r = fmaf(r, fmaf(-b, r, 1.0f), r);
  const float q = a * r;
  return fmaf(r, fmaf(-b, q, a), q);
#else
  return a / b;
#endif
}
HASTE_FN double Divide(double a, double b) { return a / b; }
// 2^n, where shifted = n + Precision::kShifter holds the integer n in its low mantissa bits.
HASTE_FN float Pow2(float shifted) {
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3F800000u;
  memcpy(&shifted, &bits, sizeof bits);
  return shifted;
}
HASTE_FN double Pow2(double shifted) {
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 52) + 0x3FF0000000000000u;
  memcpy(&shifted, &bits, sizeof bits);
  return shifted;
}

// The scalar type of which V holds one or many.
template <class V>
struct ScalarOf {
  using type = typename V::Scalar;
};
template <>
struct ScalarOf<float> {
  using type = float;
};
template <>
struct ScalarOf<double> {
  using type = double;
};

template <class Scalar>
struct Precision;
template <>
struct Precision<float> {
  static constexpr int kLogTerms = 7;  // of artanh(s) / s on s <= 1/3: 1e-9
  static constexpr float kShifter = 12582912.0f;
  static constexpr float kLn2High = 0.693359375f;  // few bits: n·kLn2High is exact
  static constexpr float kLn2Low = -2.12194440e-4f;
  static constexpr float kLowest = -87.0f;
};
template <>
struct Precision<double> {
  static constexpr int kLogTerms = 16;  // 2e-18
  static constexpr double kShifter = 6755399441055744.0;
  static constexpr double kLn2High = 6.93145751953125e-1;
  static constexpr double kLn2Low = 1.42860682030941723212e-6;
  static constexpr double kLowest = -708.0;
};

// (e^r - 1 - r) / r² on |r| <= ln(2)/2. square: r².
template <class V>
HASTE_FN V ExpSeries(V r, V square) {
  if constexpr (sizeof(typename ScalarOf<V>::type) == sizeof(float)) {
    // Minimax: an error of 3e-9 in e^r, against 7e-9 for a Taylor series of one term more. By
    // Estrin's scheme: a cell is bound by its longest chain of operations.
    const V low = MulAdd(V(0.16666519523887691), r, V(0.49999993373064433));
    const V mid = MulAdd(V(0.0083688510853562759), r, V(0.041668401088147324));
    return MulAdd(MulAdd(V(0.0013814320359622231), square, mid), square, low);
  } else {
    constexpr int kTerms = 13;  // 1/2! + r/3! + r²/4! … + r¹¹/13!, by Horner: 5e-18
    double factorial = 6227020800.0;
    V poly(1.0 / factorial);
#if defined(__CUDA_ARCH__)
#pragma unroll
#elif !defined(__CUDACC__)
#pragma GCC unroll 16
#endif
    for (int i = kTerms - 1; i >= 2; --i) {
      factorial /= i + 1;
      poly = MulAdd(poly, r, V(1.0 / factorial));
    }
    return poly;
  }
}

// For |factor · x| <= -kLowest: e^(factor · x) = power · (1 + rest), with power a power of two and
// |rest| < 0.42. factor: a power of two or its negative, so that the product is exact.
template <class V>
HASTE_FN void SplitExp(V x, double factor, V* power, V* rest) {
  using P = Precision<typename ScalarOf<V>::type>;
  const V shifted = MulAdd(x, V(factor * 1.44269504088896340736), V(P::kShifter));
  const V n = shifted - V(P::kShifter);
  const V scaled = factor == 1.0 ? x : x * V(factor);
  const V r = MulAdd(n, V(-P::kLn2Low), MulAdd(n, V(-P::kLn2High), scaled));
  const V square = r * r;
  *rest = MulAdd(ExpSeries(r, square), square, r);
  *power = Pow2(shifted);
}

// e^x for x <= 0.
template <class V>
HASTE_FN V ExpNegative(V x) {
  using P = Precision<typename ScalarOf<V>::type>;
  V power(0.0), rest(0.0);
  SplitExp(AtLeast(x, V(P::kLowest)), 1.0, &power, &rest);
  return MulAdd(power, rest, power);
}

// With e = e^(-2|x|) - 1:  tanh |x| = -e / (2 + e).
template <class V>
HASTE_FN V Tanh(V x) {
  using P = Precision<typename ScalarOf<V>::type>;
  V power(0.0), rest(0.0);
  SplitExp(AtMost(Abs(x), V(P::kLowest / -2)), -2.0, &power, &rest);
  const V e = MulAdd(power, rest, power - V(1.0));
  return CopySign(Divide(e, V(2.0) + e), x);
}

// With e = e^x:  sigmoid(x) = e / (1 + e).
template <class V>
HASTE_FN V Sigmoid(V x) {
  using P = Precision<typename ScalarOf<V>::type>;
  V power(0.0), rest(0.0);
  SplitExp(AtMost(AtLeast(x, V(P::kLowest)), V(-P::kLowest)), 1.0, &power, &rest);
  const V e = MulAdd(power, rest, power);
  return Divide(e, V(1.0) + e);
}

// log sigmoid(x) = min(x, 0) - log(1 + e), e = e^(-|x|), and with s = e / (2 + e) <= 1/3:
// log(1 + e) = 2 artanh(s) = 2 (s + s³/3 + s⁵/5 …).
template <class V>
HASTE_FN V LogSigmoid(V x) {
  using P = Precision<typename ScalarOf<V>::type>;
  const V e = ExpNegative(-Abs(x));
  const V s = e / (V(2.0) + e);
  const V square = s * s;
  V series(1.0 / (2 * P::kLogTerms + 1));
#if defined(__CUDA_ARCH__)
#pragma unroll
#elif !defined(__CUDACC__)
#pragma GCC unroll 16
#endif
  for (int i = P::kLogTerms - 1; i >= 1; --i) series = MulAdd(series, square, V(1.0 / (2 * i + 1)));
  series = MulAdd(series * square, s, s);
  return MulAdd(V(-2.0), series, -AtLeast(-x, V(0.0)));
}

HASTE_TARGET_END

#endif
