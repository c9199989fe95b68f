// The planner's own estimates for benchmarks/fit_plan.py: of rows, for any table of costs. Tables
// are arrays in the order of lib/plan/costs/cost_table.h.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "benchmarks/cpp/planner/layer_rows.h"
#include "benchmarks/cpp/planner/plan_rows.h"
#include "lib/plan/internal.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace benchmark {
namespace {

struct Cost {
  const char* name;
  size_t at;  // in a table
};
#define HASTE_COST(NAME, VALUE) {#NAME, offsetof(haste::CostTable, NAME) / sizeof(double)},
constexpr Cost kCosts[] = {
#include "lib/plan/costs/costs_h200.inc"
};
#undef HASTE_COST
constexpr size_t kTable = sizeof(haste::CostTable) / sizeof(double);
static_assert(sizeof kCosts / sizeof kCosts[0] == kTable, "costs that the file does not name");

// Rows of one recurrence. A row is its place among the cuts, or the name of one of `stepwise`.
struct Row {
  int number;
  size_t place;
  std::string stepwise;
};

class Rows {
 public:
  explicit Rows(const haste::CudaProperties& cuda) : cuda_(cuda) {}

  bool Add(const Problem& problem, const std::string& engine, const std::string& name) {
    if (problem.CellIndex() < 0) return false;
    const haste::CostTable& costs = CompiledCosts();
    bool found = false;
    Row row = {count_, 0, ""};
    if (engine == kStepwiseCut) {
      row.stepwise = name;
      found = StepwiseCutClocks(problem, cuda_, costs, name) > 0;
    } else {
      size_t place = 0;
      VisitRows(problem, cuda_, costs, [&](const Cut& cut) {
        if (cut.engine == engine && cut.name == name) {
          row.place = place;
          found = true;
        }
        ++place;
      });
    }
    if (!found) return false;
    ++count_;
    rows_[problem].push_back(row);
    return true;
  }

  bool Add(const Product& product, const std::string& cut) {
    if (ProductMicroseconds(product, cut, cuda_, CompiledCosts()) <= 0) return false;
    products_.push_back({count_++, product, cut});
    return true;
  }

  bool Add(const Layer& layer, const std::string& walk, const std::string& cut) {
    if (layer.walk.CellIndex() < 0) return false;
    const double time = LayerEstimates(layer, walk, cuda_, CompiledCosts()).Of(cut);
    if (time <= 0 || !std::isfinite(time)) return false;
    if (layers_.empty() || layers_.back().walk != walk || !(layers_.back().layer == layer)) {
      layers_.push_back({layer, walk, {}});
    }
    layers_.back().cuts.emplace_back(count_++, cut);
    return true;
  }

  // Clocks of steps, microseconds of products and layers.
  void Estimate(const haste::CostTable& costs, double* clocks) const {
    for (const auto& [number, product, cut] : products_) {
      clocks[number] = ProductMicroseconds(product, cut, cuda_, costs);
    }
    for (const LayerRows& rows : layers_) {
      const LayerEstimates estimates(rows.layer, rows.walk, cuda_, costs);
      for (const auto& [number, cut] : rows.cuts) clocks[number] = estimates.Of(cut);
    }
    std::vector<double> all;
    for (const auto& [problem, rows] : rows_) {
      all.clear();
      haste::VisitCuts(problem.Config(), problem.Cell(), cuda_, problem.backward, costs,
                       [&](const haste::Plan&, double clocks) { all.push_back(clocks); });
      for (const Row& row : rows) {
        clocks[row.number] = row.stepwise.empty()
                                 ? all[row.place]
                                 : StepwiseCutClocks(problem, cuda_, costs, row.stepwise);
      }
    }
  }

 private:
  struct ProductRow {
    int number;
    Product product;
    std::string cut;
  };
  struct LayerRows {
    Layer layer;
    std::string walk;
    std::vector<std::pair<int, std::string>> cuts;
  };

  const haste::CostTable& CompiledCosts() const {
    return haste::CostsOf(cuda_.sm_major, cuda_.sm_minor);
  }

  const haste::CudaProperties cuda_;
  std::map<Problem, std::vector<Row>> rows_;
  std::vector<ProductRow> products_;
  std::vector<LayerRows> layers_;
  int count_ = 0;
};

}  // namespace
}  // namespace benchmark

// Costs by number: as many as a table has. nullptr: there are no more.
EXPORT const char* plan_costs_name(int32_t number, int32_t* at) {
  using benchmark::kCosts;
  if (number < 0 || static_cast<size_t>(number) >= benchmark::kTable) return nullptr;
  *at = static_cast<int32_t>(kCosts[number].at);
  return kCosts[number].name;
}
// The table that plans for this compute capability take.
EXPORT const double* plan_costs_table(int32_t sm_major, int32_t sm_minor) {
  return &haste::CostsOf(sm_major, sm_minor).multiprocessors;
}

// device: compute capability, multiprocessors, shared memory of a block, L2 cache, clusters by
// their size from 0 on.
EXPORT void* plan_costs_rows(const int64_t* device) {
  haste::CudaProperties cuda;
  cuda.sm_major = static_cast<int>(device[0]);
  cuda.sm_minor = static_cast<int>(device[1]);
  cuda.multiprocessors = static_cast<int>(device[2]);
  cuda.shared_bytes_per_block = device[3];
  cuda.l2_bytes = device[4];
  for (int i = 0; i <= haste::kMaxCluster; ++i) cuda.clusters[i] = static_cast<int>(device[5 + i]);
  cuda.has_cublas = true;
  return new benchmark::Rows(cuda);
}
// 0: the planner has no such cut.
EXPORT int32_t plan_costs_add(void* rows, const char* cell, const char* dtype,
                              const int64_t* batch_lanes_hidden, int32_t backward,
                              const char* engine, const char* cut) {
  const benchmark::Problem problem = {
      cell,         dtype, batch_lanes_hidden[0], batch_lanes_hidden[1], batch_lanes_hidden[2],
      backward != 0};
  return static_cast<benchmark::Rows*>(rows)->Add(problem, engine, cut);
}
EXPORT int32_t plan_costs_add_product(void* rows, const char* name, const char* dtype,
                                      const int64_t* mnk, const char* cut) {
  return static_cast<benchmark::Rows*>(rows)->Add(
      benchmark::Product{name, dtype, mnk[0], mnk[1], mnk[2]}, cut);
}
// sizes: batch, lanes, hidden, time, features.
EXPORT int32_t plan_costs_add_layer(void* rows, const char* cell, const char* dtype,
                                    const int64_t* sizes, int32_t backward, const char* walk,
                                    const char* cut) {
  const benchmark::Layer layer = {
      {cell, dtype, sizes[0], sizes[1], sizes[2], backward != 0}, sizes[3], sizes[4]};
  return static_cast<benchmark::Rows*>(rows)->Add(layer, walk, cut);
}
// Of all rows, in the order in which they were added.
EXPORT void plan_costs_estimate(const void* rows, const double* table, double* clocks) {
  static_cast<const benchmark::Rows*>(rows)->Estimate(
      *reinterpret_cast<const haste::CostTable*>(table), clocks);
}
EXPORT void plan_costs_free(void* rows) { delete static_cast<benchmark::Rows*>(rows); }
