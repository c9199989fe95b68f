#include "lib/block_plan.h"

#include <algorithm>

#include "lib/ceil_div.h"

namespace haste {
namespace {

// Clock cycles, fitted on an H200 to steps of 32, 64 and 96 units of five cells
// (docs/performance.md).
constexpr double kForwardClocks = 476, kBackwardClocks = 375;  // of a step: latencies, a barrier
constexpr double kProductClocks = 4.4;                         // of a tensor core, for 16 × 8 × 16
constexpr double kLatencyClocks = 25;      // from one product to the next that adds to it
constexpr double kForwardGateClocks = 44;  // of a scheduler, for a gate of a warp's elements
constexpr double kBackwardGateClocks = 64;

double StepClocks(const BlockProblem& p, const BlockTiling& t) {
  const BlockCell& cell = p.cell;
  const int parts = cell.parts() == 1 ? 1 : p.exact ? 6 : 3;
  const double products = 2.0 * t.chunks * cell.tiles(p.backward) * parts;
  const double chain = 2.0 * t.chunks / cell.chains(p.backward) * std::max(parts - 1, 1);
  const double elements = t.rows / 4;
  const double warps = std::max(1.0, t.warps / 4.0);  // of a scheduler
  const double gates =
      cell.gates * elements * (p.backward ? kBackwardGateClocks : kForwardGateClocks);
  return (p.backward ? kBackwardClocks : kForwardClocks) + chain * kLatencyClocks +
         warps * (products * kProductClocks + gates);
}

}  // namespace

bool PlanBlocks(const BlockProblem& p, int multiprocessors, int shared_bytes, BlockPlan* best) {
  best->clocks = 0;
  const BlockCell& cell = p.cell;
  if (p.batch > INT32_MAX / 2 || multiprocessors < 1) return false;
  if (p.hidden * cell.storage_bytes % kBlockPiece != 0) return false;
  const int sharing = cell.depth_warps(p.backward);
  const int64_t warps = CeilDiv(p.hidden, kBlockUnits * sharing) * sharing;
  if (warps > cell.max_warps()) return false;
  BlockTiling t = {};
  t.warps = static_cast<int>(warps);
  t.chunks = cell.chunks(p.backward, p.hidden);
  for (const int rows : {8, 4}) {
    t.rows = rows;
    const BlockLayout layout(t, cell, p.backward, p.hidden);
    if (layout.bytes > shared_bytes) continue;
    BlockPlan plan = {};
    plan.tiling = t;
    plan.blocks = p.lanes * CeilDiv(p.batch, rows);
    plan.shared_bytes = layout.bytes;
    const int64_t waves = CeilDiv(plan.blocks, multiprocessors);
    plan.clocks = static_cast<double>(waves) * StepClocks(p, plan.tiling);
    if (best->clocks == 0 || plan.clocks < best->clocks) *best = plan;
  }
  return best->clocks > 0;
}

}  // namespace haste
