#include "lib/plan/overlap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/dtypes.h"
#include "lib/plan/engines/step_rows.h"
#include "lib/plan/gemm/layer_gemms.h"
#include "lib/plan/internal.h"

namespace haste {
namespace {

constexpr int kWorthwhilePairs = 8;  // of multiprocessors that the walk leaves free
// Multiply-adds of one of the products: of floats in two parts, and of what cuBLAS multiplies.
constexpr double kWorthwhile = 5e9, kWorthwhileOfCublas = 2e10;
// Rows of a part backward, steps × N, at least: what is worth a product's kernels.
constexpr int64_t kPartRows = 2048;
constexpr int64_t kLeastChunks = 3;
// Of forward's x·W packed.
constexpr int64_t kInputRoom = 96 << 20;
constexpr double kAboutTheSame = 1.002;
// What comes before the walk is better done by the best product there is.
constexpr double kMostBefore = 0.5;

bool IsOnChip(const Plan& plan) {
  return plan.engine == EngineKind::kGrid || plan.engine == EngineKind::kCluster;
}
int BlocksOf(const HasteRnnConfig& config, const Plan& plan) {
  const PersistentTiling& t = plan.persistent.tiling;
  return static_cast<int>(config.lanes * t.row_groups * t.blocks);
}
int FreePairs(int blocks, const CudaProperties& cuda) {
  return std::max(cuda.multiprocessors - blocks, 0) / 2;
}
// What takes the longer of both times, and a little more if they are about the same.
double Longer(double a, double b) {
  const double most = std::max(a, b), share = std::min(a, b) / most, square = share * share;
  return most * std::sqrt(std::sqrt(1 + square * square));
}

bool IsExact(const HasteRnnConfig& config) {
  return config.dtype == HASTE_FLOAT32 && !config.allow_tf32;
}
double WalkMicroseconds(const HasteRnnConfig& config, const Plan& plan, const OverlapCosts& costs) {
  return static_cast<double>(config.time) * plan.persistent.clocks / costs.clocks_per_microsecond;
}

// Calls visit(product) for those of W and R.
template <class Visit>
void VisitWeights(const HasteRnnConfig& chunk, const HasteCellInfo& cell, int64_t features,
                  const Visit& visit) {
  const HasteGemm recurrent = RecurrentProduct(chunk, cell, 0);
  for (int64_t k = 0, end = 0; k < chunk.lanes; k = end) {
    end = EndOfDirection(chunk, k);
    HasteGemm weights = KernelGradientProduct(chunk, cell, features);
    weights.n = weights.n / chunk.lanes * (end - k);
    const bool one = WeightsAreOne(cell, end - k);
    if (one) weights.m += recurrent.m;
    visit(weights);
    for (int64_t i = k; i < end && !one; ++i) visit(recurrent);
  }
}

}  // namespace

int64_t EndOfDirection(const HasteRnnConfig& config, int64_t k) {
  if (config.reverse == nullptr) return config.lanes;
  const bool reverse = config.reverse[k] != 0;
  for (++k; k < config.lanes && (config.reverse[k] != 0) == reverse;) ++k;
  return k;
}
bool OneDirection(const HasteRnnConfig& config) {
  return EndOfDirection(config, 0) == config.lanes;
}

bool InputOrder(const HasteRnnConfig& config, const HasteGemm& input, TileOrder* order) {
  *order = OrderOf(input.m, input.n);
  if (OneDirection(config)) return true;
  int64_t from = 0, to = config.lanes;  // of those that walk backwards
  int changes = 0;
  for (int64_t k = 1; k < config.lanes; ++k) {
    if ((config.reverse[k] != 0) == (config.reverse[k - 1] != 0)) continue;
    ++changes;
    (config.reverse[k] != 0 ? from : to) = k;
  }
  const int64_t columns = input.n / config.lanes;
  from *= columns;
  to *= columns;
  if (changes > 1 || from % kProductColumns != 0 || (to < input.n && to % kProductColumns != 0) ||
      kProductRows % config.batch != 0) {
    return false;
  }
  order->turned_from = static_cast<int>(from / kProductColumns);
  order->turned_to = static_cast<int>(CeilDiv(to, int64_t{kProductColumns}));
  return true;
}

std::vector<double> ForwardMicroseconds(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                        int64_t features, const Plan& plan,
                                        const CudaProperties& cuda, const CostTable& costs,
                                        OverlappedInput* overlap) {
  if (!IsOnChip(plan) || config.batch > kProductRows) return {};
  // Rows of wx that begin elsewhere may be read, in part, before they are there.
  if (config.hidden * static_cast<int64_t>(DtypeSize(config.dtype)) % kPieceBytes != 0) return {};
  const HasteGemm gemm = InputProduct(config, cell, features);
  const int pairs = FreePairs(BlocksOf(config, plan), cuda);
  if (pairs < kWorthwhilePairs || MultiplyAdds(gemm) < kWorthwhile || gemm.m > INT32_MAX) return {};
  if (!InputOrder(config, gemm, &overlap->order)) return {};
  overlap->product = PlanOneChunk(gemm, cuda.sm_major, cuda.clusters[2], kInputRoom);
  if (!overlap->product.ours) return {};
  ProductPlan beside = overlap->product;
  overlap->all_pairs = beside.pairs;
  beside.pairs = std::min(beside.pairs, pairs);
  const auto work = [&](const ProductPlan& by, int rows) {
    return by.Work(int64_t{rows} * kProductRows, gemm.n);
  };
  const double walk = WalkMicroseconds(config, plan, costs.overlap);
  const int rows = overlap->order.rows;
  std::vector<double> times;
  for (int before = 0; before <= kMostBefore * rows && before < rows; ++before) {
    times.push_back(
        ProductMicroseconds(gemm, overlap->product, work(overlap->product, before), costs.gemm) +
        Longer(walk, costs.overlap.input_factor *
                         Microseconds(work(beside, rows - before), beside.terms, costs.gemm)));
  }
  times.push_back(walk + (IsExact(config)
                              ? ProductMicroseconds(gemm, overlap->product,
                                                    work(overlap->product, rows), costs.gemm)
                              : CublasMicroseconds(gemm, costs)));
  overlap->product.pairs = beside.pairs;
  return times;
}

OverlappedInput PlanOverlappedInput(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                    int64_t features, const Plan& plan,
                                    const CudaProperties& cuda) {
  OverlappedInput overlap = {};
  const std::vector<double> times = ForwardMicroseconds(
      config, cell, features, plan, cuda, CostsOf(cuda.sm_major, cuda.sm_minor), &overlap);
  const auto best = std::min_element(times.begin(), times.end());
  overlap.rows_before = static_cast<int>(best - times.begin());
  overlap.product.ours = !times.empty() && best + 1 != times.end();
  return overlap;
}

OverlapFlags InputFlags(const HasteRnnConfig& config, const TileOrder& order) {
  OverlapFlags flags;
  flags.rows = kProductRows;
  if (order.turned() == 0) return flags;
  flags.chunks = order.rows;
  flags.missing =
      static_cast<int32_t>(int64_t{order.rows} * kProductRows / config.batch - config.time);
  return flags;
}

std::array<Times, 2> CompletedTimes(int64_t from, int64_t to, int64_t time) {
  // Steps from either end: what both have come to begins at time - to.
  const int64_t first = time - to, last = time - from;
  if (first >= to) return {};
  if (from <= last) return {{{first, to - first}, {}}};
  return {{{first, to - from}, {from, to - from}}};
}

bool WeightsAreOne(const HasteCellInfo& cell, int64_t lanes) {
  return lanes == 1 && !cell.splits_gradient;
}

std::vector<double> BackwardMicroseconds(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                         int64_t features, const Plan& plan,
                                         const CudaProperties& cuda, const CostTable& costs,
                                         OverlappedGradients* overlap) {
  // Others could, but where products are cuBLAS's: that was never measured.
  if (!IsOnChip(plan) || cuda.sm_major != 9 || features < 2 || features > INT32_MAX) return {};
  overlap->blocks = BlocksOf(config, plan);
  const int pairs = FreePairs(overlap->blocks, cuda);
  overlap->steps = 1;
  while (overlap->steps * config.batch < kPartRows) overlap->steps *= 2;
  const int64_t chunks = CeilDiv(config.time, overlap->steps);
  overlap->cublas = !IsExact(config);
  const double all = MultiplyAdds(InputGradientProduct(config, cell, features));
  if (pairs < kWorthwhilePairs || chunks < kLeastChunks || config.batch * config.time > INT32_MAX ||
      (overlap->cublas && !cuda.has_cublas) ||
      all < (overlap->cublas ? kWorthwhileOfCublas : kWorthwhile)) {
    return {};
  }
  HasteRnnConfig chunk = config;
  chunk.time = overlap->steps;
  bool possible = true;
  // Of a chunk by the whole GPU, and what of it are calls; of all chunks by cuBLAS.
  double part = 0, calls = 0, apart = 0;
  const double count = static_cast<double>(chunks), call = costs.gemm.float_call_microseconds;
  const auto add_cublas = [&](const HasteGemm& gemm) {
    const double product = CublasMicroseconds(gemm, costs);
    apart += call + count * (product - call);
    return product;
  };
  const auto add_ours = [&](const HasteGemm& gemm, bool sums_in_float) {
    const ProductPlan ours =
        PlanProduct(gemm, cuda.sm_major, cuda.clusters[2], kChunkRoom, sums_in_float, costs.gemm);
    possible &= ours.ours;
    part += ours.microseconds;
    calls += costs.gemm.chunk_call_microseconds;
    add_cublas(gemm);
  };
  // Where lanes walk both ways cuBLAS's comes late in the walk; taken for evenly spread.
  const HasteGemm input = InputGradientProduct(chunk, cell, features);
  if (overlap->cublas) {
    part += add_cublas(input);
    calls += call;
  } else {
    add_ours(input, false);
  }
  VisitWeights(chunk, cell, features, [&](const HasteGemm& gemm) { add_ours(gemm, true); });
  if (!possible) return {};
  const double walk = WalkMicroseconds(chunk, plan, costs.overlap);
  const double factor = !overlap->cublas                ? costs.overlap.float_factor
                        : config.dtype == HASTE_FLOAT32 ? costs.overlap.tf32_factor
                                                        : costs.overlap.half_factor;
  const double beside = calls + factor * (part - calls) * cuda.clusters[2] / pairs;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> times = {overlap->cublas ? count * walk + apart : kNever, kNever};
  // What is not done beside the walk is done best as one part. The whole GPU does that, and chunks
  // that are late.
  const double during = (count - 1) * walk;
  for (int64_t done = 1; done < chunks; ++done) {
    const double wanted = static_cast<double>(done) * beside;
    times.push_back(count * walk + (Longer(wanted, during) - during) * part / beside + calls +
                    static_cast<double>(chunks - done) * (part - calls));
  }
  return times;
}

OverlappedGradients PlanOverlappedGradients(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                            int64_t features, const Plan& plan,
                                            const CudaProperties& cuda) {
  OverlappedGradients overlap;
  const std::vector<double> times = BackwardMicroseconds(
      config, cell, features, plan, cuda, CostsOf(cuda.sm_major, cuda.sm_minor), &overlap);
  if (times.empty()) return overlap;
  // Of about the same ones the most chunks: one that is late costs less than one too few.
  const double enough = kAboutTheSame * *std::min_element(times.begin(), times.end());
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] <= enough) overlap.chunks = static_cast<int64_t>(i);
  }
  return overlap;
}

}  // namespace haste
