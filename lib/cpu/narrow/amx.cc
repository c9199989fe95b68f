// AMX: tiles of 16 rows times 16 columns, 64 bytes deep.
#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>
#include <string.h>

#include <algorithm>

#include "lib/cpu/narrow/avx512.h"
#include "lib/cpu/narrow/narrow.h"

namespace haste {
namespace {

constexpr int64_t kTile = 16;    // rows, columns, and groups of the depth
constexpr int64_t kLine = 64;    // bytes of a row of a tile
constexpr int64_t kFewRows = 2;  // up to this many, int8 leaves the tiles alone
static_assert(kTile == kAmxBlock, "a block of weights is a tile");

// Tiles 0 to 3 hold sums, 4 and 5 rows of the operand, 6 and 7 weights.
struct TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

}  // namespace
}  // namespace haste

HWY_PUSH_ATTRIBUTES("amx-tile,amx-int8,amx-bf16")
namespace haste {
namespace {

// A tile is named by a constant.
#define HASTE_DOT(SUM, A, B)   \
  if constexpr (kInt8) {       \
    _tile_dpbusd(SUM, A, B);   \
  } else {                     \
    _tile_dpbf16ps(SUM, A, B); \
  }

void Enter(int64_t rows) {
  TileShapes shapes;
  for (int i = 0; i < 8; ++i) {
    shapes.bytes[i] = kLine;
    shapes.rows[i] = static_cast<uint8_t>(i < 6 ? std::min(rows, kTile) : kTile);
  }
  // GCC's intrinsic says that it reads the first bytes alone, and the others would not be stored.
  asm volatile("" : : "r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
}
void EnterInt8(int64_t rows) {
  if (rows > kFewRows) Enter(rows);
}
void Leave() { _tile_release(); }

// How a tile of weights lies (NarrowKernel::block): bytes from one of its groups to the next, and
// from one vector's tile to the next. Tiles of bfloat16 are cache lines that follow one another,
// which the processor fetches faster. (int8 shares its panels with VNNI.)
template <bool kInt8, int kVectors>
struct Weights {
  static constexpr int64_t kRow = kInt8 ? kVectors * kLine : kLine;
  static constexpr int64_t kNext = kInt8 ? kLine : kTile * kLine;
};

// Up to 16 rows, all vectors.
template <bool kInt8, int kVectors>
HWY_INLINE void OneTileOfRows(const NarrowTile& tile) {
  using B = Weights<kInt8, kVectors>;
  const char* a = static_cast<const char*>(tile.a);
  const char* b = static_cast<const char*>(tile.panel);
  constexpr int64_t kRow = kVectors * kLine;
  if (kInt8 && tile.start != nullptr) {
    _tile_loadd(0, tile.start, 0);
    if constexpr (kVectors > 1) _tile_loadd(1, tile.start + 16, 0);
    if constexpr (kVectors > 2) _tile_loadd(2, tile.start + 32, 0);
    if constexpr (kVectors > 3) _tile_loadd(3, tile.start + 48, 0);
  } else {
    _tile_zero(0);
    if constexpr (kVectors > 1) _tile_zero(1);
    if constexpr (kVectors > 2) _tile_zero(2);
    if constexpr (kVectors > 3) _tile_zero(3);
  }
  for (int64_t i = 0; i < tile.groups; i += kTile, a += kLine, b += kTile * kRow) {
    _tile_loadd(4, a, tile.a_row);
    _tile_loadd(6, b, B::kRow);
    HASTE_DOT(0, 4, 6);
    if constexpr (kVectors > 1) {
      _tile_loadd(7, b + B::kNext, B::kRow);
      HASTE_DOT(1, 4, 7);
    }
    if constexpr (kVectors > 2) {
      _tile_loadd(6, b + 2 * B::kNext, B::kRow);
      HASTE_DOT(2, 4, 6);
    }
    if constexpr (kVectors > 3) {
      _tile_loadd(7, b + 3 * B::kNext, B::kRow);
      HASTE_DOT(3, 4, 7);
    }
  }
  char* sums = static_cast<char*>(tile.sums);
  _tile_stored(0, sums, kRow);
  if constexpr (kVectors > 1) _tile_stored(1, sums + kLine, kRow);
  if constexpr (kVectors > 2) _tile_stored(2, sums + 2 * kLine, kRow);
  if constexpr (kVectors > 3) _tile_stored(3, sums + 3 * kLine, kRow);
}

// Asks for the tiles of kCount vectors, from the second-level cache.
template <bool kInt8, int kVectors, int kCount>
HWY_INLINE void AskFor(const char* b) {
  using B = Weights<kInt8, kVectors>;
#pragma GCC unroll 32
  for (int line = 0; line < kCount * kTile; ++line) {
    _mm_prefetch(b + line / kTile * B::kNext + line % kTile * B::kRow, _MM_HINT_T0);
  }
}

// 17 to 32 rows, the vectors from kFirst on: two, or the last one. Each tile of weights is used
// twice, which leaves the time to ask for the next ones. (Up to 16 rows do not.)
template <bool kInt8, int kVectors, int kFirst>
HWY_INLINE void TwoTilesOfRows(const NarrowTile& tile) {
  constexpr bool kTwo = kFirst + 1 < kVectors;
  constexpr int64_t kRow = kVectors * kLine;
  using B = Weights<kInt8, kVectors>;
  const char* a = static_cast<const char*>(tile.a);
  const char* b = static_cast<const char*>(tile.panel) + kFirst * B::kNext;
  const int64_t lower = kTile * tile.a_row;
  if (kInt8 && tile.start != nullptr) {
    _tile_loadd(0, tile.start + kFirst * 16, 0);
    _tile_loadd(1, tile.start + kFirst * 16, 0);
    if constexpr (kTwo) {
      _tile_loadd(2, tile.start + kFirst * 16 + 16, 0);
      _tile_loadd(3, tile.start + kFirst * 16 + 16, 0);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < tile.groups; i += kTile, a += kLine, b += kTile * kRow) {
    _tile_loadd(4, a, tile.a_row);
    _tile_loadd(6, b, B::kRow);
    HASTE_DOT(0, 4, 6);
    AskFor<kInt8, kVectors, kTwo ? 2 : 1>(b + kTile * kRow);
    _tile_loadd(5, a + lower, tile.a_row);
    HASTE_DOT(1, 5, 6);
    if constexpr (kTwo) {
      _tile_loadd(7, b + B::kNext, B::kRow);
      HASTE_DOT(2, 4, 7);
      HASTE_DOT(3, 5, 7);
    }
  }
  char* sums = static_cast<char*>(tile.sums) + kFirst * kLine;
  _tile_stored(0, sums, kRow);
  _tile_stored(1, sums + kTile * kRow, kRow);
  if constexpr (kTwo) {
    _tile_stored(2, sums + kLine, kRow);
    _tile_stored(3, sums + kTile * kRow + kLine, kRow);
  }
  if constexpr (kFirst + 2 < kVectors) TwoTilesOfRows<kInt8, kVectors, kFirst + 2>(tile);
}
#undef HASTE_DOT

template <bool kInt8, int kVectors>
HWY_INLINE void Rows(const NarrowTile& tile) {
  if (tile.rows > kTile) return TwoTilesOfRows<kInt8, kVectors, 0>(tile);
  OneTileOfRows<kInt8, kVectors>(tile);
}

template <bool kInt8>
void Multiply(const NarrowTile& tile) {
  switch (tile.vectors) {
    case 1: return Rows<kInt8, 1>(tile);
    case 2: return Rows<kInt8, 2>(tile);
    case 3: return Rows<kInt8, 3>(tile);
    default: return Rows<kInt8, 4>(tile);
  }
}

}  // namespace
}  // namespace haste
HWY_POP_ATTRIBUTES

namespace haste {
namespace {

void MultiplyInt8(const NarrowTile& tile) {
  tile.rows <= kFewRows ? Avx512Int8Multiply(tile) : Multiply<true>(tile);
}

}  // namespace

const NarrowKernel kAmxInt8 = {"AMX",        Narrow::kInt8,  16,
                               16,           EnterInt8,      Leave,
                               MultiplyInt8, Avx512Int8Pack, Avx512Int8MultiplyRow};
const NarrowKernel kAmxBfloat16 = {
    "AMX",           Narrow::kBfloat16,       16,      16,    Enter,    Leave,
    Multiply<false>, Avx512Bfloat16PackTiles, nullptr, false, kAmxBlock};

}  // namespace haste
#endif
