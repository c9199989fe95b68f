#include "lib/plan/gemm/gemm.h"

#include <algorithm>
#include <cmath>

#include "lib/plan/costs/cost_table.h"
#include "lib/plan/gemm/layer_gemms.h"

namespace haste {
namespace {

// Of parts and sums: a third of the matrices themselves, within these bounds; less what is lost
// where one thing ends and the next begins.
constexpr int64_t kLeastBytes = 16 << 20, kMostBytes = 96 << 20, kLostBytes = 1024;
// Of chunks, what is looked at: depths up to these; counts of those that pass by.
constexpr int64_t kDepths[] = {4096, 3072, 2048, 1024};
constexpr int kTriedCounts = 8;

constexpr int kLeastShare = 8;  // K-blocks that are worth a share

constexpr double kWorthPlanning = 20;  // microseconds that float32 units take at least
// What a byte is worth in time, where memory is counted in a few MiB.
constexpr double kByteMicroseconds = 2e-6;

// Only 9.0 has the kernels.
const GemmCosts& Costs() { return CostsOf(9).gemm; }

int64_t RoomFor(const HasteGemm& g) {
  const double elements = static_cast<double>(g.m) * g.k + static_cast<double>(g.k) * g.n +
                          static_cast<double>(g.m) * g.n;
  const double third = std::min(elements * sizeof(float) / 3, double{kMostBytes});
  return std::max(static_cast<int64_t>(third), kLeastBytes) - kLostBytes;
}

bool IsExact(const HasteGemm& g) { return g.dtype == HASTE_FLOAT32 && !g.allow_tf32; }
int TermsOf(const HasteGemm& g) { return IsExact(g) ? 2 : 1; }

// Of compute capability 9.0, neighbours of a line being neighbours in memory.
bool CanBeOurs(const HasteGemm& g, int sm_major, int pairs) {
  if (g.dtype == HASTE_FLOAT64) return false;
  const bool lies_well = (g.a_row == 1 || g.a_col == 1) && (g.b_row == 1 || g.b_col == 1);
  return lies_well && std::min({g.m, g.n, g.k}) > 0 && sm_major == 9 && pairs > 0;
}

// `whole` in so many parts, alike, of whole tiles.
int64_t EvenPart(int64_t whole, int64_t terms, int64_t tile) {
  return CeilDiv(CeilDiv(whole, tile), terms) * tile;
}
// And of no more than `most`, where that has a tile.
int64_t LargestPart(int64_t whole, int64_t most, int64_t tile) {
  const int64_t fit = std::max(most / tile, int64_t{1});
  return EvenPart(whole, CeilDiv(CeilDiv(whole, tile), fit), tile);
}

// Of an element. Floats are read twice, as their scale is found first.
int PackBytes(const HasteGemm& g, int terms) {
  const int read = g.dtype == HASTE_FLOAT32 ? 2 * sizeof(float) : sizeof(uint16_t);
  return read + terms * static_cast<int>(sizeof(uint16_t));
}

ProductWork WorkOf(const ProductPlan& plan, int64_t rows, int64_t columns, const GemmCosts& costs) {
  ProductWork work = {};
  work.tiles = static_cast<int>(CeilDiv(rows, kProductRows) * CeilDiv(columns, kProductColumns));
  work.k_blocks = static_cast<int>(plan.depth / KBlockDepth(plan.terms));
  work.pairs = plan.pairs;
  work.whole = work.tiles;
  const int rest = work.tiles % plan.pairs;
  const int64_t sharers = std::min({int64_t{plan.pairs}, int64_t{plan.slots} + 1 - rest,
                                    int64_t{rest} * work.k_blocks / kLeastShare});
  if (sharers <= rest) return work;
  ProductWork shares = work;
  shares.whole -= rest;
  shares.sharers = static_cast<int>(sharers);
  return Microseconds(shares, plan.terms, costs) < Microseconds(work, plan.terms, costs) ? shares
                                                                                         : work;
}

// Of the kernels that a chunk can have those that it has: to pack both operands, to multiply, which
// begins and ends slowly and counts as two, and to add up what waits. Lines that lie across the
// depth have their scales found first.
double ShareOfKernels(const HasteGemm& g, const ProductWork& chunk) {
  const int across = g.dtype == HASTE_FLOAT32 ? 3 : 1;
  const int packing = (g.a_col == 1 ? 1 : across) + (g.b_row == 1 ? 1 : across);
  return (packing + 2 + (chunk.shared() > 0 ? 1 : 0)) / 9.0;
}

// The time of the best chunks of this depth, that go into `best`; its slots are given.
double FillChunks(const HasteGemm& g, int64_t depth, int64_t all_room, const GemmCosts& costs,
                  ProductPlan* best) {
  ProductPlan plan = *best;
  plan.depth = depth;
  const int64_t room = all_room - plan.slots * kProductTileBytes;
  const int64_t line = LineBytes(plan.depth, plan.terms);
  const int64_t stays = plan.a_stays ? g.m : g.n, passes = plan.a_stays ? g.n : g.m;
  const int64_t stays_tile = plan.a_stays ? kProductRows : kProductColumns;
  const int64_t passes_tile = plan.a_stays ? kProductColumns : kProductRows;
  const int64_t kept = LargestPart(stays, room / line - passes_tile, stays_tile);
  const int64_t most = LargestPart(passes, room / line - kept, passes_tile);
  double least = 0;
  const int64_t fewest = CeilDiv(passes, most);
  for (int64_t count = fewest; count < fewest + kTriedCounts; ++count) {
    const int64_t passed = EvenPart(passes, count, passes_tile);
    plan.rows = plan.a_stays ? kept : passed;
    plan.columns = plan.a_stays ? passed : kept;
    const double time =
        ProductMicroseconds(g, plan, WorkOf(plan, plan.rows, plan.columns, costs), costs);
    if (least == 0 || time < least) {
      least = time;
      *best = plan;
    }
  }
  return least;
}

}  // namespace

double MultiplyAdds(const HasteGemm& g) {
  return static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
}

double FloatMicroseconds(const HasteGemm& g, const GemmCosts& costs) {
  return costs.float_call_microseconds + MultiplyAdds(g) / costs.float_products_per_microsecond;
}

double CublasMicroseconds(const HasteGemm& g, const CostTable& costs) {
  const OverlapCosts& rates = costs.overlap;
  const double rate = g.dtype == HASTE_FLOAT32 ? rates.cublas_tf32_products_per_microsecond
                                               : rates.cublas_half_products_per_microsecond;
  return costs.gemm.float_call_microseconds + MultiplyAdds(g) / rate;
}

double Microseconds(const ProductWork& work, int terms, const GemmCosts& costs) {
  const double of_k_block = costs.k_block_microseconds[terms - 1],
               of_tile = costs.tile_microseconds[terms - 1];
  const double rounds = static_cast<double>(CeilDiv(work.whole, work.pairs));
  const double sums = static_cast<double>(CeilDiv(work.k_blocks * KBlockDepth(terms), kSumDepth));
  const double whole = rounds * (work.k_blocks * of_k_block + sums * of_tile);
  if (work.shared() == 0) return whole;
  const double share = static_cast<double>(work.Begin(work.sharers)) / work.sharers;
  // It may begin and end within a tile.
  const double parts = std::ceil(share * KBlockDepth(terms) / kSumDepth) + 1;
  return whole + share * of_k_block + parts * of_tile + work.slots() * costs.slot_microseconds;
}
double Microseconds(const ProductWork& work, int terms) {
  return Microseconds(work, terms, Costs());
}

double ProductMicroseconds(const HasteGemm& g, const ProductPlan& plan, const ProductWork& chunk,
                           const GemmCosts& costs) {
  const int64_t stays = plan.a_stays ? g.m : g.n, kept = plan.a_stays ? plan.rows : plan.columns;
  const int64_t passes = plan.a_stays ? g.n : g.m, passed = plan.a_stays ? plan.columns : plan.rows;
  const int64_t keeps = CeilDiv(stays, kept);
  const double packed = static_cast<double>(stays + passes * keeps) * static_cast<double>(g.k);
  const double chunks =
      static_cast<double>(CeilDiv(g.k, plan.depth) * keeps * CeilDiv(passes, passed));
  return costs.pack_byte_microseconds * packed * PackBytes(g, plan.terms) +
         chunks * (costs.chunk_call_microseconds * ShareOfKernels(g, chunk) +
                   Microseconds(chunk, plan.terms, costs));
}

ProductWork ProductPlan::Work(int64_t of_rows, int64_t of_columns) const {
  return WorkOf(*this, of_rows, of_columns, Costs());
}

ProductPlan PlanProduct(const HasteGemm& g, int sm_major, int pairs, int64_t most,
                        bool sums_in_float) {
  return PlanProduct(g, sm_major, pairs, most, sums_in_float, Costs());
}

ProductPlan PlanProduct(const HasteGemm& g, int sm_major, int pairs, int64_t most,
                        bool sums_in_float, const GemmCosts& costs) {
  ProductPlan plan = {};
  if ((!IsExact(g) && !sums_in_float) || !CanBeOurs(g, sm_major, pairs) ||
      (most == 0 && FloatMicroseconds(g, costs) < kWorthPlanning)) {
    return plan;
  }
  plan.pairs = pairs;
  plan.terms = TermsOf(g);
  plan.a_stays = g.m <= g.n;
  ProductPlan best = plan;
  double least = 0;  // price
  const int64_t room = most > 0 ? most - kLostBytes : RoomFor(g);
  const double of_byte = room < kLeastBytes ? kByteMicroseconds : 0;
  const int64_t slots = std::min(room / 2 / kProductTileBytes, int64_t{2} * pairs);
  for (int64_t some : {int64_t{0}, slots}) {
    plan.slots = static_cast<int>(some);
    int64_t last = 0;
    for (int64_t deepest : kDepths) {
      const int64_t depth = LargestPart(g.k, deepest, KBlockDepth(plan.terms));
      if (depth == last) continue;
      last = depth;
      ProductPlan filled = plan;
      filled.microseconds = FillChunks(g, depth, room, costs, &filled);
      const double price = filled.microseconds + of_byte * static_cast<double>(filled.bytes());
      if (least == 0 || price < least) {
        least = price;
        best = filled;
      }
    }
  }
  best.ours = most > 0 || costs.float_margin * best.microseconds < FloatMicroseconds(g, costs);
  return best;
}

ProductPlan PlanOneChunk(const HasteGemm& g, int sm_major, int pairs, int64_t most) {
  ProductPlan plan = {};
  if (!CanBeOurs(g, sm_major, pairs)) return plan;
  plan.pairs = pairs;
  plan.terms = TermsOf(g);
  plan.rows = CeilDiv(g.m, kProductRows) * kProductRows;
  plan.columns = CeilDiv(g.n, kProductColumns) * kProductColumns;
  plan.depth = PadTo(g.k, KBlockDepth(plan.terms));
  plan.ours = static_cast<int64_t>(plan.bytes()) + kLostBytes <= most;
  return plan;
}

}  // namespace haste
