#include "lib/plan/engines/tiled.h"

#include <algorithm>

#include "lib/base/int_math.h"
#include "lib/plan/costs/cost_table.h"
#include "lib/plan/engines/tiled_turns.h"

namespace haste {
namespace {

constexpr double kFullThreads = 512;
constexpr int kSectorBytes = 32;        // of memory
constexpr int kEnoughSlots = 8;         // chunks on their way, that hide the wait for one
constexpr int64_t kMaxDepth = 1 << 22;  // a row tile of an operand is counted in 32 bits

// Of a product's chunk in shared memory and on the tensor cores.
double ChunkClocks(const TiledProblem& p, const TiledTiling& t, const TiledCosts& costs) {
  const TiledProductShape& shape = p.shape;
  const int products = shape.terms == 1   ? shape.operand_terms
                       : shape.terms == 2 ? (p.exact ? 3 : 1)
                                          : (p.exact ? 6 : 3);
  const double turns = shape.depth() / 16.0 * products;
  const double multiplies = turns * shape.tiles() * (t.rows / 8);  // of 16 × 8 × 16: one a clock
  // Four warps read 64 sums of R, and their rows of the operand.
  const double bytes = turns * shape.tiles() / 4 * (shape.row_groups() * 64 + t.rows) * 32;
  return costs.chunk_clocks + std::max(multiplies, bytes / costs.shared_bytes_per_clock);
}

TiledStep StreamedStep(const TiledProblem& p, const CudaProperties& device, const TiledTiling& t,
                       int64_t at_once, const TiledCosts& costs) {
  const TiledProductShape& shape = p.shape;
  const double waves = static_cast<double>(CeilDiv(t.blocks(p.lanes), at_once));
  const double blocks = static_cast<double>(std::min(t.blocks(p.lanes), at_once));
  // Of an operand's parts all but the last.
  const double read = shape.terms > 1 && !p.exact ? (shape.terms - 1.0) / shape.terms : 1;
  const double streamed = (t.chunks - t.kept) * shape.kernel_bytes() * read;
  const double loaded = streamed + t.chunks * shape.operand_bytes(t.rows) * read;
  double load = loaded / std::min(costs.block_bytes_per_clock, costs.l2_bytes_per_clock / blocks);
  const double all_streamed = streamed * t.group_blocks() * p.lanes;
  if (all_streamed > costs.l2_share * device.l2_bytes) {
    load = std::max(load, all_streamed / costs.memory_bytes_per_clock / waves);
  }
  const double multiply = t.chunks * ChunkClocks(p, t, costs);
  const double others = (t.splits - 1.0) / t.splits;
  const double meet = t.splits == 1
                          ? 0
                          : costs.prefetch_clocks + costs.split_clocks * t.splits +
                                shape.part_bytes(t.rows) * others / costs.prefetch_bytes_per_clock;
  const int64_t live = std::min<int64_t>(t.own_rows(), p.batch);
  const double rounds = static_cast<double>(CeilDiv(live * t.units, shape.threads()));
  const double elements = rounds * shape.threads() / kFullThreads *
                          (costs.element_clocks + costs.gate_clocks * p.gates);
  TiledStep step = {};
  step.Add(TiledPart::kLoads, load < multiply ? costs.unhidden * load : load);
  step.Add(TiledPart::kProducts, load < multiply ? multiply : costs.unhidden * multiply);
  step.Add(TiledPart::kWaits, costs.step_clocks);
  step.Add(TiledPart::kSums, meet);
  step.Add(TiledPart::kElements, elements);
  step.Scale(waves);
  if (t.persistent) {
    step.Add(TiledPart::kWaits, costs.barrier_clocks);
  } else {
    step.Scale(costs.launch_share);
  }
  return step;
}

// How much of R is kept, and how many chunks may be on their way.
bool FillShared(const TiledProductShape& shape, int room, TiledPlan* plan) {
  TiledTiling& t = plan->tiling;
  const auto fits = [&] { return (plan->shared_bytes = TiledLayout(shape, t).bytes) <= room; };
  constexpr int kLogLeast = 2;
  static_assert(1 << kLogLeast == kLeastTiledStages, "");
  t.kept = t.chunks;
  t.log_stages = kLogLeast;
  while (1 << t.log_stages < std::min(t.chunks, kMaxTiledStages)) ++t.log_stages;
  for (; t.persistent && t.log_stages >= kLogLeast; --t.log_stages) {
    if (fits()) return true;
  }
  t.kept = 0;
  t.log_stages = kLogLeast;
  if (!fits()) return false;
  if (t.persistent) {
    t.kept = std::min((room - plan->shared_bytes) / shape.kernel_bytes(), t.chunks - 1);
  }
  return fits();
}

// Fills in what follows from rows, splits and persistent; false if that does not fit.
bool Fill(const TiledProblem& p, const CudaProperties& device, const TiledCosts& costs,
          TiledPlan* plan) {
  TiledTiling& t = plan->tiling;
  const TiledProductShape& shape = p.shape;
  t.units = shape.units();
  t.unit_tiles = static_cast<int>(CeilDiv(p.hidden, t.units));
  t.row_tiles = std::max(1, static_cast<int>(CeilDiv(p.batch, t.rows)));
  t.chunks = static_cast<int>(CeilDiv(CeilDiv(p.depth, shape.depth()), t.splits));
  const int64_t at_once = t.splits == 1
                              ? device.multiprocessors
                              : static_cast<int64_t>(device.clusters[t.splits]) * t.splits;
  const int64_t blocks = t.blocks(p.lanes);
  if (at_once == 0 || blocks > INT32_MAX) return false;
  if (t.persistent && blocks > at_once) return false;
  if (!FillShared(shape, static_cast<int>(device.shared_bytes_per_block), plan)) return false;
  plan->step = StreamedStep(p, device, t, at_once, costs);
  return true;
}

bool HasEnoughSlots(const TiledTiling& t) { return t.slots >= std::min(kEnoughSlots, t.loads()); }

// A step in turns. product, gate: clocks of a turn, and of each gate of its elements. alone: wait
// of a product, with one turn; in_turn: of each of several. Other turns' work hides the wait for
// other blocks, but not that of an all-reduction.
TiledStep InTurns(const TiledProblem& p, const TiledTiling& t, const TiledCosts& costs,
                  double product, double gate, double alone, double in_turn) {
  const bool odd = p.hidden * (p.relaxed ? 4 : 2) % kSectorBytes != 0;
  TiledStep one = {};
  one.Add(TiledPart::kProducts, product);
  // A batch may have fewer rows than one tile.
  const double missing = std::max(0.0, 1 - static_cast<double>(p.batch) / t.rows);
  one.Add(TiledPart::kElements, p.gates * gate * (1 - missing * costs.stationary_missing_rows));
  one.Add(TiledPart::kElements, odd ? p.gates * costs.stationary_odd_clocks : 0);
  one.Add(TiledPart::kElements, p.relaxed ? p.gates * costs.float_gate_clocks : 0);
  const bool narrow = p.relaxed && t.rows < kStationaryRows;
  one.Add(TiledPart::kSums,
          p.all_reduces * (costs.all_reduce_clocks + (narrow ? costs.narrow_reduce_clocks : 0)));
  one.Add(TiledPart::kSums, p.all_reduces > 0 ? p.gates * costs.all_reduced_gate_clocks : 0);
  if (t.meets_in_memory()) {
    one.Add(TiledPart::kSums, p.products() * t.blocks(p.lanes) * costs.memory_meeting_clocks);
  }
  TiledStep all = one;
  one.Add(TiledPart::kWaits, p.products() * alone);
  all.Add(TiledPart::kWaits, p.products() * in_turn);
  all.Scale(t.turns);
  return all.clocks > one.clocks ? all : one;
}

// Of a product: its chunks, and more where R comes from shared memory. chunk: of one.
double StationaryProductClocks(const TiledTiling& t, const TiledCosts& costs, double chunk) {
  double waits = HasEnoughSlots(t) ? 1 : costs.few_slots;
  if (t.slots < std::min(2 * t.loaders(), t.loads())) waits *= costs.few_slots;
  const double from_shared = (t.chunks - t.kept) * t.stationary_depth() / kStationaryDepth;
  return t.loads() * chunk * waits + t.terms * from_shared * costs.shared_kernel_clocks;
}

TiledStep StationaryStep(const TiledProblem& p, const TiledTiling& t, const TiledCosts& costs) {
  // In one turn a pair of blocks takes longer than four, or one, do. In turns it does not.
  const double chunk = t.sharers == 1                   ? costs.alone_chunk_clocks
                       : t.sharers == 2 && t.turns == 1 ? costs.pair_chunk_clocks
                                                        : costs.shared_chunk_clocks;
  return InTurns(p, t, costs, p.products() * StationaryProductClocks(t, costs, chunk),
                 costs.stationary_gate_clocks, costs.stationary_clocks,
                 costs.stationary_turn_clocks);
}

// Fills in the slots; false if there is no room for enough.
bool FillSlots(const CudaProperties& device, TiledPlan* plan) {
  TiledTiling& t = plan->tiling;
  // All uses of a slot belong to one warp that loads, and to one half of those that multiply.
  const int stride = t.loaders() % 2 == 0 ? t.loaders() : 2 * t.loaders();
  if (t.loads() < t.loaders()) return false;
  const int most = std::min(kMaxStationarySlots, static_cast<int>(PadTo(t.loads(), stride)));
  for (int slots = most; slots >= std::min(kLeastStationarySlots, most); slots -= stride) {
    t.slots = static_cast<uint8_t>(slots);
    plan->shared_bytes = StationaryLayout(t).bytes;
    if (plan->shared_bytes <= device.shared_bytes_per_block) return true;
  }
  return false;
}

// Fills in what follows from rows, units, chunks and clusters; false if that does not fit.
bool FillStationary(const TiledProblem& p, const CudaProperties& device, TiledPlan* plan) {
  TiledTiling& t = plan->tiling;
  t.persistent = true;
  t.terms = static_cast<uint8_t>(p.relaxed ? 1 : p.shape.operand_terms);
  t.row_tiles = std::max(1, static_cast<int>(CeilDiv(p.batch, t.rows)));
  const int in_registers = p.all_reduces > 0 ? p.backward
                                                   ? NormalizingBackwardDepth(p.relaxed, t.rows)
                                                   : NormalizingForwardDepth(p.relaxed)
                           : p.scales_gradients() ? ScalingBackwardDepth(p.exponential, t.rows)
                           : p.exponential        ? kExponentialRegisterDepth
                           : t.meets_in_memory()  ? kSharingBackwardDepth
                                                  : kStationaryRegisterDepth;
  t.kept = std::min(t.chunks, 2 * in_registers / t.stationary_depth());
  const int64_t clusters = t.cluster() == 1 ? device.multiprocessors : device.clusters[t.cluster()];
  if (t.blocks(p.lanes) > clusters * t.cluster()) return false;
  // A load takes a warp some 500 clocks; tensor cores take 150 for a chunk of 64 rows. Where all
  // four warps load, flags wait for loads: without loss only where a block has one turn.
  const bool alone = t.sharers == 1 && t.rows == kStationaryRows;
  for (int loading : {alone && t.turns == 1 ? 4 : t.sharers < 4 ? 3 : 2, 2}) {
    t.loading = static_cast<uint8_t>(loading);
    if (FillSlots(device, plan) && (loading == 2 || HasEnoughSlots(t))) return true;
  }
  return false;
}

// In clusters of `sharers` blocks that take `turns` row tiles each.
bool FillStationaryForward(const TiledProblem& p, const CudaProperties& device,
                           const TiledCosts& costs, int sharers, int turns, TiledPlan* plan) {
  TiledTiling& t = plan->tiling;
  t.rows = kStationaryRows;
  t.units = kStationaryUnits;
  t.splits = 1;
  t.sharers = static_cast<uint8_t>(sharers);
  t.turns = static_cast<uint8_t>(turns);
  t.unit_tiles = static_cast<int>(PadTo(CeilDiv(p.hidden, kStationaryUnits), sharers));
  t.chunks = static_cast<int>(2 * CeilDiv(p.depth, 2 * kStationaryDepth));
  if (turns > 1 && p.batch <= kStationaryRows) return false;
  if (!FillStationary(p, device, plan)) return false;
  plan->step = StationaryStep(p, t, costs);
  return true;
}

TiledStep StationaryBackwardStep(const TiledProblem& p, const TiledTiling& t,
                                 const TiledCosts& costs) {
  // wgmma takes 64 rows in little more time than 32, so a chunk of twice the depth takes longer.
  const double chunk = (t.meets_in_memory()         ? costs.sharing_chunk_clocks
                        : t.rows == kStationaryRows ? costs.wide_chunk_clocks
                                                    : costs.narrow_chunk_clocks) +
                       t.scaled_makers * (t.meets_in_memory() ? costs.scaled_sharing_clocks
                                                              : costs.scaled_chunk_clocks);
  // Of blocks of 32 rows that begin early a fit has no use for a cost.
  const bool early = t.sharers > 1 && t.chunks >= kChunksToBegin && p.products() == 1 &&
                     EarlyChunks(p.gates, p.relaxed, t.rows, true) > 0;
  // Where rows are summed the timings show no such thing.
  const double in_turns = t.turns == 1 || p.all_reduces > 0 ? 1
                          : early                           ? costs.early_sharing_chunks
                                                            : costs.backward_turn_chunks;
  return InTurns(p, t, costs, in_turns * StationaryProductClocks(t, costs, chunk),
                 costs.stationary_backward_gate_clocks, costs.stationary_backward_clocks,
                 costs.stationary_backward_turn_clocks);
}

// Blocks that divide the depth compute the cell of 64 / splits units each.
bool FillStationaryBackward(const TiledProblem& p, const CudaProperties& device,
                            const TiledCosts& costs, int rows, int sharers, int turns,
                            TiledPlan* plan) {
  TiledTiling& t = plan->tiling;
  if (turns > 1 && p.batch <= rows) return false;
  t.rows = rows;
  t.units = kStationaryBackwardUnits;
  t.splits = rows / 16;
  static_assert(kStationaryRows / 16 == kStationaryMakers, "tiles of a chunk × splits");
  t.sharers = static_cast<uint8_t>(sharers);
  t.turns = static_cast<uint8_t>(turns);
  t.unit_tiles = static_cast<int>(PadTo(CeilDiv(p.hidden, t.units), sharers));
  const bool two = p.products() > 1;
  const int gates = p.scales_gradients() && !two ? ScaledGates(p.gates) : p.gates;
  t.scaled_makers = static_cast<uint8_t>(p.scales_gradients() ? ScaledMakers(two ? 1 : gates) : 0);
  const auto chunks_of = [&t](int gates) {
    const int64_t depth = int64_t{t.unit_tiles} * t.units * gates;
    return static_cast<int>(2 * CeilDiv(depth, int64_t{2} * t.splits * t.stationary_depth()));
  };
  t.first_chunks = two ? chunks_of(gates - p.reset_gates) : 0;
  t.chunks = t.first_chunks + chunks_of(two ? p.reset_gates : gates);
  // A block pushes its sums after it has loaded its chunks. If one of them is of its own unit tile,
  // and follows the sums before, its cluster has read those: the flags say so. Else, and of scaled
  // gradients, whose chunks come from blocks of one rank, two places take turns.
  const bool knows = turns == 1 && !p.scales_gradients() && !two &&
                     CeilDiv(gates * t.units, t.stationary_depth()) >= t.splits;
  t.meetings = t.meets_in_memory() ? 0 : knows ? 1 : 2;
  if (!FillStationary(p, device, plan)) return false;
  plan->step = StationaryBackwardStep(p, t, costs);
  return true;
}

bool IsTooLarge(const TiledProblem& p) { return p.batch > INT32_MAX / 2 || p.depth > kMaxDepth; }

}  // namespace

void VisitStationary(const TiledProblem& p, const CudaProperties& device, const TiledCosts& costs,
                     const std::function<void(const TiledPlan&)>& visit) {
  if (IsTooLarge(p) || !p.allows_stationary()) return;
  if (p.backward) {
    for (int rows : {kStationaryRows / 2, kStationaryRows}) {
      for (int turns = 1; turns <= kMaxStationaryTurns; ++turns) {
        for (const int sharers : {1, kBackwardSharers}) {
          if (sharers > 1 && (rows < kStationaryRows || !p.allows_sharing_gradients())) continue;
          TiledPlan plan = {};
          if (FillStationaryBackward(p, device, costs, rows, sharers, turns, &plan)) visit(plan);
        }
      }
    }
    return;
  }
  for (int sharers = 1; sharers <= kMaxStationarySharers; sharers *= 2) {
    for (int turns = 1; turns <= kMaxStationaryTurns; ++turns) {
      TiledPlan plan = {};
      if (FillStationaryForward(p, device, costs, sharers, turns, &plan)) visit(plan);
    }
  }
}

void VisitTiled(const TiledProblem& p, const CudaProperties& device, const TiledCosts& costs,
                const std::function<void(const TiledPlan&)>& visit) {
  if (IsTooLarge(p) || p.all_reduces > 0) return;
  for (int rows = 32; rows <= p.shape.max_rows(); rows *= 2) {
    if (rows > 32 && p.batch <= rows / 2) continue;
    for (int splits = 1; splits <= kMaxTiledSplits; splits *= 2) {
      // What a block has after the sums is whole pairs of rows.
      if (splits > rows / 2 || (splits > 1 && splits > CeilDiv(p.depth, p.shape.depth()))) continue;
      for (const bool persistent : {false, true}) {
        if (persistent && !p.one_a_step) continue;
        TiledPlan plan = {};
        plan.tiling.rows = rows;
        plan.tiling.splits = splits;
        plan.tiling.persistent = persistent;
        if (Fill(p, device, costs, &plan)) visit(plan);
      }
    }
  }
}

}  // namespace haste
