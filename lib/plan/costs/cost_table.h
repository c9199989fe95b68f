// What the GPU planner's estimates are made of: for each engine, what parts of a step cost. A table
// a device, all numbers double, each fitted to timings (benchmarks/fit_plan.py) or fixed.
//
// What kernels share (sizes, threads, stages) is no cost and stays with its engine, as do rules
// that no time follows from.
#pragma once

namespace haste {

// Clocks are those of a multiprocessor.
struct BlockCosts {
  double forward_clocks, backward_clocks;  // of a step: latencies, a barrier
  double product_clocks;                   // of a tensor core, for 16 × 8 × 16
  double latency_clocks;                   // from one product to the next that adds to it
  // Of a scheduler, for a gate of a warp's elements.
  double forward_gate_clocks, backward_gate_clocks;
  double cluster_clocks;  // from one block of a cluster to another
  double cluster_block_clocks;
  double cluster_byte_clocks;  // of a byte that arrives
  double over_clocks;          // of a tile's chunk from shared memory
  // The same of a part of floats, which leave no registers to ask ahead; and of rows 5 to 8 of
  // them.
  double forward_over_float_clocks, backward_over_float_clocks;
  double second_float_rows_clocks;
  double odd_row_clocks;  // rows that do not begin at multiples of 16 bytes
  // Gates' gradients that are scaled: of a step, alone and in a cluster, and of a chunk.
  double alone_scaled_clocks, cluster_scaled_clocks, scaled_chunk_clocks;
};

// `cluster` and `grid`: what a block computes.
struct PersistentCosts {
  // Of a pass: barriers, sums, the cell, what it reads and writes.
  double forward_clocks, backward_clocks;
  double gate_clocks;     // more, for each gate
  double product_clocks;  // of a tensor core, for 16 × 8 × 16
  double latency_clocks;  // from one product to the next that adds to it
  double shared_bytes_per_clock;
  double split_clocks;  // of a warp's chunk of floats into parts
  // Forward, of a warp's chunk whose R is in shared memory, of one part, two and three.
  double over_clocks[3];
  // A second tile gives all warps elements, where one gives them to half of the warps.
  double second_row_tile_clocks;
  double alone_clocks;  // a block that waits for itself alone
};

// `cluster`: the exchange.
struct ClusterCosts {
  double exchange_clocks;  // from one block of a cluster to another
  double block_clocks;
  double byte_clocks;  // of a byte that arrives
  double second_unit_tile_clocks;
  double odd_clocks;  // forward, rows that are copied element by element
};

// `grid`: the exchange.
struct GridCosts {
  double exchange_clocks;   // forward, from one block of the GPU to another
  double crowded_clocks;    // more, where warps cannot give registers to others
  double sums_clocks;       // backward, the same
  double poll_byte_clocks;  // of a byte that one block waits for
  double sum_byte_clocks;   // of a byte of all sums on their way
  // Of floats: of a byte of a group's row tile, as groups hardly slow down others.
  double float_sum_byte_clocks;
  double l2_share, l2_penalty;  // where these outgrow this share of the L2 cache
  double second_unit_tile_clocks, second_unit_tile_sums_clocks;
  double odd_clocks;  // forward, rows that are copied element by element
};

// `grid`, backward, gates' gradients shared by clusters.
struct SharedGradientCosts {
  double pass_clocks;                        // both exchanges, sums, the cell
  double gate_clocks;                        // more, for each gate
  double float_clocks;                       // of a pass, more
  double row_tile_clocks, unit_tile_clocks;  // a second one
  double product_clocks;                     // of a warp, for 16 × 8 × 16
  double over_clocks, over_float_clocks;     // of four tiles of R from shared memory
  double byte_clocks;                        // of the gradients
  // Of a second row tile of scaled ones, of one part and of two: registers are few.
  double scaled_row_tile_clocks[2];
};

// `grid`, forward, elements with warps of their own: of a cell with several gates, and with one.
struct SpecializedCosts {
  double pass_clocks, one_gate_pass_clocks;
  double step_clocks, one_gate_step_clocks;  // of a step whose passes are few
  double over_clocks;                        // of a chunk of R from shared memory
  double asked_clocks;                       // of a second look at h
};

struct TiledCosts {
  double step_clocks;  // of a step, whatever its size
  double barrier_clocks;
  double launch_share;           // what a launch a step must gain: it keeps the host busy
  double chunk_clocks;           // of a chunk, beside its products
  double block_bytes_per_clock;  // from the L2 cache to one multiprocessor
  double l2_bytes_per_clock;     // to all of them
  double memory_bytes_per_clock;
  double l2_share;                  // of the L2 cache, that R may fill
  double unhidden;                  // of the lesser of loading and multiplying
  double prefetch_clocks;           // of a cluster that adds up its sums
  double split_clocks;              // more, for each of its blocks
  double prefetch_bytes_per_clock;  // that a block sends the others
  double element_clocks;            // of one element of each thread of a multiprocessor,
  double gate_clocks;               // and of each of its gates
  double shared_bytes_per_clock;
  // Where R is stationary: of a step; of a row tile of several; of each gate; of a chunk that
  // blocks share, that each loads alone, or that two share in one turn.
  double stationary_clocks, stationary_turn_clocks, stationary_gate_clocks;
  double shared_chunk_clocks, alone_chunk_clocks, pair_chunk_clocks;
  double shared_kernel_clocks;  // more for 64 of the depth whose R is in shared memory
  double few_slots;  // chunks take so much longer with few slots, and again with one a loading warp
  // Of sums of rows, over the blocks that have units of them; backward, more with 32 rows in 32
  // bits, where registers are too few.
  double all_reduce_clocks, narrow_reduce_clocks;
  double all_reduced_gate_clocks;  // more for each gate whose rows are summed
  double stationary_missing_rows;  // share of a gate's clocks that a tile without rows saves
  double stationary_odd_clocks;    // of a gate, more where rows do not begin at whole sectors
  double float_gate_clocks;        // of a gate, more in 32 bits
  // Of a chunk, more for each scale of a row, and of one that blocks share.
  double scaled_chunk_clocks, scaled_sharing_clocks;
  // Backward: of a step; of a row tile of several; of each gate; of a chunk of 64 rows, of 32, or
  // one that blocks share; of partial sums that go through global memory, for each block.
  double stationary_backward_clocks, stationary_backward_turn_clocks;
  double stationary_backward_gate_clocks;
  double wide_chunk_clocks, narrow_chunk_clocks, sharing_chunk_clocks;
  double memory_meeting_clocks;
  // Chunks take so much longer in turns, and where blocks share and the next row tile's product
  // begins early.
  double backward_turn_chunks, early_sharing_chunks;
};

struct BlasCosts {
  double phase_clocks;   // two launches that wait for each other
  double float_clocks;   // more, in 32 and 64 bits
  double second_clocks;  // of the operand's second part
  double norm_clocks;    // of the kernel of whole rows
  // R, of a multiprocessor.
  double l2_bytes_per_clock, memory_bytes_per_clock;
  double l2_share;             // of the L2 cache, that R may fill
  double element_clocks;       // of the GPU: an element
  double element_byte_clocks;  // and a byte of its gates
  double least_rows;           // that a product takes the time of
  // Multiply-adds of a multiprocessor, in float64, in float32, as TensorFloat-32 and in 16 bits;
  // and of the latter two what tensor cores that are not Hopper's do.
  double products_per_clock[4];
  double backward_float_products_per_clock;  // in float32, backward
  double older_tensor_share;
};

// `stepwise`, as it is compared with other engines.
struct StepwiseCosts {
  double phase_clocks;
  double norm_clocks;                          // of the kernel of whole rows
  double bytes_per_clock, products_per_clock;  // of the GPU
};

// And as its own cuts are compared.
struct StepwiseCutCosts {
  double step_clocks;             // of every step
  double launch_clocks;           // from one dependent kernel to the next
  double block_clocks;            // to launch a block
  double iteration_clocks;        // of an iteration, beside its multiply-adds
  double chunk_clocks;            // of a chunk of A: its barrier and what waits for it
  double element_clocks;          // pointwise part: a round of all threads
  double sum_clocks;              // to add a part of the sums
  double ingest_bytes_per_clock;  // of one multiprocessor
  double l2_bytes_per_clock;      // of all of them
};

// Large products (lib/plan/gemm/gemm.h), by all of the GPU.
struct GemmCosts {
  double float_products_per_microsecond;  // of float32 units
  double float_call_microseconds;
  double float_margin;  // how much faster than these ours must be estimated
  double chunk_call_microseconds;
  double pack_byte_microseconds;   // of a byte read or written
  double k_block_microseconds[2];  // of a tile, of one part and two
  double tile_microseconds[2];     // of a tile's sums
  double slot_microseconds;        // of adding up what waits
};

// Products beside a walk (lib/plan/overlap.h).
struct OverlapCosts {
  double clocks_per_microsecond;
  // So much longer than by as many multiprocessors products take beside a walk, which has a share
  // of the L2 cache's bandwidth: of floats, and of TensorFloat-32 and 16 bits, which by all of the
  // GPU are no match for cuBLAS; and x·W, for which the walk waits.
  double float_factor, tf32_factor, half_factor, input_factor;
  // Of cuBLAS, by all of the GPU: multiply-adds, as TensorFloat-32 and in 16 bits.
  double cublas_tf32_products_per_microsecond, cublas_half_products_per_microsecond;
};

struct CostTable {
  double multiprocessors;  // of the GPU that was timed
  BlockCosts block;
  PersistentCosts persistent;
  ClusterCosts cluster;
  GridCosts grid;
  SharedGradientCosts shared;
  SpecializedCosts specialized;
  TiledCosts tiled;
  BlasCosts blas;
  StepwiseCosts stepwise;
  StepwiseCutCosts stepwise_cut;
  GemmCosts gemm;
  OverlapCosts overlap;
};

// Of GPUs of a compute capability.
const CostTable& CostsOf(int sm_major, int sm_minor = 0);

}  // namespace haste
