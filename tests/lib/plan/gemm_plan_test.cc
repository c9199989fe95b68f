// Pins which products of floats are split into terms, that their chunks fit the workspace, and that
// each piece of a product belongs to a pair.
#include <algorithm>
#include <vector>

#include "lib/plan/gemm/gemm.h"
#include "tests/lib/check.h"

namespace haste {
namespace {

HasteGemm Product(int64_t m, int64_t n, int64_t k) {
  HasteGemm gemm = HASTE_INIT(HasteGemm);
  gemm.dtype = HASTE_FLOAT32;
  gemm.device = HASTE_CUDA;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.a_row = k;
  gemm.b_row = gemm.c_row = n;
  gemm.a_col = gemm.b_col = 1;
  return gemm;
}

constexpr int kPairs = 66;  // of an H200

void Choices() {
  const struct {
    int64_t m, n, k;
    bool ours;
    int64_t rows, columns, depth;
  } cases[] = {
      // Of N=16 T=1024 C=H=768: x·W, dx, and dW or dR.
      {16384, 3072, 768, true, 16384, 3072, 768},
      {16384, 768, 3072, true, 5632, 768, 3072},
      {768, 3072, 16384, true, 768, 3072, 4096},
      // dR of H=2048.
      {2048, 8192, 12800, true, 2048, 8192, 1856},
      // Of N=16 T=128 C=H=512.
      {2048, 2048, 512, true, 2048, 2048, 512},
      {2048, 512, 2048, true, 2048, 512, 1024},
      {512, 2048, 2048, true, 512, 2048, 1024},
      // Operands that take longer to move than to multiply; too few tiles.
      {6400, 64, 4096, false, 0, 0, 0},
      {64, 512, 12800, false, 0, 0, 0},
      {1, 1, 1, false, 0, 0, 0},
      {128, 128, 0, false, 0, 0, 0},
      {0, 128, 128, false, 0, 0, 0},
  };
  for (const auto& c : cases) {
    const ProductPlan plan = PlanProduct(Product(c.m, c.n, c.k), 9, kPairs);
    const bool cut_so = plan.rows == c.rows && plan.columns == c.columns && plan.depth == c.depth;
    EXPECT_TRUE(plan.ours == c.ours && (cut_so || !c.ours),
                "%ld x %ld x %ld: parts %d, chunks of %ld x %ld x %ld", static_cast<long>(c.m),
                static_cast<long>(c.n), static_cast<long>(c.k), plan.ours,
                static_cast<long>(plan.rows), static_cast<long>(plan.columns),
                static_cast<long>(plan.depth));
  }
}

void OnlyExactFloatsWhereThereIsWgmma() {
  const HasteGemm large = Product(16384, 3072, 768);
  for (int major : {7, 8, 9, 10, 12}) {
    EXPECT_TRUE(PlanProduct(large, major, kPairs).ours == (major == 9), "%d.x", major);
  }
  EXPECT_TRUE(!PlanProduct(large, 9, 0).ours, "no clusters");
  HasteGemm other = large;
  other.allow_tf32 = 1;
  EXPECT_TRUE(!PlanProduct(other, 9, kPairs).ours, "TensorFloat-32");
  for (HasteDtype dtype : {HASTE_FLOAT64, HASTE_FLOAT16, HASTE_BFLOAT16}) {
    other = large;
    other.dtype = dtype;
    EXPECT_TRUE(!PlanProduct(other, 9, kPairs).ours, "dtype %d", dtype);
  }
  other = large;
  other.a_col = 2;
  other.a_row = 2 * other.k;
  EXPECT_TRUE(!PlanProduct(other, 9, kPairs).ours, "neighbours that are not side by side");
}

// Parts that are summed in float32 are ours in every dtype but float64, and fit.
void SumsInFloat() {
  constexpr int64_t kMost = 96 << 20;
  for (HasteDtype dtype : {HASTE_FLOAT32, HASTE_FLOAT16, HASTE_BFLOAT16, HASTE_FLOAT64}) {
    for (int32_t tf32 : {0, 1}) {
      HasteGemm part = Product(1536, 3072, 2048);
      part.dtype = dtype;
      part.allow_tf32 = tf32;
      const bool exact = dtype == HASTE_FLOAT32 && tf32 == 0;
      EXPECT_TRUE(PlanProduct(part, 9, kPairs, kMost).ours == exact, "dtype %d: others", dtype);
      const ProductPlan plan = PlanProduct(part, 9, kPairs, kMost, true);
      EXPECT_TRUE(plan.ours == (dtype != HASTE_FLOAT64), "dtype %d", dtype);
      if (!plan.ours) continue;
      EXPECT_TRUE(plan.terms == (exact ? 2 : 1), "dtype %d: %d parts", dtype, plan.terms);
      EXPECT_TRUE(plan.bytes() <= kMost && plan.depth % KBlockDepth(plan.terms) == 0, "dtype %d",
                  dtype);
      EXPECT_TRUE(!PlanProduct(part, 8, kPairs, kMost, true).ours, "no wgmma");
    }
  }
}

// One chunk is whole tiles and whole slabs, which may be deeper than what is packed together.
void OneChunkIsWhole() {
  for (HasteDtype dtype : {HASTE_FLOAT32, HASTE_BFLOAT16}) {
    for (int64_t k = 1; k <= 200; ++k) {
      HasteGemm product = Product(700, 900, k);
      product.dtype = dtype;
      const ProductPlan plan = PlanOneChunk(product, 9, kPairs, 96 << 20);
      EXPECT_TRUE(plan.ours && plan.depth >= k && plan.depth % KBlockDepth(plan.terms) == 0,
                  "dtype %d: depth %ld of %ld", dtype, static_cast<long>(plan.depth),
                  static_cast<long>(k));
      EXPECT_TRUE(plan.rows == 768 && plan.columns == 1024, "dtype %d: whole tiles", dtype);
    }
  }
}

void ChunksFit() {
  for (int64_t m : {3001, 4099, 16384, 300000}) {
    for (int64_t n : {3001, 4099, 16384, 300000}) {
      for (int64_t k : {1801, 4099, 16384, 300000}) {
        const ProductPlan plan = PlanProduct(Product(m, n, k), 9, kPairs);
        EXPECT_TRUE(plan.ours, "large");
        const double third = (1.0 * m * k + 1.0 * k * n + 1.0 * m * n) * sizeof(float) / 3;
        const double room = std::max(16.0 * (1 << 20), std::min(third, 96.0 * (1 << 20)));
        EXPECT_TRUE(plan.bytes() <= room, "%zu bytes of %.0f", plan.bytes(), room);
        EXPECT_TRUE(plan.rows > 0 && plan.rows % kProductRows == 0 && plan.columns > 0 &&
                        plan.columns % kProductColumns == 0,
                    "whole tiles");
        EXPECT_TRUE(plan.depth > 0 && plan.depth % KBlockDepth(plan.terms) == 0 &&
                        plan.depth < k + KBlockDepth(plan.terms),
                    "depth %ld of %ld", static_cast<long>(plan.depth), static_cast<long>(k));
        const ProductWork work = plan.Work(plan.rows, plan.columns);
        EXPECT_TRUE(work.slots() <= plan.slots, "%d slots of %d", work.slots(), plan.slots);
      }
    }
  }
}

// Every slab of every tile is in one piece, and what is in a slot is what FirstPeer leads to.
void PiecesAreAll(int tiles, int slots, int terms) {
  ProductPlan plan = {};
  plan.terms = terms;
  plan.depth = 40 * KBlockDepth(plan.terms);
  plan.pairs = kPairs;
  plan.slots = slots;
  const ProductWork work = plan.Work(kProductRows, int64_t{kProductColumns} * tiles);
  std::vector<int> seen(static_cast<size_t>(tiles) * work.k_blocks), slot_of(slots, 0);
  for (int pair = 0; pair < work.pairs; ++pair) {
    ProductPieces pieces(work, pair);
    ProductPiece piece;
    while (pieces.Next(&piece)) {
      for (int k_block = piece.from; k_block < piece.to; ++k_block)
        ++seen[piece.tile * work.k_blocks + k_block];
      EXPECT_TRUE((piece.slot < 0) == (piece.to - piece.from == work.k_blocks), "whole tiles");
      if (piece.slot < 0) continue;
      EXPECT_TRUE(piece.slot < work.slots() && ++slot_of[piece.slot] == 1, "slot %d", piece.slot);
      const int tile = piece.tile - work.whole;
      EXPECT_TRUE(piece.slot == work.Slot(pair, tile), "of sharer %d", pair);
      if (piece.from == 0) EXPECT_TRUE(work.FirstPeer(tile) == pair, "first of tile %d", tile);
    }
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }),
              "%d tiles, %d slots: a slab is missing, or done twice", tiles, slots);
}

}  // namespace
}  // namespace haste

int main() {
  haste::Choices();
  haste::OnlyExactFloatsWhereThereIsWgmma();
  haste::SumsInFloat();
  haste::OneChunkIsWhole();
  haste::ChunksFit();
  for (int tiles = 1; tiles < 300; ++tiles) {
    for (int slots : {0, 30, 132}) {
      for (int terms : {1, 2}) haste::PiecesAreAll(tiles, slots, terms);
    }
  }
  return haste_test::Report("gemm_plan_test");
}
