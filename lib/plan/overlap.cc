#include "lib/plan/overlap.h"

#include <algorithm>
#include <cmath>

#include "lib/base/dtypes.h"
#include "lib/plan/engines/step_rows.h"
#include "lib/plan/gemm/layer_gemms.h"

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
double MultiplyAdds(const HasteGemm& g) {
  return static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
}

// Whether a part's product is our own; *microseconds: and more, by all of the GPU.
bool IsOurs(const HasteGemm& gemm, bool sums_in_float, const CudaProperties& cuda,
            double* microseconds) {
  const ProductPlan plan =
      PlanProduct(gemm, cuda.sm_major, cuda.clusters[2], kChunkRoom, sums_in_float);
  *microseconds += plan.microseconds;
  return plan.ours;
}
// The same of all those of W and R.
bool WeightsAreOurs(const HasteRnnConfig& chunk, const HasteCellInfo& cell, int64_t features,
                    const CudaProperties& cuda, double* microseconds) {
  const HasteGemm recurrent = RecurrentProduct(chunk, cell, 0);
  for (int64_t k = 0, end = 0; k < chunk.lanes; k = end) {
    end = EndOfDirection(chunk, k);
    HasteGemm weights = KernelGradientProduct(chunk, cell, features);
    weights.n = weights.n / chunk.lanes * (end - k);
    const bool one = WeightsAreOne(cell, end - k);
    if (one) weights.m += recurrent.m;
    if (!IsOurs(weights, true, cuda, microseconds)) return false;
    for (int64_t i = k; i < end && !one; ++i) {
      if (!IsOurs(recurrent, true, cuda, microseconds)) return false;
    }
  }
  return true;
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

OverlappedInput PlanOverlappedInput(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                    int64_t features, const Plan& plan,
                                    const CudaProperties& cuda) {
  const OverlapCosts& costs = CostsOf(cuda.sm_major, cuda.sm_minor).overlap;
  if (!IsOnChip(plan) || config.batch > kProductRows) return {};
  // Rows of wx that begin elsewhere may be read, in part, before they are there.
  if (config.hidden * static_cast<int64_t>(DtypeSize(config.dtype)) % kPieceBytes != 0) return {};
  const HasteGemm gemm = InputProduct(config, cell, features);
  const int pairs = FreePairs(BlocksOf(config, plan), cuda);
  if (pairs < kWorthwhilePairs || MultiplyAdds(gemm) < kWorthwhile || gemm.m > INT32_MAX) return {};
  OverlappedInput overlap;
  if (!InputOrder(config, gemm, &overlap.order)) return {};
  ProductPlan& product = overlap.product =
      PlanOneChunk(gemm, cuda.sm_major, cuda.clusters[2], kInputRoom);
  if (!product.ours) return {};
  overlap.all_pairs = product.pairs;
  product.pairs = std::min(product.pairs, pairs);
  const double walk =
      static_cast<double>(config.time) * plan.persistent.clocks / costs.clocks_per_microsecond;
  const double input =
      costs.input_factor * Microseconds(product.Work(gemm.m, gemm.n), product.terms);
  const double share = std::max(1 - walk / input, 0.0);
  overlap.rows_before = static_cast<int>(std::ceil(share * overlap.order.rows));
  product.ours = share <= kMostBefore && overlap.rows_before < overlap.order.rows;
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

OverlappedGradients PlanOverlappedGradients(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                            int64_t features, const Plan& plan,
                                            const CudaProperties& cuda) {
  const OverlapCosts& costs = CostsOf(cuda.sm_major, cuda.sm_minor).overlap;
  OverlappedGradients overlap;
  // Others could, but where products are cuBLAS's: that was never measured.
  if (!IsOnChip(plan) || cuda.sm_major != 9 || features < 2 || features > INT32_MAX) return overlap;
  overlap.blocks = BlocksOf(config, plan);
  const int pairs = FreePairs(overlap.blocks, cuda);
  overlap.steps = 1;
  while (overlap.steps * config.batch < kPartRows) overlap.steps *= 2;
  const int64_t chunks = CeilDiv(config.time, overlap.steps);
  if (pairs < kWorthwhilePairs || chunks < kLeastChunks || config.batch * config.time > INT32_MAX) {
    return overlap;
  }
  HasteRnnConfig chunk = config;
  chunk.time = overlap.steps;
  const bool exact = config.dtype == HASTE_FLOAT32 && !config.allow_tf32;
  overlap.cublas = !exact;
  double microseconds = 0;  // of the whole GPU
  // Where lanes walk both ways cuBLAS's comes late in the walk; taken for evenly spread.
  const HasteGemm input = InputGradientProduct(chunk, cell, features);
  if (overlap.cublas) {
    microseconds += MultiplyAdds(input) / (config.dtype == HASTE_FLOAT32
                                               ? costs.cublas_tf32_products_per_microsecond
                                               : costs.cublas_half_products_per_microsecond);
  }
  const bool possible =
      (overlap.cublas ? cuda.has_cublas : IsOurs(input, false, cuda, &microseconds)) &&
      WeightsAreOurs(chunk, cell, features, cuda, &microseconds);
  const double all = MultiplyAdds(InputGradientProduct(config, cell, features));
  if (!possible || all < (overlap.cublas ? kWorthwhileOfCublas : kWorthwhile)) return overlap;
  // What does not get done beside the walk is done best as one part, by the whole GPU.
  const double walk =
      static_cast<double>(overlap.steps) * plan.persistent.clocks / costs.clocks_per_microsecond;
  const double factor = exact                           ? costs.float_factor
                        : config.dtype == HASTE_FLOAT32 ? costs.tf32_factor
                                                        : costs.half_factor;
  const double product = factor * microseconds * cuda.clusters[2] / pairs;
  const double done = static_cast<double>(chunks - 1) * walk / product;
  overlap.chunks = 1 + std::clamp(std::llround(done), 1LL, static_cast<long long>(chunks - 1));
  return overlap;
}

}  // namespace haste
