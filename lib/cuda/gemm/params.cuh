// Parameters of a product's kernels (mainloop.cuh), and where its sums go.
#pragma once

#include "lib/cuda/gemm/pack.cuh"

namespace haste {

constexpr int kTileWarpgroups = 2;  // that multiply
constexpr int kTileWarps = 4 * kTileWarpgroups;
constexpr int kTileThreads = (kTileWarpgroups + 1) * 128;

// Whether a block's part of a tile is one warpgroup's.
template <int kTerms>
constexpr bool kTakeTurns = kTerms == 1;
template <int kTerms>
constexpr int kWarpsOfTile = kTakeTurns<kTerms> ? 4 : kTileWarps;

// C: the type of c and of the bias.
template <class T, class C = ElementOf<T>>
struct ScaledProduct {
  const MmaOperand<T>*a, *b;  // packed
  const uint32_t *a_most, *b_most;
  // c, from its first column on: the rows in rows[0] and, from row `split` on, those of another c,
  // in rows[1].
  struct Rows {
    C* c;
    int64_t stride, end;
    RowRuns runs;   // where the rows are in memory
    int64_t first;  // the first row in runs
  };
  Rows rows[2];
  int64_t split, columns;
  TileOrder order;
  // Are sums added to existing ones: in c, in `waiting`, in c for pieces that have waited?
  bool adds, adds_waiting, adds_pieces;
  const C *bias, *bias_of_pieces;  // [columns] added to each row, or null
  bool aligned;                    // rows of c, and the bias, begin at multiples of 16 bytes
  ProductWork work;
  float* waiting;   // [slot, rows, columns of a tile]: partial sums of pieces
  uint32_t* ready;  // null, or tile-ready flags of TileOrder's counts: warps that have stored
};

// Where sums go: a block's part of a tile.
template <class C>
struct TileOfC {
  C* c;
  const C* bias;
  int64_t stride;
  RowRuns runs;
  int64_t first;      // first row
  int rows, columns;  // those that exist
  bool aligned;       // rows, and the bias, begin at multiples of 16 bytes

  // Whether all rows and columns of a tile exist and are aligned. Then no access needs a check.
  HASTE_DEVICE bool IsWhole() const { return rows == kPanel && columns == kPanel && aligned; }
  // Null after the last row.
  HASTE_DEVICE C* Row(int row) const {
    return row < rows ? c + runs.At(first + row) * stride : nullptr;
  }
  // Four neighbours of a row or of the bias; 0 if it is null.
  template <bool kWhole>
  HASTE_DEVICE float4 Load(const C* row, int column) const {
    float v[4] = {};
    if (row != nullptr) {  // the bias may be null in any tile
      const C* at = row + column;
      if (kWhole || (aligned && column + 4 <= columns)) {
        const auto four = LoadFragment<4>(at);
        HASTE_UNROLL for (int i = 0; i < 4; ++i) v[i] = ToCompute(four.v[i]);
      } else {
        HASTE_UNROLL for (int i = 0; i < 4; ++i) {
          if (column + i < columns) v[i] = ToCompute(at[i]);
        }
      }
    }
    return make_float4(v[0], v[1], v[2], v[3]);
  }
  template <bool kWhole>
  HASTE_DEVICE void Store(C* row, int column, float4 sums) const {
    if (!kWhole && row == nullptr) return;
    C* at = row + column;
    const C v[4] = {FromCompute<C>(sums.x), FromCompute<C>(sums.y), FromCompute<C>(sums.z),
                    FromCompute<C>(sums.w)};
    if (kWhole || (aligned && column + 4 <= columns)) {
      StoreFragment<4>(at, v);
    } else {
      HASTE_UNROLL for (int i = 0; i < 4; ++i) {
        if (column + i < columns) at[i] = v[i];
      }
    }
  }
};

}  // namespace haste
