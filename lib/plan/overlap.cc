#include "lib/plan/overlap.h"

#include <algorithm>
#include <cmath>

#include "lib/base/dtypes.h"
#include "lib/plan/layer_gemms.h"
#include "lib/plan/step_rows.h"

namespace haste {
namespace {

constexpr int kWorthwhilePairs = 8;  // of multiprocessors that the walk leaves free
// Multiply-adds of one of the products: of floats in two parts, and of what cuBLAS multiplies.
constexpr double kWorthwhile = 5e9, kWorthwhileOfCublas = 2e10;
// Rows of a part backward, steps × N, at least: what is worth a product's kernels.
constexpr int64_t kPartRows = 2048;
constexpr int64_t kLeastParts = 3;
// Of forward's x·W packed.
constexpr int64_t kInputRoom = 96 << 20;
constexpr double kClocksPerMicrosecond = 1750;  // of an H200
// So much longer than by as many multiprocessors products take beside a walk, which has a share of
// the L2 cache's bandwidth: of floats, and of TensorFloat-32 and 16 bits, which by all of the GPU
// are no match for cuBLAS; and x·W, for which the walk waits.
constexpr double kBesideFactor = 1.05, kBesideFactorTf32 = 0.72, kBesideFactor16 = 0.75;
constexpr double kInputBesideFactor = 1.45;
// Of cuBLAS, by all of the GPU: multiply-adds in a microsecond, of 16 bits and TensorFloat-32.
constexpr double kCublas16 = 300e6, kCublasTf32 = 150e6;
// What comes before the walk is better done by the best product there is.
constexpr double kMostBefore = 0.5;

bool IsOnChip(const Plan& plan) {
  return plan.engine == EngineKind::kGrid || plan.engine == EngineKind::kCluster;
}
int BlocksOf(const HasteRnnConfig& config, const Plan& plan) {
  const ResidentTiling& t = plan.resident.tiling;
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
      PlanProduct(gemm, cuda.sm_major, cuda.clusters[2], kPartRoom, sums_in_float);
  *microseconds += plan.microseconds;
  return plan.ours;
}
// The same of all those of W and R.
bool WeightsAreOurs(const HasteRnnConfig& part, const HasteCellInfo& cell, int64_t features,
                    const CudaProperties& cuda, double* microseconds) {
  const HasteGemm recurrent = RecurrentProduct(part, cell, 0);
  for (int64_t k = 0, end = 0; k < part.lanes; k = end) {
    end = EndOfDirection(part, k);
    HasteGemm weights = KernelGradientProduct(part, cell, features);
    weights.n = weights.n / part.lanes * (end - k);
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

InputBeside PlanInputBeside(const HasteRnnConfig& config, const HasteCellInfo& cell,
                            int64_t features, const Plan& plan, const CudaProperties& cuda) {
  if (!IsOnChip(plan) || config.batch > kProductRows) return {};
  // Rows of wx that begin elsewhere may be read, in part, before they are there.
  if (config.hidden * static_cast<int64_t>(DtypeSize(config.dtype)) % kPieceBytes != 0) return {};
  const HasteGemm gemm = InputProduct(config, cell, features);
  const int pairs = FreePairs(BlocksOf(config, plan), cuda);
  if (pairs < kWorthwhilePairs || MultiplyAdds(gemm) < kWorthwhile || gemm.m > INT32_MAX) return {};
  InputBeside beside;
  if (!InputOrder(config, gemm, &beside.order)) return {};
  ProductPlan& product = beside.product =
      PlanOneChunk(gemm, cuda.sm_major, cuda.clusters[2], kInputRoom);
  if (!product.ours) return {};
  beside.all_pairs = product.pairs;
  product.pairs = std::min(product.pairs, pairs);
  const double walk =
      static_cast<double>(config.time) * plan.resident.clocks / kClocksPerMicrosecond;
  const double input =
      kInputBesideFactor * Microseconds(product.Work(gemm.m, gemm.n), product.parts);
  const double share = std::max(1 - walk / input, 0.0);
  beside.rows_before = static_cast<int>(std::ceil(share * beside.order.rows));
  product.ours = share <= kMostBefore && beside.rows_before < beside.order.rows;
  return beside;
}

Watch InputWatched(const HasteRnnConfig& config, const TileOrder& order) {
  Watch watch;
  watch.rows = kProductRows;
  if (order.turned() == 0) return watch;
  watch.parts = order.rows;
  watch.missing =
      static_cast<int32_t>(int64_t{order.rows} * kProductRows / config.batch - config.time);
  return watch;
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

GradientsBeside PlanGradientsBeside(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                    int64_t features, const Plan& plan,
                                    const CudaProperties& cuda) {
  GradientsBeside beside;
  // Others could, but where products are cuBLAS's: that was never measured.
  if (!IsOnChip(plan) || cuda.sm_major != 9 || features < 2 || features > INT32_MAX) return beside;
  beside.blocks = BlocksOf(config, plan);
  const int pairs = FreePairs(beside.blocks, cuda);
  beside.steps = 1;
  while (beside.steps * config.batch < kPartRows) beside.steps *= 2;
  const int64_t parts = CeilDiv(config.time, beside.steps);
  if (pairs < kWorthwhilePairs || parts < kLeastParts || config.batch * config.time > INT32_MAX) {
    return beside;
  }
  HasteRnnConfig part = config;
  part.time = beside.steps;
  const bool exact = config.dtype == HASTE_FLOAT32 && !config.allow_tf32;
  beside.cublas = !exact;
  double microseconds = 0;  // of the whole GPU
  // Where lanes walk both ways cuBLAS's comes late in the walk; taken for evenly spread.
  const HasteGemm input = InputGradientProduct(part, cell, features);
  if (beside.cublas) {
    microseconds += MultiplyAdds(input) / (config.dtype == HASTE_FLOAT32 ? kCublasTf32 : kCublas16);
  }
  const bool possible =
      (beside.cublas ? cuda.has_cublas : IsOurs(input, false, cuda, &microseconds)) &&
      WeightsAreOurs(part, cell, features, cuda, &microseconds);
  const double all = MultiplyAdds(InputGradientProduct(config, cell, features));
  if (!possible || all < (beside.cublas ? kWorthwhileOfCublas : kWorthwhile)) return beside;
  // What does not get done beside the walk is done best as one part, by the whole GPU.
  const double walk =
      static_cast<double>(beside.steps) * plan.resident.clocks / kClocksPerMicrosecond;
  const double factor = exact                           ? kBesideFactor
                        : config.dtype == HASTE_FLOAT32 ? kBesideFactorTf32
                                                        : kBesideFactor16;
  const double product = factor * microseconds * cuda.clusters[2] / pairs;
  const double done = static_cast<double>(parts - 1) * walk / product;
  beside.parts = 1 + std::clamp(std::llround(done), 1LL, static_cast<long long>(parts - 1));
  return beside;
}

}  // namespace haste
