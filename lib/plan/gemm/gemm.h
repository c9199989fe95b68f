// How a large product on CUDA that is our own is cut: pure arithmetic.
//
// Operands, if exact floats, become two parts of scaled float16, else one
// (lib/cuda/gemm/split_fp16.cu.cc), a chunk at a time: for some depth those of the smaller operand,
// and of as much of the larger as there is room for. A chunk's product is made in tiles of c, by
// pairs of blocks (thread-block clusters).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/base/int_math.h"
#include "lib/plan/gemm/row_runs.h"

namespace haste {

// Of c a block has kPanel × kPanel, a pair two of these, one below the other: a tile.
constexpr int kPanel = 128;
constexpr int kProductRows = 2 * kPanel, kProductColumns = kPanel;
constexpr int kPackedDepth = 32;  // what of the depth lies together in memory
// What of it is loaded at a time: a K-block.
constexpr int KBlockDepth(int terms) { return 2 * kPackedDepth / terms; }

// A product, perhaps of some rows of its matrices, of a sum of products.
struct ProductChunk {
  HasteGemm gemm;
  RowRuns rows;       // of a and c; or
  RowRuns depths;     // of aᵀ and b
  bool adds = false;  // c += a·b, without a bias
  // c is float32, whatever the elements are, and the product ours, as sums of parts in 16 bits
  // would be rounded.
  bool sums_in_float = false;

  // More rows of a, m of them, that lie as the others do but for their stride along the depth; and
  // where they make rows of c.
  struct More {
    int64_t m = 0, a_col = 0, c_row = 0;
    const void* a = nullptr;
    void* c = nullptr;
  } more = {};

  // Of all rows, counted as those of tiles, where the others begin; all in one.
  constexpr int64_t Split() const { return PadTo(gemm.m, kProductRows); }
  HasteGemm Whole() const {
    HasteGemm whole = gemm;
    if (more.m > 0) whole.m = Split() + more.m;
    return whole;
  }
};

// In which order tiles of c are made: by rows of tiles, from the first on, but for some columns of
// tiles from the last on.
struct TileOrder {
  int columns, rows;                   // of tiles
  int turned_from = 0, turned_to = 0;  // columns that begin with the last row
  int first = 0;                       // rows that were made before

  constexpr int turned() const { return turned_to - turned_from; }
  constexpr int Column(int tile) const { return tile % columns; }
  constexpr int At(int tile) const { return first + tile / columns; }
  constexpr bool IsTurned(int tile) const {
    return Column(tile) >= turned_from && Column(tile) < turned_to;
  }
  constexpr int Row(int tile) const { return IsTurned(tile) ? rows - 1 - At(tile) : At(tile); }
  // Of all that are made at a time, those of one order are counted together.
  constexpr int CountOf(int tile) const { return IsTurned(tile) ? rows + At(tile) : At(tile); }
};
constexpr TileOrder OrderOf(int64_t rows, int64_t columns) {
  return {static_cast<int>(CeilDiv(columns, int64_t{kProductColumns})),
          static_cast<int>(CeilDiv(rows, int64_t{kProductRows}))};
}

// Tensor cores cut off what they add up; so much of a sum's depth at most, before it is rounded.
constexpr int kSumDepth = 1024;

// A part of the depth of a tile, in K-blocks. slot: where its sums wait for the others of their
// tile; negative of a whole tile.
struct ProductPiece {
  int tile, from, to, slot;
};

// Who multiplies what. Pairs take whole tiles in turns, as many times as all of them have one; the
// rest is shared out evenly, K-block by K-block.
struct ProductWork {
  int tiles, k_blocks;
  int pairs, sharers;  // sharers: of the pairs, the first
  int whole;           // tiles

  constexpr int shared() const { return tiles - whole; }
  // Of all that is shared, in K-blocks, where a sharer begins.
  constexpr int64_t Begin(int sharer) const {
    return static_cast<int64_t>(shared()) * k_blocks * sharer / sharers;
  }
  // The first who has something of a tile; tile: counted from the first that is shared.
  constexpr int FirstPeer(int tile) const {
    int sharer = static_cast<int>(static_cast<int64_t>(tile) * sharers / shared());
    while (Begin(sharer + 1) <= static_cast<int64_t>(tile) * k_blocks) ++sharer;
    return sharer;
  }
  // One step along what is shared is the next sharer or the next tile, so that their sum tells
  // pieces apart.
  constexpr int Slot(int sharer, int tile) const { return sharer + tile; }
  constexpr int slots() const { return shared() == 0 ? 0 : sharers + shared() - 1; }
};

// The pieces of a pair, one after the other.
class ProductPieces {
 public:
  constexpr ProductPieces(const ProductWork& work, int pair)
      : work_(work),
        pair_(pair),
        tile_(pair),
        at_(pair < work.sharers ? work.Begin(pair) : 0),
        end_(pair < work.sharers ? work.Begin(pair + 1) : 0) {}

  constexpr bool Next(ProductPiece* piece) {
    if (tile_ < work_.whole) {
      *piece = {tile_, 0, work_.k_blocks, -1};
      tile_ += work_.pairs;
      return true;
    }
    if (at_ >= end_) return false;
    const int tile = static_cast<int>(at_ / work_.k_blocks);
    const int from = static_cast<int>(at_ - static_cast<int64_t>(tile) * work_.k_blocks);
    const int64_t left = end_ - at_;
    const int to = left < work_.k_blocks - from ? from + static_cast<int>(left) : work_.k_blocks;
    *piece = {work_.whole + tile, from, to,
              to - from == work_.k_blocks ? -1 : work_.Slot(pair_, tile)};
    at_ += to - from;
    return true;
  }

 private:
  const ProductWork& work_;
  const int pair_;
  int tile_;
  int64_t at_, end_;
};

constexpr int64_t kProductTileBytes = int64_t{kProductRows} * kProductColumns * sizeof(float);

// Packed, of a row of a, or of a column of b: its parts, and what its scale follows from.
constexpr int64_t LineBytes(int64_t depth, int terms) {
  return terms * depth * sizeof(uint16_t) + sizeof(uint32_t);
}

// Estimated, of an H200. parts: of an element.
double Microseconds(const ProductWork&, int terms);

struct ProductPlan {
  bool ours;                     // else cuBLAS or float32 units multiply
  bool a_stays;                  // a is the smaller operand
  int64_t rows, columns, depth;  // of a chunk: whole tiles, whole K-blocks
  int pairs, slots;
  int terms;            // of an element
  double microseconds;  // estimated

  // Of parts, and of sums that wait.
  size_t bytes() const {
    return (rows + columns) * LineBytes(depth, terms) + slots * kProductTileBytes;
  }
  // Of a chunk no larger than that. Those that differ in depth alone have the same, so that what
  // waits in a slot can wait for the next of them.
  ProductWork Work(int64_t of_rows, int64_t of_columns) const;
};

// sm_major: for which compute capability the code was made that runs here. pairs: clusters of two
// blocks that the GPU has room for. most: bytes that it may take, and then it is ours wherever it
// can be; 0: by the product's size, and where it is worth that. sums_in_float: of any dtype but
// float64, as ProductChunk says; else of exact floats alone.
ProductPlan PlanProduct(const HasteGemm&, int sm_major, int pairs, int64_t most = 0,
                        bool sums_in_float = false);

// The plan of a product in one chunk, whole tiles, of any dtype but float64; not ours if it
// cannot be, or would take more bytes than `most`.
ProductPlan PlanOneChunk(const HasteGemm&, int sm_major, int pairs, int64_t most);

}  // namespace haste
