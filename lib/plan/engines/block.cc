#include "lib/plan/engines/block.h"

#include <algorithm>

#include "lib/base/int_math.h"
#include "lib/plan/costs/cost_table.h"

namespace haste {
namespace {

double StepClocks(const BlockProblem& p, const BlockTiling& t, const BlockCosts& costs) {
  const BlockCell& cell = p.cell;
  const int tiles = cell.tiles(p.backward), each = cell.terms * (cell.terms + 1) / 2;
  const double products = 2.0 * t.chunks * tiles * each;
  // Of three parts the largest products are summed apart from the others.
  const double links = cell.terms == 3 ? each - 1 : each;
  const double chain = 2.0 * t.chunks / cell.chains(p.backward, t.blocks > 1) * links;
  const double gates = cell.gates * (t.rows / 4);
  const double warps = std::max(1.0, t.warps / 4.0);  // of a scheduler
  double clocks = chain * costs.latency_clocks + warps * products * costs.product_clocks +
                  (p.backward ? costs.backward_clocks + warps * gates * costs.backward_gate_clocks
                              : costs.forward_clocks + warps * gates * costs.forward_gate_clocks);
  if (p.hidden * cell.storage_bytes % kPieceBytes != 0) clocks += costs.odd_row_clocks;
  if (cell.scales_rows(p.backward)) {
    clocks += t.chunks * costs.scaled_chunk_clocks +
              (t.blocks > 1 ? costs.cluster_scaled_clocks : costs.alone_scaled_clocks);
  }
  if (t.blocks > 1) {
    const double bytes = 2.0 * cell.terms * t.rows * t.chunks * cell.depth_warps(p.backward) * 32;
    clocks += costs.cluster_clocks + t.blocks * costs.cluster_block_clocks +
              bytes * costs.cluster_byte_clocks +
              BlockLayout::SmemResident(t, cell, p.backward) * tiles * cell.terms *
                  (cell.terms == 1 ? costs.over_clocks
                   : p.backward    ? costs.backward_over_float_clocks
                                   : costs.forward_over_float_clocks);
    if (cell.terms > 1 && t.rows > 4) clocks += costs.second_float_rows_clocks;
  }
  return clocks;
}

}  // namespace

void VisitBlocks(const BlockProblem& p, const CudaProperties& device, const BlockCosts& costs,
                 const std::function<void(const BlockPlan&)>& visit) {
  const BlockCell& cell = p.cell;
  if (p.batch > INT32_MAX / 2 || device.multiprocessors < 1) return;
  const bool cluster = p.hidden > cell.max_hidden(false);
  if (p.hidden > cell.max_hidden(cluster)) return;
  BlockTiling t = {};
  t.blocks = cluster ? static_cast<int>(CeilDiv(p.hidden, kClusterUnits)) : 1;
  const int sharing = cell.depth_warps(p.backward);
  t.warps = cluster ? kClusterWarps
                    : static_cast<int>(CeilDiv(p.hidden, kBlockUnits * sharing)) * sharing;
  t.chunks = cell.chunks(p.backward, cluster ? t.blocks * kClusterUnits : p.hidden);
  const int at_once = cluster ? device.clusters[t.blocks] : device.multiprocessors;
  if (at_once == 0) return;
  for (const int rows : {8, 4}) {
    t.rows = rows;
    const BlockLayout layout(t, cell, p.backward, p.hidden);
    if (layout.bytes > device.shared_bytes_per_block) continue;
    const int64_t groups = p.lanes * CeilDiv(p.batch, rows);
    BlockPlan plan = {};
    plan.tiling = t;
    plan.blocks = groups * t.blocks;
    if (plan.blocks > INT32_MAX) continue;
    plan.shared_bytes = layout.bytes;
    plan.clocks = static_cast<double>(CeilDiv(groups, at_once)) * StepClocks(p, t, costs);
    visit(plan);
  }
}

}  // namespace haste
