// int8 on vectors of AVX2, for each way to multiply and add four bytes (AVX2, AVX-VNNI). Include it
// after HWY_PUSH_ATTRIBUTES, so that it is compiled for that target.
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include "lib/cpu/narrow/narrow.h"

namespace haste {
namespace {

// Rows [row, row + kRows) times kVectors vectors of 8 columns, from `column` on.
//
// Dot::Weights is a vector of weights as it is multiplied, Dot::Operand makes one of four bytes of
// a row, Dot::Add adds their products to a sum.
template <class Dot, int kRows, int kVectors>
HWY_INLINE void Tile(const NarrowTile& tile, int64_t row, int64_t column, int64_t columns) {
  const uint8_t* a = static_cast<const uint8_t*>(tile.a) + row * tile.a_row;
  const int8_t* b = static_cast<const int8_t*>(tile.panel) + 4 * column;
  __m256i sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const __m256i start =
        tile.start == nullptr
            ? _mm256_setzero_si256()
            : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile.start + column + 8 * v));
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r][v] = start;
  }
  for (int64_t i = 0; i < tile.groups; ++i, b += 4 * columns) {
    typename Dot::Weights w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      w[v] =
          typename Dot::Weights(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 32 * v)));
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a + r * tile.a_row + 4 * i, sizeof four);
      const __m256i x = Dot::Operand(_mm256_set1_epi32(four));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Dot::Add(sum[r][v], x, w[v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    int32_t* to = static_cast<int32_t*>(tile.sums) + (row + r) * columns + column;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * v), sum[r][v]);
    }
  }
}

// All rows, times kVectors vectors. The sums of a tile, up to eight, are in registers.
template <class Dot, int kVectors>
HWY_INLINE void Columns(const NarrowTile& tile, int64_t column, int64_t columns) {
  constexpr int kRows = kVectors > 2 ? 2 : 4;
  int64_t row = 0;
  for (; row + kRows <= tile.rows; row += kRows) {
    Tile<Dot, kRows, kVectors>(tile, row, column, columns);
  }
  for (; row < tile.rows; ++row) Tile<Dot, 1, kVectors>(tile, row, column, columns);
}

// kHalves vectors of 8 columns are one of the panel's.
template <class Dot, int kHalves>
void MultiplyInt8(const NarrowTile& tile) {
  const int64_t columns = int64_t{tile.vectors} * 8 * kHalves;
  int64_t column = 0;
  for (; column + 32 <= columns; column += 32) Columns<Dot, 4>(tile, column, columns);
  switch ((columns - column) / 8) {
    case 3: return Columns<Dot, 3>(tile, column, columns);
    case 2: return Columns<Dot, 2>(tile, column, columns);
    case 1: return Columns<Dot, 1>(tile, column, columns);
  }
}

}  // namespace
}  // namespace haste
