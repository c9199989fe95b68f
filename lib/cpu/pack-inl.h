// R as the product of backward reads it. Per-target header.
#if defined(HASTE_LIB_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_PACK_INL_H_
#else
#define HASTE_LIB_CPU_PACK_INL_H_
#endif

#include <algorithm>

#include "lib/cpu/simd-inl.h"

HASTE_TARGET_BEGIN

// to[i][u] = from[first + u][i] for i < depth, u < columns; rows of `from` lie `stride` apart and
// there are `rows` of them, 0 behind the last. By blocks that stay in the first-level cache.
template <class T>
void PackTransposed(const T* from, int64_t rows, int64_t stride, int64_t first, int64_t depth,
                    int64_t columns, Compute<T>* to) {
  using C = Compute<T>;
  constexpr int64_t kBlock = 32;
  for (int64_t i0 = 0; i0 < depth; i0 += kBlock) {
    const int64_t i1 = std::min(depth, i0 + kBlock);
    for (int64_t u = 0; u < columns; ++u) {
      HWY_ALIGN C row[kBlock] = {};
      if (first + u < rows) {
        for (int64_t i = i0; i < i1; i += Width<C>()) {
          StorePart(LoadPart(from + (first + u) * stride + i, i1 - i), row + (i - i0), i1 - i);
        }
      }
      for (int64_t i = i0; i < i1; ++i) to[i * columns + u] = row[i - i0];
    }
  }
}

HASTE_TARGET_END

#endif
