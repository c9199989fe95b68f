#include "benchmarks/cpp/planner/plan_rows.h"

#include <cstdio>

#include "lib/base/dtypes.h"
#include "lib/cells/cells.h"
#include "lib/cells/info.h"
#include "lib/plan/engines/stepwise.h"
#include "lib/plan/internal.h"

namespace benchmark {
namespace {

using haste::EngineKind;
using haste::Plan;

#define INFO(CELL) haste::CellInfo<haste::CELL>(),
// As in lib/api/registry.cc.
const HasteCellInfo kCells[] = {HASTE_MATRIX_CELLS(INFO) HASTE_NORM_CELLS(INFO)};
#undef INFO

template <class... Values>
std::string Format(const char* format, Values... values) {
  char text[80];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// What `stepwise` multiplies in a phase (lib/cuda/stepwise/setup.cuh).
haste::TilingProblem StepProduct(const Problem& p, int phase) {
  const HasteCellInfo& cell = p.Cell();
  const int gates = cell.reset_gates == 0 ? cell.gates
                    : phase == 0          ? cell.reset_gates
                                          : cell.gates - cell.reset_gates;
  haste::TilingProblem product = {};
  product.batch = p.batch;
  product.lanes = p.lanes;
  product.hidden = p.hidden;
  product.depth = (p.backward ? gates : 1) * p.hidden;
  product.columns_per_unit = p.backward ? 1 : gates;
  product.columns = p.backward || gates < 3 ? 4 : gates;
  product.storage_bytes = static_cast<int>(haste::DtypeSize(p.Config().dtype));
  product.compute_bytes = p.dtype == "f64" ? 8 : 4;
  return product;
}

haste::TilingDevice StepDevice(const haste::CudaProperties& cuda) {
  const int64_t bytes =
      cuda.sm_major >= 9 ? (cuda.shared_bytes_per_block - 1024) / 2 : cuda.shared_bytes_per_block;
  return {cuda.multiprocessors, static_cast<size_t>(bytes)};
}

std::string NameOf(const haste::Tiling& tiling) {
  return Format("g%d c%d", tiling.row_groups, tiling.column_groups);
}

}  // namespace

int Problem::CellIndex() const {
  for (const HasteCellInfo& info : kCells) {
    if (cell == info.name) return static_cast<int>(&info - kCells);
  }
  return -1;
}
const HasteCellInfo& Problem::Cell() const { return kCells[CellIndex()]; }

HasteRnnConfig Problem::Config() const {
  HasteRnnConfig config = {};
  config.cell = cell.c_str();
  config.dtype = dtype == "bf16"  ? HASTE_BFLOAT16
                 : dtype == "f16" ? HASTE_FLOAT16
                 : dtype == "f64" ? HASTE_FLOAT64
                                  : HASTE_FLOAT32;
  config.allow_tf32 = dtype == "tf32";
  config.device = HASTE_CUDA;
  config.batch = batch;
  config.time = 1;
  config.lanes = lanes;
  config.hidden = hidden;
  config.activation = HASTE_TANH;
  config.recurrent_activation = HASTE_SIGMOID;
  config.epsilon = 1e-3f;
  return config;
}

std::string NameOf(const Plan& plan, const HasteCellInfo& cell) {
  const haste::PersistentTiling& t = plan.persistent.tiling;
  std::string name;
  switch (plan.engine) {
    case EngineKind::kCluster:
    case EngineKind::kGrid:
      return Format("u%d r%d p%d s%d w%d", t.unit_tiles, t.row_tiles, t.passes, t.sharers,
                    t.element_warps);
    case EngineKind::kBlock: return Format("r%d", plan.block.tiling.rows);
    case EngineKind::kTiled:
      for (int i = 0; i < haste::PhasesOf(cell); ++i) {
        const haste::TiledTiling& tile = plan.tiled[i].tiling;
        if (tile.units == 0) continue;  // of R that is stationary, which has all of a step
        name += Format("%sr%d k%d o%d", i > 0 ? " " : "", tile.rows, tile.splits, tile.persistent);
        if (tile.stationary()) {
          name += Format(" s%d t%d l%d n%d", tile.sharers, tile.turns, tile.loading, tile.slots);
        }
      }
      return name;
    default: return "-";
  }
}

void VisitRows(const Problem& p, const haste::CudaProperties& cuda, const haste::CostTable& costs,
               const std::function<void(const Cut&)>& visit) {
  const HasteCellInfo& cell = p.Cell();
  haste::VisitCuts(p.Config(), cell, cuda, p.backward, costs, [&](const Plan& plan, double clocks) {
    const bool stationary = plan.engine == EngineKind::kTiled && plan.tiled[0].tiling.stationary();
    visit({stationary ? kTiledStationary : haste::EngineName(plan.engine), NameOf(plan, cell), plan,
           clocks, cuda.multiprocessors});
  });
}

void VisitStepwiseCuts(const Problem& p, const haste::CudaProperties& cuda,
                       const std::function<void(const Cut&)>& visit) {
  const haste::CostTable& costs = haste::CostsOf(cuda.sm_major, cuda.sm_minor);
  std::string seen = "|";
  for (double share : {1.0, 0.25, 0.5, 0.75, 1.5, 2.0, 3.0}) {
    Cut cut = {kStepwiseCut, "", {}, 0, static_cast<int>(share * cuda.multiprocessors)};
    cut.plan.engine = EngineKind::kStepwise;
    haste::TilingDevice device = StepDevice(cuda);
    device.multiprocessors = cut.multiprocessors;
    for (int i = 0; i < haste::PhasesOf(p.Cell()); ++i) {
      cut.name += (i > 0 ? " " : "") +
                  NameOf(haste::PlanTiling(StepProduct(p, i), device, costs.stepwise_cut));
    }
    if (seen.find("|" + cut.name + "|") != std::string::npos) continue;
    seen += cut.name + "|";
    cut.clocks = StepwiseCutClocks(p, cuda, costs, cut.name);
    visit(cut);
  }
}

double StepwiseCutClocks(const Problem& p, const haste::CudaProperties& cuda,
                         const haste::CostTable& costs, const std::string& name) {
  double sum = p.Cell().normalizes ? costs.stepwise.norm_clocks : 0;
  const char* at = name.c_str();
  for (int i = 0; i < haste::PhasesOf(p.Cell()); ++i) {
    int row_groups = 0, column_groups = 0, end = 0;
    if (std::sscanf(at, "g%d c%d%n", &row_groups, &column_groups, &end) != 2) return 0;
    double clocks = 0;
    haste::VisitTilings(
        StepProduct(p, i), StepDevice(cuda), costs.stepwise_cut,
        [&](const haste::Tiling& tiling, double estimate) {
          if (tiling.row_groups == row_groups && tiling.column_groups == column_groups) {
            clocks = estimate;
          }
        });
    if (clocks == 0) return 0;
    sum += clocks;
    at += end + (at[end] == ' ');
  }
  return sum;
}

}  // namespace benchmark
