#include "lib/plan/engines/stepwise.h"

#include <algorithm>
#include <cmath>

#include "lib/base/int_math.h"
#include "lib/plan/costs/cost_table.h"

namespace haste {
namespace {

// Rows of a thread: two for the smallest batches, else what fills 32 accumulators of 4 bytes.
int ThreadRows(const TilingProblem& p) { return p.batch <= 2 ? 2 : p.compute_bytes == 8 ? 4 : 8; }

bool Fill(const TilingProblem& p, const TilingDevice& device, int column_groups, int row_groups,
          Tiling* t) {
  t->rows = ThreadRows(p);
  t->columns = p.columns;
  t->row_groups = row_groups;
  t->column_groups = column_groups;
  t->units = column_groups * p.columns / p.columns_per_unit;
  const int threads = column_groups * row_groups;
  if (threads > kStepThreads) return false;
  t->k_splits = static_cast<int>(std::min<int64_t>(kStepThreads / threads, p.depth));
  t->iterations = static_cast<int>(CeilDiv(p.depth, t->k_splits));
  t->unit_tiles = CeilDiv(p.hidden, t->units);
  t->row_tiles = CeilDiv(p.batch, t->block_rows());
  // 16 bytes between rows, so that threads that read neighbouring rows meet different banks.
  const int row_bytes = t->block_rows() * p.compute_bytes;
  t->row_stride = t->block_rows() + (row_bytes % 32 == 0 ? 16 / p.compute_bytes : 0);
  const int chunk_depth = DepthPerChunk(p.storage_bytes);
  const size_t chunk = static_cast<size_t>(std::min(chunk_depth, t->iterations)) * t->k_splits *
                       t->row_stride * p.compute_bytes;
  t->sum_stride = t->block_rows() * t->block_columns() + 16 / p.compute_bytes;
  const size_t sums = static_cast<size_t>(t->k_splits) * t->sum_stride * p.compute_bytes;
  t->sum_lanes = 1;
  while (t->sum_lanes < 32 && 2 * t->sum_lanes <= t->k_splits &&
         2 * t->sum_lanes * t->block_rows() * t->units <= kStepThreads) {
    t->sum_lanes *= 2;
  }
  const int chunks = static_cast<int>(CeilDiv(t->iterations, chunk_depth));
  t->stages = std::max(2, std::min(kMaxStages, chunks));
  while (t->stages > 2 && t->stages * chunk > device.shared_bytes) --t->stages;
  t->shared_bytes = std::max(t->stages * chunk, sums);
  return t->shared_bytes <= device.shared_bytes;
}

double Clocks(const TilingProblem& p, const TilingDevice& device, const Tiling& t,
              const StepwiseCutCosts& costs) {
  const int64_t blocks = p.lanes * t.unit_tiles * t.row_tiles;
  const double per_multiprocessor = static_cast<double>(CeilDiv(blocks, device.multiprocessors));
  const double waves = std::ceil(per_multiprocessor / 2);  // two blocks share a multiprocessor
  const double ingest = static_cast<double>(p.depth) *
                        (t.block_columns() * p.storage_bytes + t.block_rows() * p.compute_bytes);
  const double fma = t.rows * t.columns * (p.compute_bytes == 8 ? 2.0 : 1.0);
  const double product = t.iterations * (fma + costs.iteration_clocks) * (kStepThreads / 32) / 4 +
                         ingest / costs.ingest_bytes_per_clock;
  const double latency =
      CeilDiv(t.iterations, DepthPerChunk(p.storage_bytes)) * costs.chunk_clocks +
      static_cast<double>(t.k_splits) / t.sum_lanes * costs.sum_clocks +
      CeilDiv(t.block_rows() * t.units * t.sum_lanes, kStepThreads) * costs.element_clocks;
  return std::max(per_multiprocessor * product, blocks * ingest / costs.l2_bytes_per_clock) +
         waves * latency + costs.step_clocks +
         (t.owns_lane() ? 0 : costs.launch_clocks + blocks * costs.block_clocks);
}

}  // namespace

void VisitTilings(const TilingProblem& p, const TilingDevice& device, const StepwiseCutCosts& costs,
                  const std::function<void(const Tiling&, double clocks)>& visit) {
  const int64_t all_groups =
      std::min<int64_t>(kStepThreads, CeilDiv(p.hidden * p.columns_per_unit, p.columns));
  // A block has whole units: with several column groups a unit, only multiples of that.
  const int step = std::max(1, p.columns_per_unit / p.columns);
  for (int row_groups = 1; row_groups <= 16; row_groups *= 2) {
    if (row_groups > 1 && (row_groups / 2) * ThreadRows(p) >= p.batch) break;
    for (int groups = step; groups <= all_groups; groups += step) {
      Tiling tiling;
      if (!Fill(p, device, groups, row_groups, &tiling)) continue;
      visit(tiling, Clocks(p, device, tiling, costs));
    }
  }
}

Tiling PlanTiling(const TilingProblem& p, const TilingDevice& device,
                  const StepwiseCutCosts& costs) {
  Tiling best{};
  double least = 0;
  VisitTilings(p, device, costs, [&](const Tiling& tiling, double clocks) {
    if (best.rows > 0 && clocks >= least) return;
    best = tiling;
    least = clocks;
  });
  return best;
}

}  // namespace haste
