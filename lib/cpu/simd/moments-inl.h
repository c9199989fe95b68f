// Sums over one row, for layer normalisation. Per-target header.
//
// Every sum has one fixed order: the number of threads does not change a bit of the result.
#if defined(HASTE_LIB_CPU_SIMD_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_SIMD_MOMENTS_INL_H_
#else
#define HASTE_LIB_CPU_SIMD_MOMENTS_INL_H_
#endif

#include <math.h>

#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// The first `count` lanes of a vector; the others are set to 0, even if they hold NaN.
template <class C>
HWY_INLINE Vec<C> KeepFirst(Vec<C> v, int64_t count) {
  const hn::ScalableTag<C> d;
  if (HWY_LIKELY(count >= Width<C>())) return v;
  return Vec<C>(hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), v.v));
}

template <class C>
HWY_INLINE C SumOfLanes(Vec<C> v) {
  return hn::GetLane(hn::SumOfLanes(hn::ScalableTag<C>(), v.v));
}

// Sum of the vectors at(j) over j = 0, W, 2W … < features, without the lanes from `features` on.
// Four partial sums hide the latency of an addition.
template <class C, class At>
HWY_INLINE Vec<C> SumRow(int64_t features, const At& at) {
  const int64_t width = Width<C>();
  Vec<C> sum[4];
  int64_t j = 0;
  for (; j + 4 * width <= features; j += 4 * width) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum[i] = sum[i] + at(j + i * width);
  }
  for (; j + width <= features; j += width) sum[0] = sum[0] + at(j);
  if (j < features) sum[1] = sum[1] + KeepFirst(at(j), features - j);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// v̂ = (v - mean) · scale.
template <class C>
struct Moments {
  Vec<C> mean, scale;
  HWY_INLINE Vec<C> Normed(Vec<C> v) const { return (v - mean) * scale; }
  // Gradient of v, given that of v̂ at the same place and the sums of d and of d ∘ v̂ over the row,
  // divided by its length.
  HWY_INLINE Vec<C> Backward(Vec<C> d, Vec<C> normed, Vec<C> mean_d, Vec<C> mean_product) const {
    return scale * (d - MulAdd(normed, mean_product, mean_d));
  }
};

// The moments of a row of `parts` pieces of `features` elements each: at(part, j). The variance is
// the mean square of v - mean(v), because mean(v²) - mean(v)² loses all digits if the mean is
// large.
template <class C, class At>
HWY_INLINE Moments<C> RowMoments(int parts, int64_t features, C epsilon, const At& at) {
  const C share = C(1) / (static_cast<C>(features) * static_cast<C>(parts));
  Vec<C> total;
  for (int p = 0; p < parts; ++p) {
    total = total + SumRow<C>(features, [&](int64_t j) HWY_ATTR { return at(p, j); });
  }
  const Vec<C> mean(SumOfLanes(total) * share);
  Vec<C> squares;
  for (int p = 0; p < parts; ++p) {
    squares = squares + SumRow<C>(features, [&](int64_t j) HWY_ATTR {
                const Vec<C> rest = at(p, j) - mean;
                return rest * rest;
              });
  }
  return {mean, Vec<C>(C(1) / sqrt(SumOfLanes(squares) * share + epsilon))};
}

HASTE_TARGET_END

#endif
