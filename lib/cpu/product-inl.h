// The micro-kernel under every matrix product of the CPU: a few rows times one packed panel,
// with all accumulators in registers. Per-target header.
//
// A panel holds `depth` rows of kVecs vectors, so that one step of the contraction is kVecs
// loads and rows × kVecs multiply-adds. One row more may stand in front: what the sums start from.
#if defined(HASTE_LIB_CPU_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_PRODUCT_INL_H_
#else
#define HASTE_LIB_CPU_PRODUCT_INL_H_
#endif

#include <type_traits>

#include "lib/cpu/simd-inl.h"

HASTE_TARGET_BEGIN

// Rows of a tile: with 4 vectors a row, accumulators, one panel row and one broadcast fill the
// 32 registers of AVX-512 or the 16 of AVX2.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 3;
#endif

// acc[r][v] += sum over i of a[r][i] · panel[i][v], in the order of i whatever kRows is: how rows
// are grouped, and so the number of threads, does not change a bit of the result.
template <int kRows, int kVecs, class C>
HWY_INLINE void TileProduct(const C* HWY_RESTRICT a, int64_t a_stride, const C* HWY_RESTRICT panel,
                            int64_t depth, Vec<C> (&acc)[kTileRows][kVecs]) {
  const int64_t width = Width<C>();
  for (int64_t i = 0; i < depth; ++i) {
    Vec<C> b[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) b[v] = Load(panel + (i * kVecs + v) * width);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec<C> x(hn::Set(hn::ScalableTag<C>(), a[r * a_stride + i]));
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = MulAdd(x, b[v], acc[r][v]);
    }
  }
}

// Calls use(row, acc[row]) for `rows` rows, after the products with the panel. depth = 0 gives 0.
template <int kVecs, bool kHasStart = false, class C, class Use>
HWY_INLINE void PanelProduct(const C* a, int64_t a_stride, int64_t rows, const C* panel,
                             int64_t depth, const Use& use) {
  const C* start = panel;
  if constexpr (kHasStart) panel += kVecs * Width<C>();
  int64_t row = 0;
  const auto tile = [&](auto count) HWY_ATTR {
    constexpr int kRows = decltype(count)::value;
    Vec<C> acc[kTileRows][kVecs];
    if constexpr (kHasStart) {
      for (int v = 0; v < kVecs; ++v) {
        const Vec<C> first = Load(start + v * Width<C>());
        for (int r = 0; r < kRows; ++r) acc[r][v] = first;
      }
    }
    TileProduct<kRows, kVecs>(a + row * a_stride, a_stride, panel, depth, acc);
    for (int r = 0; r < kRows; ++r) use(row + r, acc[r]);
    row += kRows;
  };
  while (rows - row >= kTileRows) tile(std::integral_constant<int, kTileRows>());
#if HWY_TARGET <= HWY_AVX3
  switch (rows - row) {
    case 5:
      return tile(std::integral_constant<int, 5>());
    case 4:
      return tile(std::integral_constant<int, 4>());
    case 3:
      return tile(std::integral_constant<int, 3>());
  }
#endif
  if (rows - row == 2) return tile(std::integral_constant<int, 2>());
  if (rows - row == 1) return tile(std::integral_constant<int, 1>());
}

HASTE_TARGET_END

#endif
