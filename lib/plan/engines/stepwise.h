// How the `stepwise` engine cuts the product of one step over a GPU. Pure host arithmetic.
//
// The product is A · B for each lane: A is [rows N, depth] (h, or the gates' gradients), B is
// R or Rᵀ, [depth, columns], `columns_per_unit` columns a hidden unit. A block owns `units` hidden
// units and `row_groups`·`rows` rows, and walks all of the depth with its threads split into
//     k_splits × row_groups × column_groups
// threads; a thread accumulates `rows` × `columns` elements.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <functional>

namespace haste {

struct StepwiseCutCosts;  // lib/plan/costs/cost_table.h

constexpr int kStepThreads = 256;
constexpr int kMaxStages = 4;  // chunks of A in shared memory

// Elements of the depth that a thread takes of a chunk of A, and how far it reads ahead in B: what
// registers hold.
constexpr int DepthPerChunk(int storage_bytes) { return storage_bytes == 8 ? 4 : 8; }

struct Tiling {
  int rows, columns;              // of a thread
  int row_groups, column_groups;  // of a block
  int k_splits;
  int units;       // hidden units of a block
  int iterations;  // depth of a thread: ceil(depth / k_splits)
  int row_stride;  // of A in shared memory, elements
  int stages;
  int sum_lanes;   // threads that sum the k_splits parts of one element; a power of two
  int sum_stride;  // elements from one part of the sums to the next, in shared memory
  int64_t unit_tiles, row_tiles;  // blocks of a lane
  size_t shared_bytes;

  constexpr int block_rows() const { return rows * row_groups; }
  constexpr int block_columns() const { return columns * column_groups; }
  // A and B are padded with zeros up to these.
  constexpr int64_t padded_depth() const { return static_cast<int64_t>(iterations) * k_splits; }
  constexpr int64_t padded_rows() const { return row_tiles * block_rows(); }
  // One block has all of a lane's units, so no other block waits for its results.
  constexpr bool owns_lane() const { return unit_tiles == 1; }
};

struct TilingProblem {
  int64_t batch, lanes, hidden;
  int64_t depth;
  int columns_per_unit;
  int columns;  // of a thread: a multiple or a divisor of columns_per_unit
  int storage_bytes, compute_bytes;
};

struct TilingDevice {
  int multiprocessors;
  size_t shared_bytes;  // that a block may use
};

// Calls visit for each tiling that fits, with the estimated clocks of a step.
void VisitTilings(const TilingProblem&, const TilingDevice&, const StepwiseCutCosts&,
                  const std::function<void(const Tiling&, double clocks)>& visit);
// The one that takes the least.
Tiling PlanTiling(const TilingProblem&, const TilingDevice&, const StepwiseCutCosts&);

}  // namespace haste
