#include "benchmarks/cpp/planner/layer_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lib/base/int_math.h"
#include "lib/plan/gemm/layer_gemms.h"
#include "lib/plan/internal.h"

namespace benchmark {
namespace {

using haste::ProductPlan;
using haste::ProductWork;

constexpr char kPlain[] = "plain";
constexpr size_t kMostProductCuts = 8, kMostLayerCuts = 6;

int Pairs(const haste::CudaProperties& cuda) { return cuda.clusters[2]; }

std::string NameOf(const ProductPlan& plan) {
  const ProductWork work = plan.Work(plan.rows, plan.columns);
  char text[80];
  std::snprintf(text, sizeof text, "r%lld c%lld d%lld s%d", static_cast<long long>(plan.rows),
                static_cast<long long>(plan.columns), static_cast<long long>(plan.depth),
                work.shared() > 0 ? work.sharers : 0);
  return text;
}

}  // namespace

HasteGemm Product::Gemm() const {
  HasteGemm gemm = HASTE_INIT(HasteGemm);
  gemm.device = HASTE_CUDA;
  gemm.dtype = dtype == "bf16" ? HASTE_BFLOAT16 : HASTE_FLOAT32;
  gemm.allow_tf32 = dtype == "tf32";
  gemm.m = name == "input" || name == "input_gradient" || name == "kernel_gradient" ? m : 0;
  gemm.n = n;
  gemm.k = k;
  const bool a = name == "kernel_gradient", b = name == "input_gradient";  // transposed
  gemm.a_row = a ? 1 : k;
  gemm.a_col = a ? m : 1;
  gemm.b_row = b ? 1 : n;
  gemm.b_col = b ? k : 1;
  gemm.c_row = n;
  return gemm;
}

std::vector<ProductCut> CutsOf(const Product& product, const haste::CudaProperties& cuda) {
  const HasteGemm gemm = product.Gemm();
  std::vector<ProductCut> cuts = {{kPlain, {}}};
  // Of TensorFloat-32 and 16 bits only sums in float32 are ours, of weights' gradients.
  if (product.dtype != "f32" && product.name != "kernel_gradient") return cuts;
  const auto add = [&](ProductPlan plan) {
    plan.ours = true;
    const std::string name = NameOf(plan);
    const bool known = std::any_of(cuts.begin(), cuts.end(),
                                   [&](const ProductCut& cut) { return cut.name == name; });
    if (!known && cuts.size() < kMostProductCuts) cuts.push_back({name, plan});
  };
  std::vector<ProductPlan> plans;
  for (int64_t most : {int64_t{0}, int64_t{96} << 20, int64_t{32} << 20, int64_t{16} << 20}) {
    plans.push_back(haste::PlanProduct(gemm, cuda.sm_major, Pairs(cuda), most, true));
    if (plans.back().pairs == 0) plans.pop_back();  // not worth planning
  }
  for (const ProductPlan& plan : plans) add(plan);
  for (ProductPlan plan : plans) {
    plan.slots = plan.slots > 0 ? 0 : 2 * plan.pairs;
    add(plan);
  }
  for (ProductPlan plan : plans) {
    const int64_t tile = haste::KBlockDepth(plan.terms);
    plan.depth = haste::PadTo(haste::CeilDiv(plan.depth, 2), tile);
    add(plan);
  }
  for (ProductPlan plan : plans) {
    plan.columns = haste::PadTo(haste::CeilDiv(plan.columns, 2), haste::kProductColumns);
    add(plan);
  }
  return cuts;
}

double ProductMicroseconds(const Product& product, const std::string& cut,
                           const haste::CudaProperties& cuda, const haste::CostTable& costs) {
  const HasteGemm gemm = product.Gemm();
  if (gemm.m == 0) return 0;
  if (cut == kPlain) {
    if (product.dtype == "f32") return haste::FloatMicroseconds(gemm, costs.gemm);
    return haste::CublasMicroseconds(gemm, costs);
  }
  long long rows, columns, depth;
  int sharers;
  if (std::sscanf(cut.c_str(), "r%lld c%lld d%lld s%d", &rows, &columns, &depth, &sharers) != 4) {
    return 0;
  }
  ProductPlan plan = {};
  plan.a_stays = gemm.m <= gemm.n;
  plan.rows = rows;
  plan.columns = columns;
  plan.depth = depth;
  plan.pairs = Pairs(cuda);
  plan.terms = product.dtype == "f32" ? 2 : 1;
  ProductWork work = plan.Work(rows, columns);  // without slots nothing is shared out
  if (sharers > 0) {
    work.whole -= work.tiles % work.pairs;
    work.sharers = sharers;
  }
  return haste::ProductMicroseconds(gemm, plan, work, costs.gemm);
}

HasteRnnConfig Layer::Config() const {
  static constexpr uint8_t kBothWays[] = {0, 1};
  HasteRnnConfig config = walk.Config();
  config.time = time;
  if (walk.lanes == 2) config.reverse = kBothWays;
  return config;
}

std::vector<LayerCut> CutsOf(const Layer& layer, const haste::Plan& own,
                             const haste::CudaProperties& cuda) {
  const HasteRnnConfig config = layer.Config();
  const HasteCellInfo& cell = layer.walk.Cell();
  haste::CudaProperties with_cublas = cuda;
  with_cublas.has_cublas = true;
  const auto cut_of = [&](double scale) {
    LayerCut cut = {"", own};
    cut.plan.persistent.clocks *= scale;
    if (layer.walk.backward) {
      const auto overlap =
          haste::PlanOverlappedGradients(config, cell, layer.features, cut.plan, with_cublas);
      if (overlap.chunks > 0) cut.name = "chunks " + std::to_string(overlap.chunks);
    } else {
      const auto overlap =
          haste::PlanOverlappedInput(config, cell, layer.features, cut.plan, with_cublas);
      if (overlap.product.ours) cut.name = "before " + std::to_string(overlap.rows_before);
    }
    return cut;
  };
  // From the longest steps to the shortest ones: all that differ.
  std::vector<LayerCut> all;
  size_t planned = 0;
  for (int i = 0; i <= 192; ++i) {
    const LayerCut cut = cut_of(std::exp2((96 - i) / 16.0));
    if (!cut.name.empty() && (all.empty() || all.back().name != cut.name)) all.push_back(cut);
    if (i == 96) planned = all.empty() ? 0 : all.size() - 1;
  }
  if (all.empty()) return {};
  std::vector<LayerCut> cuts = {{"walk", own}};
  // Gradients of exact floats are not compared with those after the walk.
  if (!layer.walk.backward || layer.walk.dtype != "f32") cuts.push_back({"apart", own});
  // The one that is planned, its neighbours, and some of the others.
  std::vector<bool> taken(all.size());
  const auto take = [&](size_t i) {
    if (i < all.size() && !taken[i] && cuts.size() < kMostLayerCuts + 2) {
      taken[i] = true;
      cuts.push_back(all[i]);
    }
  };
  take(planned);
  take(planned + 1);
  if (planned > 0) take(planned - 1);
  for (size_t i = 0; i < 5; ++i) take(i * (all.size() - 1) / 4);
  return cuts;
}

LayerEstimates::LayerEstimates(const Layer& layer, const std::string& walk,
                               const haste::CudaProperties& cuda, const haste::CostTable& costs)
    : backward_(layer.walk.backward) {
  const HasteRnnConfig config = layer.Config();
  const HasteCellInfo& cell = layer.walk.Cell();
  haste::Plan plan;
  VisitRows(layer.walk, cuda, costs, [&](const Cut& cut) {
    if (cut.engine + " " + cut.name == walk) plan = cut.plan;
  });
  walk_ = layer.time * plan.persistent.clocks / costs.overlap.clocks_per_microsecond;
  haste::OverlappedInput input = {};
  haste::OverlappedGradients gradients;
  times_ =
      backward_
          ? haste::BackwardMicroseconds(config, cell, layer.features, plan, cuda, costs, &gradients)
          : haste::ForwardMicroseconds(config, cell, layer.features, plan, cuda, costs, &input);
}

double LayerEstimates::Of(const std::string& cut) const {
  if (cut == "walk") return walk_;
  if (times_.empty()) return 0;
  if (cut == "apart") return backward_ ? times_.front() : times_.back();
  size_t count;
  if (std::sscanf(cut.c_str(), backward_ ? "chunks %zu" : "before %zu", &count) != 1) return 0;
  return count < times_.size() ? times_[count] : 0;
}

}  // namespace benchmark
