// R as the product of backward reads it, and other transposed matrices. Per-target header.
#if defined(HASTE_LIB_CPU_PRODUCT_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_PRODUCT_PACK_INL_H_
#else
#define HASTE_LIB_CPU_PRODUCT_PACK_INL_H_
#endif

#include <algorithm>

#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// to[i][u] = from[u][i] for a square of 16 bytes; rows are from_row and to_row elements apart.
template <class C>
HWY_INLINE void TransposeSquare(const C* from, int64_t from_row, C* to, int64_t to_row) {
#if HWY_TARGET == HWY_SCALAR
  constexpr int kSide = 16 / sizeof(C);
  for (int u = 0; u < kSide; ++u) {
    for (int i = 0; i < kSide; ++i) to[i * to_row + u] = from[u * from_row + i];
  }
#else
  const hn::FixedTag<C, 16 / sizeof(C)> d;
  const auto load = [&](int u) HWY_ATTR { return hn::LoadU(d, from + u * from_row); };
  const auto lower = [&](auto a, auto b) HWY_ATTR { return hn::InterleaveLower(d, a, b); };
  const auto upper = [&](auto a, auto b) HWY_ATTR { return hn::InterleaveUpper(d, a, b); };
  const auto pair = [&](auto even, auto odd, int i) HWY_ATTR {
    hn::StoreU(lower(even, odd), d, to + i * to_row);
    hn::StoreU(upper(even, odd), d, to + (i + 1) * to_row);
  };
  if constexpr (sizeof(C) == 8) {
    pair(load(0), load(1), 0);
  } else {
    const auto a = load(0), b = load(1), c = load(2), e = load(3);
    pair(lower(a, c), lower(b, e), 0);
    pair(upper(a, c), upper(b, e), 2);
  }
#endif
}

// Packs a row of a forward panel: `gates` gates, H elements apart, of the hidden units [first,
// end), vector by vector, padded with 0. Returns the start of the next row.
template <class T>
HWY_INLINE Compute<T>* PackGates(const T* from, int64_t H, int gates, int64_t first, int64_t end,
                                 Compute<T>* to) {
  for (int64_t j = first; j < end; j += Width<Compute<T>>()) {
    for (int g = 0; g < gates; ++g, to += Width<Compute<T>>()) {
      Store(j < H ? LoadPart(from + g * H + j, H - j) : Vec<Compute<T>>(), to);
    }
  }
  return to;
}

// to[i][u] = from[first + u][i] for i < depth, u < columns, where columns is a multiple of a
// vector. `from` has `rows` rows, `stride` elements apart; rows after the last count as 0. It works
// in blocks that fit the first-level cache.
template <class T>
void PackTransposed(const T* from, int64_t rows, int64_t stride, int64_t first, int64_t depth,
                    int64_t columns, Compute<T>* to) {
  using C = Compute<T>;
  constexpr int64_t kBlock = 32, kSide = 16 / sizeof(C);
  const int64_t side = std::min<int64_t>(kSide, Width<C>());
  for (int64_t i0 = 0; i0 < depth; i0 += kBlock) {
    const int64_t i1 = std::min(depth, i0 + kBlock);
    for (int64_t u = 0; u < columns; u += side) {
      HWY_ALIGN C block[kSide][kBlock] = {};
      for (int64_t s = 0; s < std::min(side, rows - first - u); ++s) {
        const T* row = from + (first + u + s) * stride;
        for (int64_t i = i0; i < i1; i += Width<C>()) {
          StorePart(LoadPart(row + i, i1 - i), block[s] + (i - i0), kBlock - (i - i0));
        }
      }
      int64_t i = i0;
      if (side == kSide) {
        for (; i + kSide <= i1; i += kSide) {
          TransposeSquare(block[0] + (i - i0), kBlock, to + i * columns + u, columns);
        }
      }
      for (; i < i1; ++i) {
        for (int64_t s = 0; s < side; ++s) to[i * columns + u + s] = block[s][i - i0];
      }
    }
  }
}

HASTE_TARGET_END

#endif
