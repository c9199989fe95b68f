// How the CUDA engine `block` cuts a recurrence over a GPU, and what a block has where in shared
// memory. Pure arithmetic: the kernels compute the same from the same sizes.
#pragma once

#include <stdint.h>

#include <functional>

#include "lib/plan/engines/device.h"
#include "lib/plan/engines/step_rows.h"

namespace haste {

struct BlockCosts;  // lib/plan/costs/cost_table.h

constexpr int kBlockUnits = 8;  // hidden units of a warp

constexpr int kClusterWarps = 4;  // with units, of a block of a cluster
constexpr int kClusterUnits = kClusterWarps * kBlockUnits;
constexpr int kMaxBlockCluster = 16;

// One block walks one lane and a few rows of the batch, with all of that lane's R. Or so does a
// cluster of blocks, each with R of some of the units.
struct BlockTiling {
  int blocks;  // of a cluster; 1: no cluster
  int rows;    // of the batch: 4 or 8
  int warps;   // that have units, of a block
  int chunks;  // the depth of a warp's product, in 32s, up to a whole number of groups

  // Units of a block.
  constexpr int units(int64_t hidden) const {
    return blocks > 1 ? kClusterUnits : static_cast<int>(hidden);
  }
};

// What the kernels' code depends on.
struct BlockCell {
  int gates, storage_bytes;  // 2 or 4
  int terms;                 // of an operand of the tensor cores (lib/cuda/ptx/mma.cuh)
  int saved;                 // tensors of the reserve beside the gates
  bool splits_gradient;      // of wx and of h·R

  // Gates of a unit side by side: so many rows of a tile, or depths.
  constexpr int slots() const { return gates == 1 ? 1 : 4; }
  // Tiles of 16 rows that a warp multiplies. Two: two gates each of eight units; the whole depth is
  // the warp's. One: sixteen units, which two warps share, each with half of the depth.
  constexpr int tiles(bool backward) const { return backward || slots() == 1 ? 1 : 2; }
  constexpr int depth_warps(bool backward) const { return 3 - tiles(backward); }
  // A tile's sums in several: a product waits for the one before that adds to the same, of floats
  // for more of them, but there are registers for that only where warps are few.
  constexpr int chains(bool backward, bool cluster) const {
    if (terms > 1 && cluster) return 2 * kGroup;
    return (terms == 1 ? 4 : 2) / tiles(backward);
  }
  // Whether gates' gradients are scaled, row by row (lib/cuda/ptx/fp16_scale.cuh): a warp's are a
  // chunk.
  constexpr bool scales_rows(bool backward) const {
    return backward && gates > 1 && storage_bytes == 4 && terms < 3;
  }
  // Chunks whose products a warp has under way together.
  static constexpr int kGroup = 2;
  // As many warps as leave each the registers for its part of R, of which a tile's chunk takes 8
  // for each part.
  constexpr int max_warps(bool cluster) const {
    return cluster ? kClusterWarps : terms > 1 ? 8 : 12;
  }
  constexpr int max_hidden(bool cluster) const {
    return cluster ? kMaxBlockCluster * kClusterUnits : max_warps(false) * kBlockUnits;
  }
  // Chunks of R that a warp keeps in registers; the others are in shared memory.
  constexpr int held_chunks(bool backward, bool cluster) const {
    const int all = chunks(backward, max_hidden(cluster));
    const int most = cluster ? 16 / (tiles(backward) * terms) / kGroup * kGroup : all;
    return all < most ? all : most;
  }
  // Chunks of a warp's product.
  constexpr int chunks(bool backward, int64_t hidden) const {
    const int64_t depth = (backward ? slots() : 1) * hidden;
    const int64_t groups = 32 * depth_warps(backward) * kGroup;
    return static_cast<int>((depth + groups - 1) / groups) * kGroup;
  }
};

// What a step reads beside the states, and what it leaves.
constexpr StepRows BlockReads(int rows, const BlockCell& c, bool backward, int64_t hidden) {
  return {rows, 1, backward ? c.saved + 1 : 0, hidden, c.gates, c.storage_bytes, true};
}
constexpr StepRows BlockWrites(int rows, const BlockCell& c, bool backward, int64_t hidden) {
  return {rows,
          backward && c.splits_gradient ? 2 : 1,
          backward ? 0 : c.saved + 1,
          hidden,
          c.gates,
          c.storage_bytes,
          true};
}

// Begins of what is in shared memory, in bytes.
struct BlockLayout {
  static constexpr int kWordBytes = 512;                 // 16 of a warp's lanes each
  static constexpr int kReadSteps = 5, kWriteSteps = 2;  // under way
  // The operand is first; then what counts its arrival, scales of its rows, parts of sums for the
  // warp that shares the tile, rows, and what of R registers do not hold.
  int counters, scales, sums, reads, writes, tiles, bytes;

  constexpr BlockLayout(const BlockTiling& t, const BlockCell& c, bool backward, int64_t hidden)
      : counters(2 * t.chunks * c.depth_warps(backward) * c.terms * kWordBytes),
        scales(counters + 2 * 8),
        sums(scales +
             (c.scales_rows(backward) ? 2 * t.chunks * c.depth_warps(backward) * t.rows * 4 : 0)),
        reads(sums + (c.depth_warps(backward) - 1) * t.warps * (t.rows / 4) * 32 * 4),
        writes(reads + kReadSteps * BlockReads(t.rows, c, backward, t.units(hidden)).step() *
                           c.storage_bytes),
        tiles(writes + kWriteSteps * BlockWrites(t.rows, c, backward, t.units(hidden)).step() *
                           c.storage_bytes),
        bytes(tiles + SmemResident(t, c, backward) * 2 * c.tiles(backward) * c.terms * t.warps *
                          kWordBytes) {}

  static constexpr int SmemResident(const BlockTiling& t, const BlockCell& c, bool backward) {
    const int held = c.held_chunks(backward, t.blocks > 1);
    return t.chunks > held ? t.chunks - held : 0;
  }
};

struct BlockProblem {
  BlockCell cell;
  int64_t batch, lanes, hidden;
  bool backward;
};

struct BlockPlan {
  BlockTiling tiling;
  int64_t blocks;  // of all clusters
  int shared_bytes;
  double clocks;  // estimated, of a step, of all rows
};

// Calls visit for each cut that fits: none where neither a block nor a cluster can hold R.
void VisitBlocks(const BlockProblem&, const CudaProperties&, const BlockCosts&,
                 const std::function<void(const BlockPlan&)>& visit);

}  // namespace haste
