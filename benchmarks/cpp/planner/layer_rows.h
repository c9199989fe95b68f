// Rows of benchmarks/data/products_*.csv and layers_*.csv: a large product on a GPU and how it is
// cut, and a layer and which of its products run during the walk.
#ifndef HASTE_BENCHMARKS_CPP_PLANNER_LAYER_ROWS_H_
#define HASTE_BENCHMARKS_CPP_PLANNER_LAYER_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/cpp/planner/plan_rows.h"
#include "lib/plan/gemm/gemm.h"
#include "lib/plan/overlap.h"

namespace benchmark {

// One of those around a recurrence.
struct Product {
  std::string name, dtype;  // "x·W", "dwx·Wᵀ" or "xᵀ·dwx" as "input", "input_gradient" and
                            // "kernel_gradient"; "f32", "tf32" or "bf16"
  int64_t m, n, k;

  HasteGemm Gemm() const;  // but for where matrices lie; m = 0: there is no such product
};

struct ProductCut {
  std::string name;  // "plain": of float32 units or cuBLAS; or "r1024 c768 d512 s0"
  haste::ProductPlan plan;
};
// The plan's own and others.
std::vector<ProductCut> CutsOf(const Product&, const haste::CudaProperties&);
// The estimate of any of them; 0: there is no such cut.
double ProductMicroseconds(const Product&, const std::string& cut, const haste::CudaProperties&,
                           const haste::CostTable&);

// Of two lanes the second one walks backwards.
struct Layer {
  Problem walk;
  int64_t time, features;

  HasteRnnConfig Config() const;

  bool operator==(const Layer& other) const {
    return !(walk < other.walk) && !(other.walk < walk) && time == other.time &&
           features == other.features;
  }
};

// "walk": the recurrence alone; "apart": its products before or after it; "before 3": three rows of
// tiles of x·W, and the others during the walk; "chunks 3": the gradients of two time chunks during
// the walk, and the rest after it.
struct LayerCut {
  std::string name;
  haste::Plan plan;  // where what its steps take leads to that
};
// Empty: nothing can run during this walk.
std::vector<LayerCut> CutsOf(const Layer&, const haste::Plan&, const haste::CudaProperties&);
// The estimates of a layer whose walk is cut as `walk` says, "grid u1 r1 p1 s1 w0".
class LayerEstimates {
 public:
  LayerEstimates(const Layer&, const std::string& walk, const haste::CudaProperties&,
                 const haste::CostTable&);
  // Microseconds of a cut by its name; 0: there is no such cut, or it is not planned for.
  double Of(const std::string& cut) const;

 private:
  double walk_ = 0;
  std::vector<double> times_;
  bool backward_;
};

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_PLANNER_LAYER_ROWS_H_
