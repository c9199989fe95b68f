// How the CUDA engine `tiled` cuts the products of a step over a GPU. Pure arithmetic.
//
// A product is [rows of the batch, depth] · [depth, sums of the hidden units], for each lane. A
// block has a tile of it, `rows` × `units`, and a part of the depth: the `splits` blocks of a
// thread-block cluster divide the depth (split-K) and add up their partial sums; then each has some
// of the rows. A block keeps as much of its part of R as fits its shared memory. The rest comes
// from the L2 cache at every step.
#pragma once

#include <stdint.h>

#include <functional>

#include "lib/plan/engines/persistent.h"

namespace haste {

struct TiledCosts;  // lib/plan/costs/cost_table.h

// Depth of a chunk: less if there are more split terms, so that at least four chunks fit.
constexpr int TiledDepth(int terms, int operand_terms) {
  return terms == 1 && operand_terms == 1 ? 64 : 32;
}

// Pipeline stages: chunks that are in flight to shared memory or have arrived.
constexpr int kLeastTiledStages = 4, kMaxTiledStages = 16;
constexpr int kTiledCounterBytes = 16 + 16 * kMaxTiledStages;
constexpr int kMaxTiledSplits = 16;
constexpr int kMaxPhases = 2;  // products of a step

// What is fixed when a kernel is compiled.
struct TiledProductShape {
  int sums;           // of a hidden unit: gates forward, 1 backward
  int terms;          // of R, in 16 bits each (lib/cuda/ptx/mma.cuh)
  int operand_terms;  // of the operand that R is multiplied by
  // Backward: the depth is of groups of 32 hidden units, of each all gates, a chunk each; a group's
  // gradients have a scale of each row, which its chunks bring along (lib/cuda/ptx/fp16_scale.cuh).
  bool scales_rows;

  // Of 16 sums, of a block; and shares of its rows. A warp has a tile and a share. Floats' warps
  // have enough to do with all of the rows: R is read from shared memory once for each share.
  constexpr int tiles() const { return sums == 3 ? 12 : 8; }
  constexpr int row_groups() const { return sums == 3 || terms > 1 ? 1 : 2; }
  constexpr int threads() const { return 32 * tiles() * row_groups(); }
  constexpr int units() const { return 16 * tiles() / sums; }
  // Rows of a block at most: what registers hold.
  constexpr int max_rows() const { return terms == 1 ? 128 : 64; }
  // Bytes of a chunk.
  constexpr int depth() const { return TiledDepth(terms, operand_terms); }
  // Pieces of 8 sums × 32 of the depth, 512 bytes, of a part of a chunk.
  constexpr int tile_pieces() const { return tiles() * depth() / 16; }
  constexpr int kernel_bytes() const { return terms * tiles() * 32 * depth(); }
  // 16-bit numbers that a row of the operand takes: its scale, a float, is two.
  constexpr int operand_width() const { return operand_terms * depth() + (scales_rows ? 2 : 0); }
  constexpr int operand_bytes(int rows) const { return rows * 2 * operand_width(); }
  // A block's sums, as a cluster hands them around.
  constexpr int part_bytes(int rows) const { return tiles() * rows * 16 * 4; }
  // And added up: 16 of a tile's units side by side, rows and tiles so far apart that banks differ.
  static constexpr int kSumRow = 20;
  static constexpr int sum_tile(int rows) { return rows * kSumRow + 16; }
  constexpr int sum_bytes(int rows) const { return tiles() * sum_tile(rows) * 4; }
};

// The form in which R stays on the chip (lib/cuda/tiled/stationary.cuh), in 16 bits: floats are
// scaled float16. A block has 64 sums. Forward they are 16 units with up to four gates, of the
// whole depth and 64 rows, and a block may take several tiles of rows in turn. Backward they are 64
// units, of a part of the depth of all gates, and 32 or 64 rows. There a cluster's blocks divide
// the depth, or they share the operand, as forward.
//
// A step of two products (TiledProblem::reset_gates) has the same blocks. Forward both multiply all
// of R, of which each uses the sums of its gates. Backward the depth begins with the gates of the
// first product, which are those after the reset gates.
constexpr int kStationaryRows = 64, kStationarySums = 64;
constexpr int kStationaryUnits = 16, kStationaryBackwardUnits = kStationarySums;
constexpr int kStationaryChunkBytes = 64 * 128;                                // of the operand
constexpr int kStationaryDepth = kStationaryChunkBytes / 2 / kStationaryRows;  // of a chunk
constexpr int kMaxStationaryTurns = 2, kMaxStationarySharers = 4, kBackwardSharers = 2;
// Of R that each half of the warps holds in registers: less where a cell has exponential gates, or
// normalises h·R, and needs more registers itself.
constexpr int kStationaryRegisterDepth = 512, kExponentialRegisterDepth = 384;
// Backward, where blocks share the operand.
constexpr int kSharingBackwardDepth = 448;
constexpr int NormalizingForwardDepth(bool floats) { return floats ? 192 : 256; }
constexpr int NormalizingBackwardDepth(bool floats, int rows) {
  return floats && rows == kStationaryRows ? 320 : 384;
}
// Backward of floats: the gates' gradients of 16 units of a row have a scale, and follow one
// another in the depth, as a power of two of gates. (Of two products a step, each gate has a scale
// of its own.) Products of the same scales are summed first,
// which takes registers, too: more of them for 64 rows.
constexpr int kStationaryScaleUnits = 16;
constexpr int ScalingBackwardDepth(bool exponential, int rows) {
  return (exponential ? 384 : 512) - (rows == kStationaryRows ? 64 : 0);
}
constexpr int ScaledGates(int gates) { return gates == 3 ? 4 : gates; }
constexpr int kStationaryWarps = 8, kStationaryElementThreads = 32 * kStationaryWarps;
// Blocks that make what is in one chunk: forward those of four unit tiles, backward the cluster of
// one unit tile, or those of two. A block's flag is alone in its sector of 32 bytes: many look at
// it.
constexpr int kStationaryMakers = 4, kStationaryFlagStride = 8;
static_assert(kStationaryDepth == kStationaryMakers * kStationaryUnits, "of a chunk");
// Gradients with scales come from fewer blocks. A chunk has the scales of all at its end.
constexpr int ScaledMakers(int gates) { return kStationaryMakers / ScaledGates(gates); }
constexpr int StationarySlotBytes(int scaled_makers) {
  return kStationaryChunkBytes + scaled_makers * kStationaryRows * static_cast<int>(sizeof(float));
}
// Each half of the warps frees a slot only after it has begun with the next.
constexpr int kLeastStationarySlots = 4;
constexpr int kMaxStationarySlots = 24, kStationaryCounterBytes = 128 + 16 * kMaxStationarySlots;
static_assert(kStationaryCounterBytes % 128 == 0, "else wgmma reads each core matrix twice");
// Sums forward: rows of a gate's unit side by side, units so far apart that banks differ.
constexpr int kStationarySumStride = 72;
constexpr int kStationarySumBytes = kStationarySums * kStationarySumStride * 4;
// Backward: what threads have of 16 units and 8 rows, side by side.
constexpr int kStationaryPieceBytes = 32 * 16;

// Other warps, some of which load chunks. The last sets the block's flags.
constexpr int kStationaryServiceWarps = 4;
constexpr int kStationaryThreads = kStationaryElementThreads + 32 * kStationaryServiceWarps;

struct TiledTiling {
  int rows, units, splits;
  int chunks;        // of the depth of a block
  int first_chunks;  // of the first of two products that divide them, else 0
  int kept;          // the last chunks, whose part of R stays; R stationary: those in registers
  int log_stages;    // chunks that there is room for on their way: a power of two
  int unit_tiles, row_tiles;
  // One launch walks all steps, its blocks waiting for each other; else a launch is a step.
  bool persistent;
  // Only where R is stationary, else 0, 1, 0, 0, 0, 0 and 0: blocks of a cluster that share the
  // operand; row tiles of a block; warps of a block that load; chunks of the operand that there is
  // room for; backward, products whose partial sums there is room for in shared memory; blocks that
  // make a chunk with scales, or 0; split terms of the operand.
  uint8_t sharers, turns = 1, loading, slots, meetings, scaled_makers, terms;

  constexpr bool stationary() const { return sharers > 0; }
  // Blocks that divide the depth are not of a cluster: their partial sums go through global memory.
  constexpr bool meets_in_memory() const { return sharers > 1 && splits > 1; }
  constexpr int stationary_depth() const { return kStationaryChunkBytes / 2 / rows; }
  constexpr int kernel_chunk_bytes() const { return kStationarySums * 2 * stationary_depth(); }
  constexpr int slot_bytes() const { return StationarySlotBytes(scaled_makers); }
  // Chunks of the operand that a step multiplies, or forward each of its products: each chunk of R
  // by all of its terms.
  constexpr int loads() const { return chunks * terms; }
  // Loading warps of a cluster, which take turns in the chunks.
  constexpr int loaders() const { return sharers * loading; }
  // Of a row tile: a flag of each block.
  constexpr int flags() const { return kStationaryFlagStride * unit_tiles * splits; }
  constexpr int cluster() const { return sharers > 1 ? sharers : splits; }
  constexpr int row_groups() const { return (row_tiles + turns - 1) / turns; }
  constexpr int own_rows() const { return rows / splits; }  // of a block, after the sums
  constexpr bool streams() const { return kept < chunks; }
  constexpr int total_chunks() const { return chunks * splits; }
  constexpr int64_t padded_rows() const { return static_cast<int64_t>(rows) * row_tiles; }
  constexpr int64_t group_blocks() const { return static_cast<int64_t>(unit_tiles) * splits; }
  constexpr int64_t blocks(int64_t lanes) const { return lanes * row_groups() * group_blocks(); }
};

// Where regions of shared memory begin, in bytes, where R is stationary. Backward, halves of the
// warps exchange sums at `sums`; from `parts` on are those of all blocks of the cluster, then their
// counters.
struct StationaryLayout {
  int slots, kept, sums, parts, counters, bytes;

  constexpr explicit StationaryLayout(const TiledTiling& t)
      : slots(kStationaryCounterBytes),
        kept(slots + t.slots * t.slot_bytes()),
        sums(kept + (t.chunks - t.kept) * t.kernel_chunk_bytes()),
        parts(sums + (t.splits > 1 ? PartBytes(t) : kStationarySumBytes)),
        counters(parts + t.meetings * PartBytes(t)),
        bytes(counters + 8 * t.meetings) {}

  static constexpr int PartBytes(const TiledTiling& t) { return t.rows * kStationarySums * 4; }
};

// Where regions of shared memory begin, in bytes. Sums overwrite the stages.
struct TiledLayout {
  int stage_bytes;
  int counters, terms, stages, kept, bytes;

  constexpr TiledLayout(TiledProductShape shape, const TiledTiling& t)
      : stage_bytes((t.streams() ? shape.kernel_bytes() : 0) + shape.operand_bytes(t.rows)),
        counters(0),
        terms(kTiledCounterBytes),
        stages(terms + (t.splits > 1 ? shape.part_bytes(t.rows) : 0)),
        kept(stages + Larger(stage_bytes << t.log_stages, shape.sum_bytes(t.own_rows()))),
        bytes(kept + t.kept * shape.kernel_bytes()) {}

 private:
  static constexpr int Larger(int a, int b) { return a > b ? a : b; }
};

struct TiledProblem {
  TiledProductShape shape;
  int64_t batch, lanes, hidden, depth;
  int gates;        // of the product
  bool exact;       // for floats: full precision, not that of TensorFloat-32
  bool one_a_step;  // a step has no other product: one launch can walk all steps
  bool backward;
  // Of cells that normalise h·R, which need R to be stationary, else 0: all-reductions over the
  // blocks of a row tile, a step.
  int all_reduces;
  int reset_gates;   // of a cell whose step has two products with R stationary, else 0
  bool exponential;  // gates
  bool relaxed;      // floats of the precision of TensorFloat-32, which can be scaled

  constexpr int products() const { return reset_gates > 0 ? 2 : 1; }
  // Whether R can be stationary.
  constexpr bool allows_stationary() const { return relaxed || shape.terms == 1; }
  constexpr bool scales_gradients() const { return relaxed && backward; }
  // Whether clusters can share gradients.
  constexpr bool allows_sharing_gradients() const {
    return all_reduces == 0 && (relaxed || shape.operand_terms == 1);
  }
};

// What a step spends its time on.
enum class TiledPart : uint8_t {
  kWaits,  // for other blocks or a launch: the same at every size
  kLoads,  // of R and the operand; where R is stationary, products include them
  kProducts,
  kSums,  // of a cluster's parts; where R is stationary, of rows
  kElements,
};
constexpr int kTiledParts = 5;

// An estimate of a step, in clocks, which is made of its parts.
struct TiledStep {
  double clocks;
  float parts[kTiledParts];

  void Add(TiledPart part, double more) {
    clocks += more;
    parts[static_cast<int>(part)] += static_cast<float>(more);
  }
  void Scale(double factor) {
    clocks *= factor;
    for (float& part : parts) part *= static_cast<float>(factor);
  }
};

struct TiledPlan {
  TiledTiling tiling;
  int shared_bytes;
  TiledStep step;
};

// Calls visit for each cut of a product that fits, where R is not stationary.
void VisitTiled(const TiledProblem&, const CudaProperties&, const TiledCosts&,
                const std::function<void(const TiledPlan&)>& visit);
// The same of all products of a step, where R is stationary.
void VisitStationary(const TiledProblem&, const CudaProperties&, const TiledCosts&,
                     const std::function<void(const TiledPlan&)>& visit);

}  // namespace haste
