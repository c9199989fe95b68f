#include "lib/plan/persistent.h"

#include <algorithm>

#include "lib/base/int_math.h"

namespace haste {
namespace {

// Clock cycles, fitted to some sixty cuts on an H200 (docs/design/gpu.md).
constexpr double kForwardClocks =
    1100;  // of a pass: barriers, sums, the cell, what it reads and writes
constexpr double kBackwardClocks = 1400;
constexpr double kProductClocks = 6.5;  // of a tensor core, for 16 × 8 × 16
constexpr double kLatencyClocks = 33;   // from one product to the next that adds to it
constexpr double kSharedBytesPerClock = 128;
constexpr double kSplitClocks = 6;  // of a warp's chunk of floats into parts
// Forward, of a warp's chunk of floats whose R is in shared memory, of one part, two and three.
constexpr double kOverFloatClocks[] = {300, 900, 550};
constexpr double kAloneClocks = 150;    // a block that waits for itself alone
constexpr double kClusterClocks = 600;  // from one block of a cluster to another
constexpr double kClusterBlockClocks = 16;
constexpr double kClusterByteClocks = 0.05;  // of a byte that arrives
constexpr double kGridClocks = 660;          // from one block of the GPU to another
// More, where warps cannot give registers to others: a guess, there was no such GPU.
constexpr double kCrowdedClocks = 1200;
constexpr double kGridSumsClocks = 1800;
constexpr double kPollClocks = 0.25e-3;  // of a byte that one block waits for
constexpr double kSumClocks = 1.0e-3;    // of a byte of all sums on their way
// Of floats: of a byte of a group's row tile, as groups hardly slow down others.
constexpr double kFloatSumClocks = 2.0e-3;
// Backward over the GPU, gates' gradients shared by clusters: fitted to 140 timings of its own, 7 %
// rms. Since sums are asked for at once a step takes 5 to 15 % less than this.
constexpr double kSharedClocks = 3400;  // of a pass: both exchanges, sums, the cell
constexpr double kSharedFloatClocks = 295;
constexpr double kSharedRowTileClocks = 455, kSharedUnitTileClocks = 275;  // a second one
constexpr double kSharedProductClocks = 8.6;  // of a warp, for 16 × 8 × 16
constexpr double kSharedOverClocks = 152;     // of four tiles of R from shared memory
constexpr double kSharedOverFloatClocks = 450;
constexpr double kSharedByteClocks = 0.063;  // of the gradients
// Of a second row tile of scaled ones, of one part and of two: registers are few.
constexpr double kScaledRowTileClocks[] = {1130, 2000};
// Forward, elements apart (74 timings), of a cell with several gates and with one: of a pass; of a
// step whose passes are few. Of a chunk of R from shared memory, and of a second look at h.
constexpr double kSpecializedClocks = 1190, kSpecializedClocksOfOneGate = 890;
constexpr double kSpecializedStepClocks = 2600, kSpecializedStepClocksOfOneGate = 2200;
constexpr double kSpecializedOverClocks = 450, kSpecializedAskedClocks = 500;
// Forward, rows that are copied element by element.
constexpr double kOddGridClocks = 800, kOddClusterClocks = 300;
// Where these outgrow the L2 cache.
constexpr double kL2Share = 0.6, kL2Penalty = 1.5;
// A second tile gives all warps elements, where one gives them to half of the warps.
constexpr double kSecondRowTileClocks = 1000;
constexpr double kSecondUnitTileClusterClocks = 275;
constexpr double kSecondUnitTileGridClocks = 750, kSecondUnitTileGridSumsClocks = 1400;

// Products of tiles that one product of numbers is.
int Products(const PersistentProblem& p) { return p.cell.terms * (p.cell.terms + 1) / 2; }

// What a block computes of a pass.
double WorkClocks(const PersistentProblem& p, const PersistentTiling& t) {
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
  double clocks = std::max(products * per_core * kProductClocks, chain * small * kLatencyClocks);
  const double over = std::max(0, chunks - held) * (tiles / chunks) * terms;
  const double loads = over * kPersistentWarps * kTileBytes +
                       kPersistentWarps * chunks * t.row_tiles * 512.0 * p.cell.operand_bytes / 2;
  clocks = std::max(clocks, loads / kSharedBytesPerClock);
  if (terms == 3 && !p.backward) clocks += chunks * t.row_tiles * kSplitClocks * 4;
  if (p.cell.storage_bytes == 4 && !p.backward) {
    clocks += std::max(0, chunks - held) * t.row_tiles * kOverFloatClocks[terms - 1];
  }
  return clocks + (p.backward ? kBackwardClocks : kForwardClocks) +
         (t.row_tiles - 1) * kSecondRowTileClocks;
}

double ExchangeClocks(const PersistentProblem& p, const PersistentTiling& t,
                      const PersistentDevice& device, bool cluster) {
  if (t.blocks == 1) return kAloneClocks;
  const double received = p.backward ? ReceivedSums(t) : ReceivedStates(t, p.cell.operand_bytes);
  const double second = t.unit_tiles - 1;
  const bool odd = !p.backward && p.hidden * p.cell.storage_bytes % kPieceBytes != 0;
  if (cluster) {
    return (odd ? kOddClusterClocks : 0) + kClusterClocks + kClusterBlockClocks * t.blocks +
           kClusterByteClocks * received + second * kSecondUnitTileClusterClocks;
  }
  if (!p.backward) {
    const bool crowded = !p.gives_registers;
    return kGridClocks + received * t.blocks * kPollClocks + second * kSecondUnitTileGridClocks +
           (crowded ? kCrowdedClocks : 0) + (odd ? kOddGridClocks : 0);
  }
  const double of_group = received * t.blocks, sums = of_group * t.row_groups * p.lanes;
  const bool outgrows = 2 * t.passes * sums > kL2Share * device.l2_bytes;
  return second * kSecondUnitTileGridSumsClocks + kGridSumsClocks +
         (p.cell.terms > 1 ? of_group / t.row_tiles * kFloatSumClocks : sums * kSumClocks) *
             (outgrows ? kL2Penalty : 1);
}

// Both, where gates' gradients are shared.
double SharedClocks(const PersistentProblem& p, const PersistentTiling& t) {
  return kSharedClocks + (p.cell.terms == 3 ? kSharedFloatClocks : 0) +
         (p.cell.scales_rows(t) ? (t.row_tiles - 1) * kScaledRowTileClocks[p.cell.terms - 1] : 0) +
         (t.row_tiles - 1) * kSharedRowTileClocks + (t.unit_tiles - 1) * kSharedUnitTileClocks +
         kSharedProductClocks * t.pair_chunks * 4 * Products(p) * t.row_tiles +
         (p.cell.terms == 1 ? kSharedOverClocks
                            : kSharedOverFloatClocks * t.product_tiles / (2.0 * t.pair_warps)) *
             BackwardLayout::SmemResident(t, p.cell) * p.cell.terms +
         kSharedByteClocks * OperandBytes(t, p.cell);
}

// A step of all passes, where elements have warps of their own.
double SpecializedClocks(const PersistentProblem& p, const PersistentTiling& t) {
  const int held = p.cell.held_chunks(), over = std::max(0, t.chunks - held);
  const int64_t asked = CeilDiv(std::min(t.chunks, held), kChunksAsked);
  const bool one = p.cell.gates == 1;
  const double pass = (one ? kSpecializedClocksOfOneGate : kSpecializedClocks) +
                      kSpecializedOverClocks * over +
                      kSpecializedAskedClocks * static_cast<double>(asked - 1);
  return std::max(t.passes * pass, one ? kSpecializedStepClocksOfOneGate : kSpecializedStepClocks);
}

// Fills in what follows from how a step is cut; false if that does not fit.
bool Fill(const PersistentProblem& problem, const PersistentDevice& device, bool cluster,
          PersistentPlan* plan) {
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
  if (plan->shared_bytes > device.shared_bytes) return false;
  const int64_t groups = t.row_groups * p.lanes;
  const int64_t at_once = cluster && t.blocks > 1 ? device.clusters[t.blocks]
                          : t.sharers > 1 ? device.clusters[t.sharers] / (t.blocks / t.sharers)
                                          : device.multiprocessors / t.blocks;
  if (at_once == 0) return false;
  const int64_t waves = CeilDiv(groups, at_once);
  if (!cluster && waves > 1) return false;  // blocks that wait for each other must all be there
  if (t.element_warps > 0) {
    plan->clocks = SpecializedClocks(p, t);
  } else {
    const double clocks = t.sharers > 1 ? SharedClocks(p, t)
                                        : WorkClocks(p, t) + ExchangeClocks(p, t, device, cluster);
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

bool PlanPersistent(const PersistentProblem& p, const PersistentDevice& device, bool cluster,
                    PersistentPlan* best) {
  best->clocks = 0;
  if (p.batch > INT32_MAX / 2 || p.hidden > (1 << 20)) return false;
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
            if (!Fill(p, device, cluster, &plan)) continue;
            if (best->clocks == 0 || plan.clocks < best->clocks) *best = plan;
          }
        }
      }
    }
  }
  return best->clocks > 0;
}

}  // namespace haste
