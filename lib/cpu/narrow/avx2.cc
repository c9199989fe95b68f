// int8 by vpmaddwd: exact, where vpmaddubsw would saturate. Also for AVX-512 without VNNI.
#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include "lib/cpu/narrow/narrow.h"

HWY_PUSH_ATTRIBUTES("avx2")
namespace haste {
namespace {

// kHalves vectors of 8 columns are one of the panel's. Rows in kRows, so that the weights are
// widened once for all of them.
template <int kRows>
HWY_INLINE void Rows(const NarrowTile& tile, int64_t row, int64_t column, int64_t columns) {
  const uint8_t* a = static_cast<const uint8_t*>(tile.a) + row * tile.a_row;
  const int8_t* b = static_cast<const int8_t*>(tile.panel) + 4 * column;
  const __m256i low = _mm256_set1_epi16(0xFF);
  __m256i sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    sum[r] = tile.start == nullptr
                 ? _mm256_setzero_si256()
                 : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile.start + column));
  }
  for (int64_t i = 0; i < tile.groups; ++i, b += 4 * columns) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
    const __m256i odd = _mm256_srai_epi16(w, 8);
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a + r * tile.a_row + 4 * i, sizeof four);
      const __m256i x = _mm256_set1_epi32(four);
      const __m256i of_even = _mm256_madd_epi16(even, _mm256_and_si256(x, low));
      const __m256i of_odd = _mm256_madd_epi16(odd, _mm256_srli_epi16(x, 8));
      sum[r] = _mm256_add_epi32(sum[r], _mm256_add_epi32(of_even, of_odd));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    int32_t* to = static_cast<int32_t*>(tile.sums) + (row + r) * columns + column;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sum[r]);
  }
}

template <int kHalves>
void Multiply(const NarrowTile& tile) {
  const int64_t columns = int64_t{tile.vectors} * 8 * kHalves;
  for (int64_t column = 0; column < columns; column += 8) {
    int64_t row = 0;
    for (; row + 4 <= tile.rows; row += 4) Rows<4>(tile, row, column, columns);
    for (; row < tile.rows; ++row) Rows<1>(tile, row, column, columns);
  }
}

}  // namespace

const NarrowKernel kAvx2Int8 = {"AVX2",  Narrow::kInt8, 8,       1,      nullptr,
                                nullptr, Multiply<1>,   nullptr, nullptr};
const NarrowKernel kAvx2Int8Wide = {"AVX2",  Narrow::kInt8, 16,      1,      nullptr,
                                    nullptr, Multiply<2>,   nullptr, nullptr};

}  // namespace haste
HWY_POP_ATTRIBUTES
#endif
