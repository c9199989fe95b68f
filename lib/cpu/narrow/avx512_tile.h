// Tiles of rows times panels of 16 columns, for each way to multiply and add on AVX-512. Include it
// after HWY_PUSH_ATTRIBUTES, so that it is compiled for that target.
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include "lib/cpu/narrow/narrow.h"

namespace haste {
namespace {

// What a Type is, here of float32 sums. V: a vector of sums. Step(a, a_row, b, i, sum): adds the
// products of group i of the rows at `a` and of the panel at `b` to sum[rows][vectors].
struct FloatSums {
  using V = __m512;
  static constexpr bool kExact = false;  // the order of a sum counts
  static HWY_INLINE V Zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE V Start(const NarrowTile&, int) { return Zero(); }
  static HWY_INLINE V Add(V a, V b) { return _mm512_add_ps(a, b); }
  static HWY_INLINE V Load(const void* from) { return _mm512_loadu_ps(from); }
  static HWY_INLINE void Store(V v, void* to) { _mm512_storeu_ps(to, v); }
};

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
      Type::Step(a, tile.a_row, b, i, sum[0]);
      Type::Step(a, tile.a_row, b, i + second, sum[1]);
    }
  }
  for (; i < end; ++i) Type::Step(a, tile.a_row, b, i, sum[0]);
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

}  // namespace
}  // namespace haste
