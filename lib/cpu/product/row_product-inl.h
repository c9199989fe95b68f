// One row times a matrix that is not packed. Per-target header.
#if defined(HASTE_LIB_CPU_PRODUCT_ROW_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_PRODUCT_ROW_PRODUCT_INL_H_
#else
#define HASTE_LIB_CPU_PRODUCT_ROW_PRODUCT_INL_H_
#endif

#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// sums[v][r] += Σ_i a[i] · b[i·row + r·run + v·W …], in the order of i. So the bits are those of
// the product with a packed panel (lib/cpu/product/product-inl.h). Reads whole vectors.
template <int kVectors, int kRuns, class T, class C = Compute<T>>
HWY_INLINE void RowProduct(const C* HWY_RESTRICT a, int64_t depth, const T* HWY_RESTRICT b,
                           int64_t row, int64_t run, Vec<C> (&sums)[kVectors][kRuns]) {
  for (int64_t i = 0; i < depth; ++i, b += row) {
    const Vec<C> x(hn::Set(hn::ScalableTag<C>(), a[i]));
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
      for (int r = 0; r < kRuns; ++r) {
        sums[v][r] = MulAdd(x, Storage<T>::Load(b + r * run + v * Width<C>()), sums[v][r]);
      }
    }
  }
}

HASTE_TARGET_END

#endif
