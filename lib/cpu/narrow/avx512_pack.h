// Packs panels of 16 columns on AVX-512. Include it after
// HWY_PUSH_ATTRIBUTES, so that it is compiled for that target.
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include "lib/cpu/narrow/narrow.h"

namespace haste {
namespace {

HWY_INLINE __m128i Load16(const char* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
HWY_INLINE __m256i Load32(const char* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// Packing reads 16 columns of the rows of a group, `row` bytes apart: one row after the other in a
// vector, in which they then change places. With a mask of all lanes where GCC 12 would warn that
// lanes are not initialised.
struct PackInt8 {
  static constexpr int kBlock = 1;  // NarrowKernel::block
  static constexpr int kRows = 4;
  static constexpr int kBytes = 16;  // of a row
  static HWY_INLINE __m512i Group(const char* from, int64_t row) {
    __m512i v = _mm512_castsi128_si512(Load16(from));
    v = _mm512_mask_broadcast_i32x4(v, 0x00F0, Load16(from + row));
    v = _mm512_mask_broadcast_i32x4(v, 0x0F00, Load16(from + 2 * row));
    v = _mm512_mask_broadcast_i32x4(v, 0xF000, Load16(from + 3 * row));
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_maskz_broadcast_i32x4(
        0xFFFF, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm512_shuffle_epi8(_mm512_maskz_permutexvar_epi32(0xFFFF, lanes, v), bytes);
  }
};

struct PackBfloat16 {
  static constexpr int kBlock = 1;
  static constexpr int kRows = 2;
  static constexpr int kBytes = 32;
  static HWY_INLINE __m512i Group(const char* from, int64_t row) {
    __m512i v = _mm512_castsi256_si512(Load32(from));
    v = _mm512_mask_broadcast_i64x4(v, 0xF0, Load32(from + row));
    // Elements 0, 16, 1, 17, …: pairs of 16 bits.
    const __m512i pairs = _mm512_setr_epi32(
        0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008,
        0x190009, 0x1A000A, 0x1B000B, 0x1C000C, 0x1D000D, 0x1E000E, 0x1F000F);
    return _mm512_permutexvar_epi16(pairs, v);
  }
};

// Groups [first, end) of a panel. Adds up in `start` what an operand that stands for 0 gives.
template <class Type, int kVectors>
HWY_INLINE void PackGroups(const NarrowSource& source, int64_t panel, int64_t first, int64_t end,
                           char* to, int32_t* start) {
  constexpr int kRows = Type::kRows, kBytes = Type::kBytes, kBlock = Type::kBlock;
  constexpr bool kInt8 = kRows == 4;
  const __m512i zero_point = _mm512_set1_epi8(static_cast<char>(128));
  const char* from[kVectors];
  __m512i sum[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    from[v] = static_cast<const char*>(source.from) + source.at[v] + panel * source.next;
    sum[v] = kInt8 ? _mm512_loadu_si512(start + v * 16) : _mm512_setzero_si512();
  }
  const auto at = [&](int64_t i, int v) {
    return to + ((i / kBlock * kVectors + v) * kBlock + i % kBlock) * 64;
  };
  const int64_t row = source.row, whole = std::min(end, source.depth / kRows);
  for (int64_t i = first; i < whole; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512i group = Type::Group(from[v] + i * kRows * row, row);
      _mm512_storeu_si512(at(i, v), group);
      if constexpr (kInt8) sum[v] = _mm512_dpbusd_epi32(sum[v], zero_point, group);
    }
  }
  for (int64_t i = std::max(first, whole); i < end; ++i) {  // zeros for rows that are missing
    const int64_t left = std::clamp<int64_t>(source.depth - i * kRows, 0, kRows);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      char rows[kRows * kBytes] = {};
      for (int64_t r = 0; r < left; ++r) {
        __builtin_memcpy(rows + r * kBytes, from[v] + (i * kRows + r) * row, kBytes);
      }
      const __m512i group = Type::Group(rows, kBytes);
      _mm512_storeu_si512(at(i, v), group);
      if constexpr (kInt8) sum[v] = _mm512_dpbusd_epi32(sum[v], zero_point, group);
    }
  }
  if constexpr (kInt8) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_si512(start + v * 16, sum[v]);
  }
}

// Some groups of all panels at a time, whose rows stay in the first-level cache.
template <class Type, int kVectors>
void PackPanels(const NarrowSource& source, int64_t groups, void* panel, int32_t* start) {
  constexpr int64_t kGroups = 16;
  constexpr bool kInt8 = Type::kRows == 4;
  char* const to = static_cast<char*>(panel);
  const auto start_of = [&](int64_t p) {
    return reinterpret_cast<int32_t*>(reinterpret_cast<char*>(start) + p * source.apart);
  };
  for (int64_t p = 0; kInt8 && p < source.panels; ++p) {
    __builtin_memset(start_of(p), 0, kVectors * 64);
  }
  for (int64_t first = 0; first < groups; first += kGroups) {
    const int64_t end = std::min(groups, first + kGroups);
    for (int64_t p = 0; p < source.panels; ++p) {
      PackGroups<Type, kVectors>(source, p, first, end, to + p * source.apart, start_of(p));
    }
  }
  for (int64_t p = 0; kInt8 && p < source.panels; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      int32_t* const of_vector = start_of(p) + v * 16;
      _mm512_storeu_si512(of_vector,
                          _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(of_vector)));
    }
  }
}

template <class Type>
void Pack(const NarrowSource& source, int64_t groups, void* panel, int32_t* start) {
  switch (source.vectors) {
    case 1: return PackPanels<Type, 1>(source, groups, panel, start);
    case 2: return PackPanels<Type, 2>(source, groups, panel, start);
    case 3: return PackPanels<Type, 3>(source, groups, panel, start);
    default: return PackPanels<Type, 4>(source, groups, panel, start);
  }
}

}  // namespace
}  // namespace haste
