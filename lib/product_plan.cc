#include "lib/product_plan.h"

#include <algorithm>

namespace haste {
namespace {

// Of parts: a third of the matrices themselves, within these bounds.
constexpr int64_t kLeastBytes = 16 << 20, kMostBytes = 96 << 20;
constexpr int64_t kPartsBytes = kProductParts * sizeof(uint16_t);
constexpr int64_t kMostDepth = 4 * kSumDepth;  // of a chunk
constexpr int64_t kTile = 128;                 // rows or columns that cuBLAS gives a multiprocessor

// Microseconds of an H200, of some 40 products; other GPUs that take parts have tensor cores and
// float32 units in much the same ratio.
constexpr double kFloatProducts = 22e6;  // a microsecond
constexpr double kPartProducts = 350e6;
constexpr double kFloatCall = 4;
constexpr double kChunkCalls = 30;           // two kernels and three products, or more
constexpr double kSplitMicroseconds = 4e-6;  // of an element: 4 bytes read, 6 written
constexpr double kSumMicroseconds = 5e-6;    // of a sum: three products write it, two read it

// Tensor cores that add up bfloat16 at a dozen times the rate of float32 units: those of data
// centres.
bool HasWideTensorCores(int sm_major, int sm_minor) {
  return sm_minor == 0 ? sm_major >= 8 && sm_major <= 10 : sm_major == 10;
}

// By more than these figures are off.
bool PartsAreFaster(const HasteGemm& g, int64_t chunks) {
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  const double k = static_cast<double>(g.k);
  const double parts = static_cast<double>(chunks) * kChunkCalls + 6 * m * n * k / kPartProducts +
                       (m + n) * k * kSplitMicroseconds + m * n * kSumMicroseconds;
  return 1.15 * parts < kFloatCall + m * n * k / kFloatProducts;
}

int64_t RoomFor(const HasteGemm& g) {
  const double elements = static_cast<double>(g.m) * g.k + static_cast<double>(g.k) * g.n +
                          static_cast<double>(g.m) * g.n;
  const double third = std::min(elements * sizeof(float) / 3, double{kMostBytes});
  return std::max(static_cast<int64_t>(third), kLeastBytes);
}

// Parts of `whole`, alike, and none larger than `most`.
int64_t EvenPart(int64_t whole, int64_t most) {
  if (whole <= most) return PadTo(whole, kProductAlign);
  return PadTo(CeilDiv(whole, CeilDiv(whole, most / kTile * kTile)), kTile);
}

}  // namespace

ProductPlan PlanProduct(const HasteGemm& g, int sm_major, int sm_minor) {
  ProductPlan plan = {};
  const bool lies_well = (g.a_row == 1 || g.a_col == 1) && (g.b_row == 1 || g.b_col == 1);
  if (g.dtype != HASTE_FLOAT32 || g.allow_tf32 || !lies_well || std::min({g.m, g.n, g.k}) <= 0 ||
      !HasWideTensorCores(sm_major, sm_minor)) {
    return plan;
  }
  plan.a_stays = g.m <= g.n;
  const int64_t stays = std::min(g.m, g.n), passes = std::max(g.m, g.n);
  const int64_t room = RoomFor(g);
  // What is cut in depth anyway is better cut there alone: wide chunks fill the GPU.
  int64_t depth = std::min(PadTo(g.k, kProductAlign), kMostDepth);
  if (g.k > kMostDepth) {
    const int64_t fits = room / kPartsBytes / (stays + passes) / kTile * kTile;
    depth = std::clamp(fits, kSumDepth, kMostDepth);
  }
  while (depth > kSumDepth && kPartsBytes * depth * stays > room / 2) {
    depth = std::max(depth / 2, kSumDepth);
  }
  plan.depth = EvenPart(g.k, depth);
  const int64_t line = kPartsBytes * plan.depth;  // bytes of a row of a, or of a column of b
  const int64_t kept = EvenPart(stays, room / 2 / line);
  const int64_t passed = EvenPart(passes, (room - kept * line) / line);
  plan.rows = plan.a_stays ? kept : passed;
  plan.columns = plan.a_stays ? passed : kept;
  const int64_t chunks = CeilDiv(stays, kept) * CeilDiv(passes, passed) * CeilDiv(g.k, plan.depth);
  plan.by_parts = PartsAreFaster(g, chunks);
  return plan;
}

}  // namespace haste
