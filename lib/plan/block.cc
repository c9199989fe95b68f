#include "lib/plan/block.h"

#include <algorithm>

#include "lib/base/int_math.h"

namespace haste {
namespace {

// Clock cycles, fitted on an H200 to steps of 32 to 512 units of five cells (docs/design/gpu.md).
constexpr double kForwardClocks = 452, kBackwardClocks = 400;  // of a step: latencies, a barrier
constexpr double kProductClocks = 4.4;                         // of a tensor core, for 16 × 8 × 16
constexpr double kLatencyClocks = 25;  // from one product to the next that adds to it
// Of a scheduler, for a gate of a warp's elements.
constexpr double kForwardGateClocks = 50, kBackwardGateClocks = 55;
constexpr double kClusterClocks = 20;  // from one block of a cluster to another
constexpr double kClusterBlockClocks = 40;
constexpr double kClusterByteClocks = 0.04;  // of a byte that arrives
constexpr double kOverClocks = 18;           // of a tile's chunk from shared memory
// The same of a part of floats, which leave no registers to ask ahead; and of rows 5 to 8 of them.
constexpr double kForwardOverFloatClocks = 95, kBackwardOverFloatClocks = 55;
constexpr double kSecondFloatRowsClocks = 250;
constexpr double kOddRowClocks = 60;  // rows that do not begin at multiples of 16 bytes
// Gates' gradients that are scaled: of a step, alone and in a cluster, and of a chunk.
constexpr double kAloneScaledClocks = 150, kClusterScaledClocks = 350, kScaledChunkClocks = 25;

double StepClocks(const BlockProblem& p, const BlockTiling& t) {
  const BlockCell& cell = p.cell;
  const int tiles = cell.tiles(p.backward), each = cell.terms * (cell.terms + 1) / 2;
  const double products = 2.0 * t.chunks * tiles * each;
  // Of three parts the largest products are summed apart from the others.
  const double links = cell.terms == 3 ? each - 1 : each;
  const double chain = 2.0 * t.chunks / cell.chains(p.backward, t.blocks > 1) * links;
  const double gates = cell.gates * (t.rows / 4);
  const double warps = std::max(1.0, t.warps / 4.0);  // of a scheduler
  double clocks = chain * kLatencyClocks + warps * products * kProductClocks +
                  (p.backward ? kBackwardClocks + warps * gates * kBackwardGateClocks
                              : kForwardClocks + warps * gates * kForwardGateClocks);
  if (p.hidden * cell.storage_bytes % kPieceBytes != 0) clocks += kOddRowClocks;
  if (cell.scales_rows(p.backward)) {
    clocks +=
        t.chunks * kScaledChunkClocks + (t.blocks > 1 ? kClusterScaledClocks : kAloneScaledClocks);
  }
  if (t.blocks > 1) {
    const double bytes = 2.0 * cell.terms * t.rows * t.chunks * cell.depth_warps(p.backward) * 32;
    clocks += kClusterClocks + t.blocks * kClusterBlockClocks + bytes * kClusterByteClocks +
              BlockLayout::SmemResident(t, cell, p.backward) * tiles * cell.terms *
                  (cell.terms == 1 ? kOverClocks
                   : p.backward    ? kBackwardOverFloatClocks
                                   : kForwardOverFloatClocks);
    if (cell.terms > 1 && t.rows > 4) clocks += kSecondFloatRowsClocks;
  }
  return clocks;
}

}  // namespace

bool PlanBlocks(const BlockProblem& p, const BlockDevice& device, BlockPlan* best) {
  best->clocks = 0;
  const BlockCell& cell = p.cell;
  if (p.batch > INT32_MAX / 2 || device.multiprocessors < 1) return false;
  const bool cluster = p.hidden > cell.max_hidden(false);
  if (p.hidden > cell.max_hidden(cluster)) return false;
  BlockTiling t = {};
  t.blocks = cluster ? static_cast<int>(CeilDiv(p.hidden, kClusterUnits)) : 1;
  const int sharing = cell.depth_warps(p.backward);
  t.warps = cluster ? kClusterWarps
                    : static_cast<int>(CeilDiv(p.hidden, kBlockUnits * sharing)) * sharing;
  t.chunks = cell.chunks(p.backward, cluster ? t.blocks * kClusterUnits : p.hidden);
  const int at_once = cluster ? device.clusters[t.blocks] : device.multiprocessors;
  if (at_once == 0) return false;
  for (const int rows : {8, 4}) {
    t.rows = rows;
    const BlockLayout layout(t, cell, p.backward, p.hidden);
    if (layout.bytes > device.shared_bytes) continue;
    const int64_t groups = p.lanes * CeilDiv(p.batch, rows);
    BlockPlan plan = {};
    plan.tiling = t;
    plan.blocks = groups * t.blocks;
    if (plan.blocks > INT32_MAX) continue;
    plan.shared_bytes = layout.bytes;
    plan.clocks = static_cast<double>(CeilDiv(groups, at_once)) * StepClocks(p, t);
    if (best->clocks == 0 || plan.clocks < best->clocks) *best = plan;
  }
  return best->clocks > 0;
}

}  // namespace haste
