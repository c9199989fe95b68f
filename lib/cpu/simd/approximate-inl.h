// ApproximateVec: a vector of float whose activations are as exact as 16 bits of storage or int8
// weights need, in about half of the instructions. lib/cuda/ptx/fast_math.cuh is the same on a GPU.
// Cells are written for any vector and find these functions by its type. Per-target header.
//
// Largest relative error; tests/lib/approximate_test.cc holds every function to this table on every
// SIMD target:
//
//   ExpNegative   1.0e-5   x in [-87, 0]; below: absolute, < 2e-38
//   Sigmoid       1.0e-5   x >= -87; below: absolute, < 2e-38
//   Tanh          2.0e-5   every x
//   LogSigmoid    1.0e-5   x <= 87; above: absolute, < 2e-38
//
// NaN gives NaN, tanh(x) has the sign of x, and |tanh| and sigmoid are never above 1. Divisions are
// exact: in a loop over vectors an estimate of the reciprocal saves 2 clocks of 31 on a Zen 5.
#if defined(HASTE_LIB_CPU_SIMD_APPROXIMATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_SIMD_APPROXIMATE_INL_H_
#else
#define HASTE_LIB_CPU_SIMD_APPROXIMATE_INL_H_
#endif

#include <hwy/highway.h>

#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// What these operations of Vec would return is a Vec, whose activations are the exact ones.
struct ApproximateVec : Vec<float>, VecOperations<ApproximateVec, float> {
  using Base = Vec<float>;
  using A = ApproximateVec;
  using Base::D, Base::Raw, Base::Scalar;

  HWY_INLINE ApproximateVec() = default;
  HWY_INLINE ApproximateVec(Base exact) : Base(exact) {}  // NOLINT: converts
  explicit HWY_INLINE ApproximateVec(Raw raw) : Base(raw) {}
  explicit HWY_INLINE ApproximateVec(double x) : Base(x) {}

  // Coefficients are minimax in the relative error.
  //
  // e^(sign · x) = 2^n · 2^f, n an integer, and 2^f for f in [0, 1] to 3.4e-6, exact at 0 and 1.
  // The error of rounding x · log2(e) counts as much at the ends.
  static HWY_INLINE A Exp(A x, double sign) {
    A t = x * A(sign * 1.44269504088896340736);
#if HWY_TARGET == HWY_AVX3
    const A f(Raw{_mm512_maskz_reduce_ps(0xFFFF, t.v.raw, 0x09)});  // t - floor(t); infinity: 0
    return A(Raw{_mm512_maskz_scalef_ps(0xFFFF, PowerOf2(f).v.raw, t.v.raw)});  // · 2^floor(t)
#else
    t = AtMost(AtLeast(t, A(-126.0)), A(127.0));
    const A shifted = (t - A(0.5)) + A(Precision<float>::kShifter);
    const A f = t - (shifted - A(Precision<float>::kShifter));
    return PowerOf2(f) * Pow2(shifted);
#endif
  }
  static HWY_INLINE A PowerOf2(A f) {
    const A square = f * f;
    const A low = MulAdd(A(0.6930321208196779), f, A(1.0));
    const A high = MulAdd(A(0.052032369009688106), f, A(0.24137976293660457));
    return MulAdd(MulAdd(A(0.013555747234029355), square, high), square, low);
  }

  friend HWY_INLINE A ExpNegative(A x) { return Exp(x, 1.0); }
  friend HWY_INLINE A Sigmoid(A x) { return A(1.0) / (A(1.0) + Exp(x, -1.0)); }

  // x · P(x²) / Q(x²), to 7.4e-6 up to 6. tanh is within 1.3e-5 of 1 from there on.
  friend HWY_INLINE A Tanh(A x) {
    x = AtMost(AtLeast(x, A(-6.0)), A(6.0));
    const A u = x * x, square = u * u;
    const A p = MulAdd(MulAdd(A(0.001514576005654211), u, A(0.11483069183728048)), u,
                       A(0.9999926750577541));
    const A q = MulAdd(MulAdd(A(5.627184391892757e-05), u, A(0.01761114477202824)), square,
                       MulAdd(A(0.4481139141474936), u, A(1.0)));
    return x * p / q;
  }

  // min(x, 0) - log(1 + e), e = e^(-|x|); log(1 + e) = e · P(e), to 1.3e-6.
  friend HWY_INLINE A LogSigmoid(A x) {
    const A e = Exp(Abs(x), -1.0), square = e * e, fourth = square * square;
    const A p01 = MulAdd(A(-0.49986965669071426), e, A(0.9999987315470291));
    const A p23 = MulAdd(A(-0.2350386100518291), e, A(0.33109449189537354));
    const A p45 = MulAdd(A(-0.06640180546052646), e, A(0.14922388352364263));
    const A high = MulAdd(A(0.014141025021848469), square, p45);
    const A p = MulAdd(high, fourth, MulAdd(p23, square, p01));
    return MulAdd(-e, p, -AtLeast(-x, A(0.0)));
  }
};

HASTE_TARGET_END

#endif
