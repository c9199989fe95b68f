// Rows of benchmarks/data/plan_*.csv: a recurrence on a GPU, an engine, and how that cuts it.
#ifndef HASTE_BENCHMARKS_CPP_PLANNER_PLAN_ROWS_H_
#define HASTE_BENCHMARKS_CPP_PLANNER_PLAN_ROWS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>

#include "lib/plan/costs/cost_table.h"
#include "lib/plan/plan.h"

namespace benchmark {

// A recurrence. Activations are the usual ones: tanh, and sigmoid for gates.
struct Problem {
  std::string cell, dtype;  // "lstm"; "f32", "tf32", "bf16", "f16" or "f64"
  int64_t batch, lanes, hidden;
  bool backward;

  // In haste_cell; -1: there is no such cell with a matrix.
  int CellIndex() const;
  const HasteCellInfo& Cell() const;
  HasteRnnConfig Config() const;

  bool operator<(const Problem& other) const {
    const auto fields = [](const Problem& p) {
      return std::tie(p.cell, p.dtype, p.batch, p.lanes, p.hidden, p.backward);
    };
    return fields(*this) < fields(other);
  }
};

struct Cut {
  std::string engine, name;  // name: "u1 r2 p3 s1 w0", what tells the cuts of an engine apart
  haste::Plan plan;
  double clocks;        // estimated, of a step
  int multiprocessors;  // of the GPU that `stepwise` cuts for, in place of the real one
};

// What tells the cuts of plan.engine apart.
std::string NameOf(const haste::Plan&, const HasteCellInfo&);

// Rows of `tiled` in which R is stationary have an engine name and costs of their own.
inline constexpr char kTiledStationary[] = "tiled_stationary";
// Calls visit for all cuts of all engines, always in the same order. `stepwise` is one of them,
// since its engine cuts it.
void VisitRows(const Problem&, const haste::CudaProperties&, const haste::CostTable&,
               const std::function<void(const Cut&)>& visit);

// Rows of `stepwise` that tell its cuts apart have an engine name of their own: what compares these
// is not what compares engines. Those that GPUs with fewer or more multiprocessors would have:
inline constexpr char kStepwiseCut[] = "stepwise_cut";
void VisitStepwiseCuts(const Problem&, const haste::CudaProperties&,
                       const std::function<void(const Cut&)>& visit);
// And any of them by its name; 0: there is none.
double StepwiseCutClocks(const Problem&, const haste::CudaProperties&, const haste::CostTable&,
                         const std::string& name);

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_PLANNER_PLAN_ROWS_H_
