// How the persistent CUDA engines (`cluster`, `grid`) cut a recurrence over a GPU, and what a block
// has where in shared memory. Pure arithmetic: the kernels compute the same from the same sizes.
#pragma once

#include <stdint.h>

#include <functional>

#include "lib/plan/engines/device.h"
#include "lib/plan/engines/step_rows.h"

namespace haste {

struct CostTable;  // lib/plan/costs/cost_table.h

constexpr int kPersistentWarps = 8;  // of a block
// What a warp keeps of R in registers, in tiles of 16 × 16 × 16 bits: four registers of a thread.
// Forward fewer where warps cannot give theirs to others (lib/cuda/persistent/forward.cuh).
constexpr int kPersistentTiles = 32, kFewerPersistentTiles = 24;
// Forward, of a block whose elements have warps of their own.
constexpr int kElementSets = 2, kElementWarps = 4, kWarpSpecializedTiles = 24;
constexpr int kChunksAsked = 4;  // forward, chunks of h that are asked for together, at most
constexpr int kTileBytes = 512;
// Elements of a pass that a block has: one a thread.
constexpr int kPersistentElements = kPersistentWarps * 32;
constexpr int kMaxPasses = 16;
constexpr int kClusterPeers = 8;  // what every GPU with clusters can do

struct PersistentTiling {
  int blocks;      // of a group
  int unit_tiles;  // of a block: 16 hidden units each; 1 or 2
  int row_tiles;   // of a pass: 8 rows of the batch each; 1 or 2, not both 2
  int passes;      // of a group
  int row_groups;  // groups of a lane
  int chunks;  // depth, in 32s: forward, of a warp; backward, of the gates that a block multiplies
  // Backward, grid: blocks of a cluster that share the gradients of their gates. Each then
  // multiplies all of them, for its part of dh. 1: each block has its own gates, and all of dh.
  int sharers;
  // Forward, grid: kElementWarps if warp-specialized. Otherwise the warps that multiply have the
  // elements.
  int element_warps;

  constexpr int units() const { return 16 * unit_tiles; }
  constexpr int rows() const { return 8 * row_tiles; }
  constexpr int group_rows() const { return rows() * passes; }
  constexpr int padded_hidden() const { return blocks * units(); }
  constexpr int hidden_chunks() const { return (padded_hidden() + 31) / 32; }
  // Forward: warps that share a unit tile, each with a part of the depth.
  constexpr int depth_warps() const { return kPersistentWarps / unit_tiles; }

  // Of backward, what follows from the above: set by Derive, since kernels should not divide.
  int product_tiles;  // unit tiles of dh that a block has parts of, for as many blocks
  int pair_warps;     // side by side over pairs of these; where they are few, …
  int depth_parts;    // … the other warps have other parts of the depth,
  int pair_chunks;    // with this many chunks each
  int pairs;          // of a warp
  int senders;        // of sums of a tile of dh to its block

  constexpr void Derive() {
    product_tiles = blocks / sharers * unit_tiles;
    pair_warps = kPersistentWarps;
    depth_parts = 1;
    while (sharers > 1 && pair_warps / 2 * 2 >= product_tiles && chunks % (2 * depth_parts) == 0) {
      pair_warps /= 2;
      depth_parts *= 2;
    }
    pair_chunks = chunks / depth_parts;
    pairs = (product_tiles + 2 * pair_warps - 1) / (2 * pair_warps);
    senders = blocks / sharers * depth_parts;
  }
};

// What a layout depends on besides the tiling.
struct PersistentCell {
  int gates, states;
  int storage_bytes;  // 2 or 4
  int operand_bytes;  // the same, of what h is on its way
  int terms;          // of an operand of the tensor cores (lib/cuda/ptx/mma.cuh)
  int saved;          // tensors of the reserve beside the gates
  int forward_tiles;  // of R, in a warp's registers

  // Gates of a unit if they are shared, padded so that whole units make 16 bytes.
  constexpr int shared_gates() const { return gates == 3 ? 4 : gates; }
  // An element's sums side by side, as wide as an access.
  constexpr int width() const { return gates == 3 ? 4 : gates; }
  // Where an element's sums lie in a warp's, so that banks are kept apart: rows of 16 units, these
  // permuted where a sum is as wide as an access, rows further apart where it is not.
  constexpr int row_stride() const { return width() == 4 ? 16 : 20; }
  constexpr int sum_at(int row, int unit) const {
    return row * row_stride() + (width() == 4 ? unit ^ (row / 2 * 2 & 7) : unit);
  }
  // Backward: whether gates' gradients are scaled, row by row (lib/cuda/ptx/fp16_scale.cuh).
  constexpr bool scales_rows(const PersistentTiling& t) const {
    return t.sharers > 1 && gates > 1 && storage_bytes == 4 && terms < 3;
  }
  // Forward: chunks that a warp keeps in registers. Backward: pairs of unit tiles × a chunk.
  constexpr int held_chunks() const { return forward_tiles / (2 * gates * terms); }
  constexpr int held_pairs() const { return kPersistentTiles / (4 * terms); }
};

constexpr int AlignUp16(int bytes) { return (bytes + 15) / 16 * 16; }

// Bytes of h of a pass, all units of the group: what a block receives.
constexpr int ReceivedStates(const PersistentTiling& t, int operand_bytes) {
  return t.hidden_chunks() * t.row_tiles * 32 * 8 * operand_bytes;
}
// Bytes of a pass's sums of dh that one block receives.
constexpr int ReceivedSums(const PersistentTiling& t) {
  return t.senders * t.unit_tiles * t.row_tiles * 32 * 16;
}
// Bytes of the gates' gradients of a pass that a block multiplies.
constexpr int OperandBytes(const PersistentTiling& t, const PersistentCell& cell) {
  return t.chunks * t.row_tiles * 32 * 16 * cell.terms;
}

// And of what undoes their scales: of all blocks' unit tiles, each row's.
constexpr int RowScaleBytes(const PersistentTiling& t, const PersistentCell& cell) {
  return cell.scales_rows(t) ? t.sharers * t.unit_tiles * t.rows() * 4 : 0;
}

// Bytes of the states of a block's elements, and of what dropout multiplies h with.
constexpr int StateBytes(const PersistentTiling& t, int states) {
  return t.passes * (states + 1) * kPersistentElements * 4;
}

// Rows of the batch that a pass reads forward, and leaves.
constexpr StepRows PersistentReads(const PersistentTiling& t, const PersistentCell& c) {
  return {t.rows(), 1, 0, t.units(), c.gates, c.storage_bytes, false};
}
constexpr StepRows PersistentWrites(const PersistentTiling& t, const PersistentCell& c) {
  return {t.rows(), 1, c.saved + 1, t.units(), c.gates, c.storage_bytes, false};
}

// Where regions of shared memory begin, in bytes. cluster: the exchange is there too.
struct ForwardLayout {
  int sums_of_warp;  // elements
  // cluster: 1 if R needs the room. grid: 1, because a barrier separates its steps; if
  // warp-specialized, one for each set of warps with elements.
  int sum_buffers;
  int counters, receive, sums, states, seen, reads, writes, tiles, bytes;

  constexpr ForwardLayout(const PersistentTiling& t, const PersistentCell& cell, bool cluster)
      : sums_of_warp(t.rows() * cell.row_stride()),
        sum_buffers(t.element_warps == 0 && (!cluster || t.chunks > cell.held_chunks()) ? 1 : 2),
        counters(0),
        receive(cluster ? AlignUp16(2 * t.passes * 8) : 0),
        sums(receive + (cluster ? 2 * t.passes * ReceivedStates(t, cell.operand_bytes) : 0)),
        states(AlignUp16(sums + sum_buffers * kPersistentWarps * sums_of_warp * cell.width() * 4)),
        seen(states + StateBytes(t, cell.states)),
        reads(seen + 2 * kPersistentElements),
        writes(reads + 2 * PersistentReads(t, cell).step() * cell.storage_bytes),
        tiles(writes + 2 * PersistentWrites(t, cell).step() * cell.storage_bytes),
        bytes(tiles + (t.chunks > cell.held_chunks() ? t.chunks - cell.held_chunks() : 0) * 2 *
                          cell.gates * cell.terms * kPersistentWarps * kTileBytes) {}
};

struct BackwardLayout {
  static constexpr int kSumStride = 20, kSumTile = 8 * kSumStride;  // floats
  int counters, receive, sums, operand, states, tiles, bytes;

  constexpr BackwardLayout(const PersistentTiling& t, const PersistentCell& cell, bool cluster)
      : counters(0),
        receive(cluster || t.sharers > 1 ? AlignUp16(2 * t.passes * 8) : 0),
        sums(receive + (cluster ? 2 * t.passes * ReceivedSums(t) : 0)),
        operand(sums + kPersistentWarps * kSumTile * 4),
        states(operand + (t.sharers > 1 ? 2 * t.passes : 1) *
                             (OperandBytes(t, cell) + RowScaleBytes(t, cell))),
        tiles(states + StateBytes(t, cell.states)),
        bytes(tiles + SmemResident(t, cell) * 4 * cell.terms * kPersistentWarps * kTileBytes) {}

  // Pairs of tiles × chunks of a warp that registers do not hold.
  static constexpr int SmemResident(const PersistentTiling& t, const PersistentCell& cell) {
    const int all = t.pairs * t.pair_chunks;
    return all > cell.held_pairs() ? all - cell.held_pairs() : 0;
  }
};

struct PersistentProblem {
  PersistentCell cell;
  int shared_terms;  // in place of cell.terms where gates' gradients are shared
  int64_t batch, lanes, hidden;
  bool backward;
  bool gives_registers;  // warps can give theirs to others
};

struct PersistentPlan {
  PersistentTiling tiling;
  int shared_bytes;
  double clocks;  // estimated, of a step, of all rows
};

// Calls visit for each cut that fits.
void VisitPersistent(const PersistentProblem&, const CudaProperties&, const CostTable&,
                     bool cluster, const std::function<void(const PersistentPlan&)>& visit);

}  // namespace haste
