// AVX-512 with VNNI (vpdpbusd) and BF16 (vdpbf16ps).
#if defined(__x86_64__)
#include "lib/cpu/narrow/avx512.h"

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <type_traits>

#include "lib/cpu/narrow/narrow.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")
#include "lib/cpu/narrow/avx512_pack.h"
#include "lib/cpu/narrow/avx512_tile.h"

namespace haste {
namespace {

// Step of avx512_tile.h, by an instruction that multiplies a group with a group.
template <class Type, int kRows, int kVectors>
HWY_INLINE void AddDots(const char* a, int64_t a_row, const char* b, int64_t i,
                        typename Type::V (&sum)[kRows][kVectors]) {
  __m512i w[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(b + (i * kVectors + v) * 64);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    int32_t group;
    __builtin_memcpy(&group, a + r * a_row + 4 * i, sizeof group);
    const __m512i x = _mm512_set1_epi32(group);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Type::Dot(sum[r][v], x, w[v]);
  }
}

struct Int8 {
  using V = __m512i;
  static constexpr bool kExact = true;  // in any order
  static HWY_INLINE V Zero() { return _mm512_setzero_si512(); }
  static HWY_INLINE V Start(const NarrowTile& tile, int v) {
    return tile.start == nullptr ? Zero() : _mm512_loadu_si512(tile.start + v * 16);
  }
  static HWY_INLINE V Dot(V sum, V a, V b) { return _mm512_dpbusd_epi32(sum, a, b); }
  template <int kRows, int kVectors>
  static HWY_INLINE void Step(const char* a, int64_t a_row, const char* b, int64_t i,
                              V (&sum)[kRows][kVectors]) {
    AddDots<Int8>(a, a_row, b, i, sum);
  }
  static HWY_INLINE V Add(V a, V b) { return _mm512_add_epi32(a, b); }
  static HWY_INLINE V Load(const void* from) { return _mm512_loadu_si512(from); }
  static HWY_INLINE void Store(V v, void* to) { _mm512_storeu_si512(to, v); }
};

struct Bfloat16 : FloatSums {
  static HWY_INLINE V Dot(V sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  template <int kRows, int kVectors>
  static HWY_INLINE void Step(const char* a, int64_t a_row, const char* b, int64_t i,
                              V (&sum)[kRows][kVectors]) {
    AddDots<Bfloat16>(a, a_row, b, i, sum);
  }
};

struct PackBfloat16Tiles : PackBfloat16 {
  static constexpr int kBlock = kAmxBlock;
};

// 64 columns of four rows at a time. Interleaving them leaves the columns of a vector in lanes of
// four, which change places in the end. Weights are read as unsigned, plus 128, and the operand as
// signed, so what is to be taken off the sums does not depend on the column.
HWY_INLINE void AddGroup(const __m512i (&rows)[4], int32_t group, __m512i (&sum)[4],
                         __m512i& operand_sum) {
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(128));
  const __m512i x = _mm512_xor_si512(_mm512_set1_epi32(group), sign);
  __m512i w[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) w[r] = _mm512_xor_si512(rows[r], sign);
  const __m512i low01 = _mm512_unpacklo_epi8(w[0], w[1]), high01 = _mm512_unpackhi_epi8(w[0], w[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(w[2], w[3]), high23 = _mm512_unpackhi_epi8(w[2], w[3]);
  sum[0] = _mm512_dpbusd_epi32(sum[0], _mm512_unpacklo_epi16(low01, low23), x);
  sum[1] = _mm512_dpbusd_epi32(sum[1], _mm512_unpackhi_epi16(low01, low23), x);
  sum[2] = _mm512_dpbusd_epi32(sum[2], _mm512_unpacklo_epi16(high01, high23), x);
  sum[3] = _mm512_dpbusd_epi32(sum[3], _mm512_unpackhi_epi16(high01, high23), x);
  operand_sum = _mm512_dpbusd_epi32(operand_sum, sign, x);
}

}  // namespace

void Avx512Int8MultiplyRow(const NarrowRow& product) {
  const char* b = static_cast<const char*>(product.b);
  const char* a = static_cast<const char*>(product.a);
  const int64_t row = product.row;
  __m512i sum[4], operand_sum = _mm512_setzero_si512(), rows[4];
  for (int v = 0; v < 4; ++v) sum[v] = rows[v] = _mm512_setzero_si512();
  int64_t i = 0;
  for (; i + 4 <= product.depth; i += 4, b += 4 * row) {
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) rows[r] = _mm512_loadu_si512(b + r * row);
    int32_t group;
    __builtin_memcpy(&group, a + i, sizeof group);
    AddGroup(rows, group, sum, operand_sum);
  }
  if (i < product.depth) {
    uint32_t group = 0x80808080;  // zeros
    __builtin_memcpy(&group, a + i, product.depth - i);
    for (int r = 0; r < 4; ++r) {
      rows[r] = i + r < product.depth ? _mm512_loadu_si512(b + r * row) : _mm512_setzero_si512();
    }
    AddGroup(rows, static_cast<int32_t>(group), sum, operand_sum);
  }
  // sum[v] has columns 4v to 4v + 3 of each 16: lane by lane into place.
  const __m512i a0 = _mm512_maskz_shuffle_i32x4(0xFFFF, sum[0], sum[1], 0x44);
  const __m512i a1 = _mm512_maskz_shuffle_i32x4(0xFFFF, sum[2], sum[3], 0x44);
  const __m512i a2 = _mm512_maskz_shuffle_i32x4(0xFFFF, sum[0], sum[1], 0xEE);
  const __m512i a3 = _mm512_maskz_shuffle_i32x4(0xFFFF, sum[2], sum[3], 0xEE);
  const __m512i all[4] = {_mm512_maskz_shuffle_i32x4(0xFFFF, a0, a1, 0x88),
                          _mm512_maskz_shuffle_i32x4(0xFFFF, a0, a1, 0xDD),
                          _mm512_maskz_shuffle_i32x4(0xFFFF, a2, a3, 0x88),
                          _mm512_maskz_shuffle_i32x4(0xFFFF, a2, a3, 0xDD)};
  for (int v = 0; v < 4; ++v) {
    _mm512_storeu_si512(static_cast<int32_t*>(product.sums) + v * 16,
                        _mm512_sub_epi32(all[v], operand_sum));
  }
}

void Avx512Int8Multiply(const NarrowTile& tile) { Multiply<Int8>(tile); }

void Avx512Int8Pack(const NarrowSource& source, int64_t groups, void* panel, int32_t* start) {
  Pack<PackInt8>(source, groups, panel, start);
}
void Avx512Bfloat16PackTiles(const NarrowSource& source, int64_t groups, void* panel,
                             int32_t* start) {
  Pack<PackBfloat16Tiles>(source, groups, panel, start);
}

const NarrowKernel kAvx512Int8 = {
    "AVX-512 VNNI", Narrow::kInt8,        16, 1, nullptr, nullptr, Multiply<Int8>,
    Avx512Int8Pack, Avx512Int8MultiplyRow};
const NarrowKernel kAvx512Bfloat16 = {
    "AVX-512 BF16",     Narrow::kBfloat16,  16,      1,   nullptr, nullptr,
    Multiply<Bfloat16>, Pack<PackBfloat16>, nullptr, true};

}  // namespace haste
HWY_POP_ATTRIBUTES
#endif
