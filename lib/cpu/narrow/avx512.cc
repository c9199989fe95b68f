// AVX-512 with VNNI (vpdpbusd) and BF16 (vdpbf16ps).
#if defined(__x86_64__)
#include "lib/cpu/narrow/avx512.h"

#include <hwy/base.h>
#include <immintrin.h>

#include "lib/cpu/narrow/narrow.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")
namespace haste {
namespace {

struct Int8 {
  using V = __m512i;
  static HWY_INLINE V Zero() { return _mm512_setzero_si512(); }
  static HWY_INLINE V Start(const NarrowTile& tile, int v) {
    return tile.start == nullptr ? Zero() : _mm512_loadu_si512(tile.start + v * 16);
  }
  static HWY_INLINE V Dot(V sum, V a, V b) { return _mm512_dpbusd_epi32(sum, a, b); }
  static HWY_INLINE V Add(V a, V b) { return _mm512_add_epi32(a, b); }
  static HWY_INLINE void Store(V v, void* to) { _mm512_storeu_si512(to, v); }
};

struct Bfloat16 {
  using V = __m512;
  static HWY_INLINE V Zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE V Start(const NarrowTile&, int) { return Zero(); }
  static HWY_INLINE V Dot(V sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static HWY_INLINE V Add(V a, V b) { return _mm512_add_ps(a, b); }
  static HWY_INLINE void Store(V v, void* to) { _mm512_storeu_ps(to, v); }
};

// Adds the products with group i.
template <class Type, int kRows, int kVectors>
HWY_INLINE void Step(const char* a, int64_t a_row, const char* b, int64_t i,
                     typename Type::V (&sum)[kRows][kVectors]) {
  __m512i w[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(b + (i * kVectors + v) * 64);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    int32_t group;
    __builtin_memcpy(&group, a + r * a_row + 4 * i, sizeof group);
    const __m512i x = _mm512_set1_epi32(group);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Type::Dot(sum[r][v], x, w[v]);
  }
}

// kRows rows. Even and odd groups have sums of their own, which hides the latency of an
// instruction.
template <class Type, int kRows, int kVectors>
HWY_INLINE void Rows(const NarrowTile& tile, int64_t row) {
  const char* a = static_cast<const char*>(tile.a) + row * tile.a_row;
  const char* b = static_cast<const char*>(tile.panel);
  typename Type::V sum[2][kRows][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const typename Type::V start = Type::Start(tile, v);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      sum[0][r][v] = start;
      sum[1][r][v] = Type::Zero();
    }
  }
  int64_t i = 0;
  for (; i + 2 <= tile.groups; i += 2) {
    Step<Type>(a, tile.a_row, b, i, sum[0]);
    Step<Type>(a, tile.a_row, b, i + 1, sum[1]);
  }
  if (i < tile.groups) Step<Type>(a, tile.a_row, b, i, sum[0]);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    char* to = static_cast<char*>(tile.sums) + (row + r) * kVectors * 64;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Type::Store(Type::Add(sum[0][r][v], sum[1][r][v]), to + v * 64);
    }
  }
}

template <class Type, int kVectors>
void AllRows(const NarrowTile& tile) {
  int64_t row = 0;
  for (; row + 3 <= tile.rows; row += 3) Rows<Type, 3, kVectors>(tile, row);
  if (row + 2 == tile.rows) return Rows<Type, 2, kVectors>(tile, row);
  if (row < tile.rows) Rows<Type, 1, kVectors>(tile, row);
}

template <class Type>
void Multiply(const NarrowTile& tile) {
  switch (tile.vectors) {
    case 1:
      return AllRows<Type, 1>(tile);
    case 2:
      return AllRows<Type, 2>(tile);
    case 3:
      return AllRows<Type, 3>(tile);
    default:
      return AllRows<Type, 4>(tile);
  }
}

}  // namespace

void Avx512Int8Multiply(const NarrowTile& tile) { Multiply<Int8>(tile); }

const NarrowKernel kAvx512Int8 = {"AVX-512 VNNI", Narrow::kInt8, 16, 1, nullptr,
                                  nullptr,        Multiply<Int8>};
const NarrowKernel kAvx512Bfloat16 = {"AVX-512 BF16", Narrow::kBfloat16, 16, 1, nullptr,
                                      nullptr,        Multiply<Bfloat16>};

}  // namespace haste
HWY_POP_ATTRIBUTES
#endif
