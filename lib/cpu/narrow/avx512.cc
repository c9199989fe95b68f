// AVX-512 with VNNI (vpdpbusd) and BF16 (vdpbf16ps).
#if defined(__x86_64__)
#include "lib/cpu/narrow/avx512.h"

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <type_traits>

#include "lib/cpu/narrow/narrow.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")
namespace haste {
namespace {

struct Int8 {
  using V = __m512i;
  static constexpr bool kExact = true;  // in any order
  static HWY_INLINE V Zero() { return _mm512_setzero_si512(); }
  static HWY_INLINE V Start(const NarrowTile& tile, int v) {
    return tile.start == nullptr ? Zero() : _mm512_loadu_si512(tile.start + v * 16);
  }
  static HWY_INLINE V Dot(V sum, V a, V b) { return _mm512_dpbusd_epi32(sum, a, b); }
  static HWY_INLINE V Add(V a, V b) { return _mm512_add_epi32(a, b); }
  static HWY_INLINE V Load(const void* from) { return _mm512_loadu_si512(from); }
  static HWY_INLINE void Store(V v, void* to) { _mm512_storeu_si512(to, v); }
};

struct Bfloat16 {
  using V = __m512;
  static constexpr bool kExact = false;
  static HWY_INLINE V Zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE V Start(const NarrowTile&, int) { return Zero(); }
  static HWY_INLINE V Dot(V sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static HWY_INLINE V Add(V a, V b) { return _mm512_add_ps(a, b); }
  static HWY_INLINE V Load(const void* from) { return _mm512_loadu_ps(from); }
  static HWY_INLINE void Store(V v, void* to) { _mm512_storeu_ps(to, v); }
};

// Adds the products with group i.
template <class Type, int kRows, int kVectors>
HWY_INLINE void Step(const char* a, int64_t a_row, const char* b, int64_t i,
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

// kRows rows with the groups [first, end). kChains = 2: those from `end` to the last one too, side
// by side with sums of their own, which hides the latency of an instruction. kAdds: to what the
// sums were before.
template <class Type, int kRows, int kVectors, int kChains, bool kAdds>
HWY_INLINE void Rows(const NarrowTile& tile, int64_t row, int64_t first, int64_t end) {
  const char* a = static_cast<const char*>(tile.a) + row * tile.a_row;
  const char* b = static_cast<const char*>(tile.panel);
  char* to = static_cast<char*>(tile.sums) + row * kVectors * 64;
  typename Type::V sum[kChains][kRows][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const typename Type::V start = kAdds ? Type::Zero() : Type::Start(tile, v);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum[0][r][v] = start;
      if constexpr (kChains > 1) sum[1][r][v] = Type::Zero();
    }
  }
  int64_t i = first;
  if constexpr (kChains > 1) {
    for (const int64_t second = end - first; i + second < tile.groups; ++i) {
      Step<Type>(a, tile.a_row, b, i, sum[0]);
      Step<Type>(a, tile.a_row, b, i + second, sum[1]);
    }
  }
  for (; i < end; ++i) Step<Type>(a, tile.a_row, b, i, sum[0]);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      char* const at = to + (r * kVectors + v) * 64;
      typename Type::V all = sum[0][r][v];
      if constexpr (kChains > 1) all = Type::Add(all, sum[1][r][v]);
      if constexpr (kAdds) all = Type::Add(Type::Load(at), all);
      if constexpr (!Type::kExact && (kAdds || kChains > 1)) {  // all groups are there
        if (tile.bias != nullptr) all = Type::Add(all, Type::Load(tile.bias + v * 16));
      }
      Type::Store(all, at);
    }
  }
}

template <class Type, int kRows, int kVectors>
HWY_NOINLINE void OneChain(const NarrowTile& tile) {
  Rows<Type, kRows, kVectors, 1, false>(tile, 0, 0, tile.groups);
}

// Calls run with `rows`, of 1 to kMost, as a constant.
template <int kMost, class Run>
HWY_INLINE void WithRows(int64_t rows, const Run& run) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return WithRows<kMost - 1>(rows, run);
  }
  run(std::integral_constant<int, kMost>());
}

// The fewest tiles that hold their sums in registers, of about the same number of rows. More rows
// read the panel less often: it may be larger than the first-level cache. kPart: the groups, where
// more than three rows have one chain of sums.
enum Part { kAll, kFirstHalf, kSecondHalf };
template <class Type, int kVectors, Part kPart>
HWY_INLINE void Tiles(const NarrowTile& tile) {
  constexpr int kMost = kVectors == 3 ? 8 : 6;
  const int64_t half = (tile.groups + 1) / 2;
  int64_t tiles = (tile.rows + kMost - 1) / kMost;
  for (int64_t row = 0; tiles > 0; --tiles) {
    const int64_t rows = (tile.rows - row + tiles - 1) / tiles;
    WithRows<kMost>(rows, [&](auto count) __attribute__((always_inline)) {
      constexpr int kRows = decltype(count)::value;
      if constexpr (kRows <= 3) {
        if constexpr (kPart != kSecondHalf)
          Rows<Type, kRows, kVectors, 2, false>(tile, row, 0, half);
      } else {
        Rows<Type, kRows, kVectors, 1, kPart == kSecondHalf>(
            tile, row, kPart == kSecondHalf ? half : 0, kPart == kFirstHalf ? half : tile.groups);
      }
    });
    row += rows;
  }
}

// Up to three rows have too few sums for one chain. Floats are added up in the same order by tiles
// of any size: the groups of the first half, those of the second, then both. All tiles take the
// first half before the second, so that it stays in the first-level cache for them.
template <class Type, int kVectors>
void AllRows(const NarrowTile& tile) {
  if constexpr (Type::kExact) {
    // One chain is enough for two rows of integers. As part of Tiles, it made 8 and more rows
    // slower.
    if (tile.rows == 2) return OneChain<Type, 2, kVectors>(tile);
    if (tile.rows == 3) return OneChain<Type, 3, kVectors>(tile);
    Tiles<Type, kVectors, kAll>(tile);
  } else {
    Tiles<Type, kVectors, kFirstHalf>(tile);
    Tiles<Type, kVectors, kSecondHalf>(tile);
  }
}

template <class Type>
void Multiply(const NarrowTile& tile) {
  switch (tile.vectors) {
    case 1: return AllRows<Type, 1>(tile);
    case 2: return AllRows<Type, 2>(tile);
    case 3: return AllRows<Type, 3>(tile);
    default: return AllRows<Type, 4>(tile);
  }
}

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

struct PackBfloat16Tiles : PackBfloat16 {
  static constexpr int kBlock = kAmxBlock;
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
