#include "lib/plan/engines/persistent.h"

#include <algorithm>

#include "lib/base/int_math.h"
#include "lib/plan/costs/cost_table.h"

namespace haste {
namespace {

// Products of tiles that one product of numbers is.
int Products(const PersistentProblem& p) { return p.cell.terms * (p.cell.terms + 1) / 2; }

// What a block computes of a pass.
double WorkClocks(const PersistentProblem& p, const PersistentTiling& t,
                  const PersistentCosts& costs) {
  const int gates = p.cell.gates, terms = p.cell.terms;
  // Of a warp: tiles of R, and how many products add to the same sums one after the other.
  double tiles, chain;
  int chunks, held;
  if (p.backward) {
    chunks = t.pairs * t.pair_chunks;
    held = p.cell.held_pairs();
    tiles = chunks * 4.0;
    chain = chunks * (terms == 1 && t.row_tiles == 1 ? 1.0 : 2.0);
  } else {
    chunks = t.chunks;
    held = p.cell.held_chunks();
    tiles = chunks * 2.0 * gates;
    chain = chunks * 2.0 / (gates == 1 ? 4 / t.row_tiles : 1);
  }
  const double per_core = kPersistentWarps / 4;  // warps of a tensor core
  const double products = tiles * Products(p) * t.row_tiles;
  const double small = terms == 3 ? Products(p) - 1 : Products(p);  // those that are one chain
  double clocks =
      std::max(products * per_core * costs.product_clocks, chain * small * costs.latency_clocks);
  const double over = std::max(0, chunks - held) * (tiles / chunks) * terms;
  const double loads = over * kPersistentWarps * kTileBytes +
                       kPersistentWarps * chunks * t.row_tiles * 512.0 * p.cell.operand_bytes / 2;
  clocks = std::max(clocks, loads / costs.shared_bytes_per_clock);
  if (terms == 3 && !p.backward) clocks += chunks * t.row_tiles * costs.split_clocks * 4;
  if (!p.backward) {
    clocks += std::max(0, chunks - held) * t.row_tiles * costs.over_clocks[terms - 1];
  }
  return clocks + (p.backward ? costs.backward_clocks : costs.forward_clocks) +
         gates * costs.gate_clocks + (t.row_tiles - 1) * costs.second_row_tile_clocks;
}

double ExchangeClocks(const PersistentProblem& p, const PersistentTiling& t,
                      const CudaProperties& device, const CostTable& costs, bool cluster) {
  if (t.blocks == 1) return costs.persistent.alone_clocks;
  const double received = p.backward ? ReceivedSums(t) : ReceivedStates(t, p.cell.operand_bytes);
  const double second = t.unit_tiles - 1;
  const bool odd = !p.backward && p.hidden * p.cell.storage_bytes % kPieceBytes != 0;
  if (cluster) {
    return (odd ? costs.cluster.odd_clocks : 0) + costs.cluster.exchange_clocks +
           costs.cluster.block_clocks * t.blocks + costs.cluster.byte_clocks * received +
           second * costs.cluster.second_unit_tile_clocks;
  }
  if (!p.backward) {
    const bool crowded = !p.gives_registers;
    return costs.grid.exchange_clocks + received * t.blocks * costs.grid.poll_byte_clocks +
           second * costs.grid.second_unit_tile_clocks + (crowded ? costs.grid.crowded_clocks : 0) +
           (odd ? costs.grid.odd_clocks : 0);
  }
  const double of_group = received * t.blocks, sums = of_group * t.row_groups * p.lanes;
  const bool outgrows = 2 * t.passes * sums > costs.grid.l2_share * device.l2_bytes;
  return second * costs.grid.second_unit_tile_sums_clocks + costs.grid.sums_clocks +
         (p.cell.terms > 1 ? of_group / t.row_tiles * costs.grid.float_sum_byte_clocks
                           : sums * costs.grid.sum_byte_clocks) *
             (outgrows ? costs.grid.l2_penalty : 1);
}

// Both, where gates' gradients are shared.
double SharedClocks(const PersistentProblem& p, const PersistentTiling& t,
                    const SharedGradientCosts& costs) {
  return costs.pass_clocks + p.cell.gates * costs.gate_clocks +
         (p.cell.terms == 3 ? costs.float_clocks : 0) +
         (p.cell.scales_rows(t) ? (t.row_tiles - 1) * costs.scaled_row_tile_clocks[p.cell.terms - 1]
                                : 0) +
         (t.row_tiles - 1) * costs.row_tile_clocks + (t.unit_tiles - 1) * costs.unit_tile_clocks +
         costs.product_clocks * t.pair_chunks * 4 * Products(p) * t.row_tiles +
         (p.cell.terms == 1 ? costs.over_clocks
                            : costs.over_float_clocks * t.product_tiles / (2.0 * t.pair_warps)) *
             BackwardLayout::SmemResident(t, p.cell) * p.cell.terms +
         costs.byte_clocks * OperandBytes(t, p.cell);
}

// A step of all passes, where elements have warps of their own.
double SpecializedClocks(const PersistentProblem& p, const PersistentTiling& t,
                         const SpecializedCosts& costs) {
  const int held = p.cell.held_chunks(), over = std::max(0, t.chunks - held);
  const int64_t asked = CeilDiv(std::min(t.chunks, held), kChunksAsked);
  const bool one = p.cell.gates == 1;
  const double pass = (one ? costs.one_gate_pass_clocks : costs.pass_clocks) +
                      costs.over_clocks * over +
                      costs.asked_clocks * static_cast<double>(asked - 1);
  return std::max(t.passes * pass, one ? costs.one_gate_step_clocks : costs.step_clocks);
}

// Fills in what follows from how a step is cut; false if that does not fit.
bool Fill(const PersistentProblem& problem, const CudaProperties& device, const CostTable& costs,
          bool cluster, PersistentPlan* plan) {
  PersistentTiling& t = plan->tiling;
  PersistentProblem p = problem;
  if (t.sharers > 1) p.cell.terms = p.shared_terms;
  if (t.units() * t.rows() > kPersistentElements) return false;
  if (t.element_warps > 0) p.cell.forward_tiles = kWarpSpecializedTiles;
  t.row_groups = static_cast<int>(CeilDiv(p.batch, t.group_rows()));
  if (t.sharers > 1) {
    t.chunks = t.sharers * t.units() * p.cell.shared_gates() / 32;
  } else {
    t.chunks = static_cast<int>(p.backward ? CeilDiv(p.cell.gates * t.units(), 32)
                                           : CeilDiv(t.hidden_chunks(), t.depth_warps()));
  }
  if (p.backward) t.Derive();
  if (t.sharers > 1 && t.pairs > 1) return false;
  plan->shared_bytes = p.backward ? BackwardLayout(t, p.cell, cluster).bytes
                                  : ForwardLayout(t, p.cell, cluster).bytes;
  if (plan->shared_bytes > device.shared_bytes_per_block) return false;
  const int64_t groups = t.row_groups * p.lanes;
  const int64_t at_once = cluster && t.blocks > 1 ? device.clusters[t.blocks]
                          : t.sharers > 1 ? device.clusters[t.sharers] / (t.blocks / t.sharers)
                                          : device.multiprocessors / t.blocks;
  if (at_once == 0) return false;
  const int64_t waves = CeilDiv(groups, at_once);
  if (!cluster && waves > 1) return false;  // blocks that wait for each other must all be there
  if (t.element_warps > 0) {
    plan->clocks = SpecializedClocks(p, t, costs.specialized);
  } else {
    const double clocks = t.sharers > 1 ? SharedClocks(p, t, costs.shared)
                                        : WorkClocks(p, t, costs.persistent) +
                                              ExchangeClocks(p, t, device, costs, cluster);
    plan->clocks = static_cast<double>(waves) * t.passes * clocks;
  }
  return true;
}

// Whether elements may have warps of their own, which have one pass while those that multiply have
// the next. Where these have little to multiply, or read half of R from shared memory for every
// eight rows, it is slower.
bool CanBeWarpSpecialized(const PersistentProblem& problem, const PersistentTiling& t) {
  if (problem.backward || problem.cell.terms > 1 || !problem.gives_registers) return false;
  PersistentCell cell = problem.cell;
  cell.forward_tiles = kWarpSpecializedTiles;
  const int64_t chunks = CeilDiv(t.hidden_chunks(), t.depth_warps());
  return t.unit_tiles == 1 && t.row_tiles == 1 && t.passes % kElementSets == 0 &&
         (chunks > 2 || cell.storage_bytes == 4) && 2 * cell.held_chunks() > chunks;
}

}  // namespace

void VisitPersistent(const PersistentProblem& p, const CudaProperties& device,
                     const CostTable& costs, bool cluster,
                     const std::function<void(const PersistentPlan&)>& visit) {
  if (p.batch > INT32_MAX / 2 || p.hidden > (1 << 20)) return;
  for (int unit_tiles = 1; unit_tiles <= 2; ++unit_tiles) {
    for (const int sharers : {1, kClusterPeers}) {
      if (sharers > 1 && (cluster || !p.backward)) continue;
      const int64_t blocks = CeilDiv(CeilDiv(p.hidden, 16 * unit_tiles), sharers) * sharers;
      if (blocks > (cluster ? kMaxCluster : device.multiprocessors)) continue;
      if (sharers > 1 && blocks == sharers) continue;
      for (int row_tiles = 1; row_tiles <= 2; ++row_tiles) {
        const int64_t tiles = CeilDiv(p.batch, 8 * row_tiles);
        if (row_tiles == 2 && p.batch <= 8) continue;
        const int64_t most = std::min<int64_t>(PadTo(tiles, kElementSets), kMaxPasses);
        for (int64_t passes = 1; passes <= most; ++passes) {
          PersistentPlan plan = {};
          PersistentTiling& t = plan.tiling;
          t.blocks = static_cast<int>(blocks);
          t.unit_tiles = unit_tiles;
          t.row_tiles = row_tiles;
          t.sharers = sharers;
          t.passes = static_cast<int>(passes);
          for (const int element_warps : {0, kElementWarps}) {
            if (element_warps > 0 && (cluster || !CanBeWarpSpecialized(p, t))) continue;
            t.element_warps = element_warps;
            if (Fill(p, device, costs, cluster, &plan)) visit(plan);
          }
        }
      }
    }
  }
}

}  // namespace haste
