// A float is the sum of two parts of float16, x = x0 + x1, once a power of two has brought it to
// where float16 is at its finest: 22 bits and a sign. Of the four products of parts three matter,
//
//   a·b = a0·b0 + (a0·b1 + a1·b0),
//
// and what is left out is 2^-22 of |a|·|b| at most. A scale belongs to a row of a, or to a column
// of b, whose smallest numbers are exact to 2^-39 of its largest.
#include "lib/cuda/scaled_gemm.h"

#include <algorithm>

#include "lib/cuda/error.h"
#include "lib/cuda/launch.cuh"
#include "lib/cuda/scaled_tiles.cuh"
#include "lib/workspace.h"

namespace haste {
namespace {

// An operand: lines (rows of a, columns of b) × depth. Some of both at a time is packed.
class Operand {
 public:
  Operand(const void* data, int64_t line_stride, int64_t depth_stride, int tile, int64_t lines,
          int64_t depth, Workspace* workspace)
      : data_(static_cast<const float*>(data)),
        line_stride_(line_stride),
        depth_stride_(depth_stride),
        tile_(tile),
        slabs_(static_cast<int>(depth / kSlabDepth)),
        to_(workspace->Take<Half>(2 * lines * depth)),
        most_(workspace->Take<uint32_t>(lines)) {}

  int32_t Pack(int64_t line, int64_t lines, int64_t from, int64_t depth,
               const HasteExecutor& executor, HasteStatus* status) const {
    PackedLines p = {};
    p.from = data_ + line * line_stride_ + from * depth_stride_;
    p.line_stride = line_stride_;
    p.depth_stride = depth_stride_;
    p.lines = lines;
    p.depth = depth;
    p.slabs = slabs_;
    p.aligned = reinterpret_cast<uintptr_t>(p.from) % 16 == 0 && line_stride_ % 4 == 0;
    p.to = to_;
    p.most = most_;
    const int64_t padded = PadTo(lines, tile_);
    if (depth_stride_ == 1) {
      HASTE_CUDA_TRY(Launch(PackAlongDepth, padded / 8, kPackWarps * 32, 0, true, executor, p),
                     status);
      return HASTE_OK;
    }
    const int64_t line_blocks = CeilDiv(padded, kLinesOfBlock);
    const int64_t depth_blocks = CeilDiv(depth, kMostDepths);
    HASTE_CUDA_TRY(cudaMemsetAsync(most_, 0, padded * sizeof(uint32_t),
                                   static_cast<cudaStream_t>(executor.stream)),
                   status);
    HASTE_CUDA_TRY(Launch(FindMostOfLines, line_blocks * depth_blocks, kLinesOfBlock, 0, false,
                          executor, p, line_blocks),
                   status);
    HASTE_CUDA_TRY(Launch(PackAlongLines, line_blocks * p.slabs, kLinesOfBlock, 0, true, executor,
                          p, line_blocks, padded),
                   status);
    return HASTE_OK;
  }

  const Half* packed() const { return to_; }
  const uint32_t* most() const { return most_; }

 private:
  const float* const data_;
  const int64_t line_stride_, depth_stride_;
  const int tile_, slabs_;
  Half* const to_;
  uint32_t* const most_;
};

struct Operands {
  Operand a, b;
  float* waiting;

  Operands(const HasteGemm& g, const ProductPlan& plan, Workspace* workspace)
      : a(g.a, g.a_row, g.a_col, kProductRows, plan.rows, plan.depth, workspace),
        b(g.b, g.b_col, g.b_row, kProductColumns, plan.columns, plan.depth, workspace),
        waiting(workspace->Take<float>(plan.slots * kProductTileBytes / sizeof(float))) {}
};

// ends: there is nothing more to be added to what waits.
int32_t Multiply(const ScaledProduct& p, bool ends, const HasteExecutor& executor,
                 HasteStatus* status) {
  const int64_t pairs = std::min(p.work.pairs, std::max(p.work.whole, p.work.sharers));
  LaunchShape shape;
  shape.blocks = 2 * pairs;
  shape.threads = kTileThreads;
  shape.shared_bytes = kTileStages * kStageBytes;
  shape.cluster = 2;
  shape.overlap = true;
  HASTE_CUDA_TRY(Launch(MultiplyTiles, shape, executor, p), status);
  if (p.work.shared() == 0 || !ends) return HASTE_OK;
  HASTE_CUDA_TRY(Launch(AddPieces, int64_t{p.work.shared()} * (kProductRows / 8), kProductColumns,
                        0, true, executor, p),
                 status);
  return HASTE_OK;
}

}  // namespace

size_t ScaledGemmWorkspace(const ProductPlan& plan) {
  Workspace workspace(nullptr);
  Operands({}, plan, &workspace);
  return workspace.used();
}

int32_t ScaledGemm(const HasteGemm& g, const ProductPlan& plan, void* memory,
                   const HasteExecutor& executor, HasteStatus* status) {
  HASTE_CUDA_TRY(AllowSharedMemory(MultiplyTiles), status);
  Workspace workspace(memory);
  const Operands operands(g, plan, &workspace);
  ScaledProduct p = {};
  p.a = operands.a.packed();
  p.b = operands.b.packed();
  p.a_most = operands.a.most();
  p.b_most = operands.b.most();
  p.c_stride = g.c_row;
  p.aligned = reinterpret_cast<uintptr_t>(g.c) % 16 == 0 && g.c_row % 4 == 0;
  p.waiting = operands.waiting;
  const int64_t stays = plan.a_stays ? g.m : g.n, passes = plan.a_stays ? g.n : g.m;
  const int64_t stays_chunk = plan.a_stays ? plan.rows : plan.columns;
  const int64_t passes_chunk = plan.a_stays ? plan.columns : plan.rows;
  // Then what waits for the rest of its depth waits for the next chunk.
  const bool one_pass = passes <= passes_chunk;
  const Operand& kept = plan.a_stays ? operands.a : operands.b;
  const Operand& passed = plan.a_stays ? operands.b : operands.a;
  for (int64_t i = 0; i < stays; i += stays_chunk) {
    const int64_t kept_lines = std::min(stays_chunk, stays - i);
    for (int64_t from = 0; from < g.k; from += plan.depth) {
      const int64_t depth = std::min(plan.depth, g.k - from);
      HASTE_TRY(kept.Pack(i, kept_lines, from, depth, executor, status));
      for (int64_t j = 0; j < passes; j += passes_chunk) {
        const int64_t passed_lines = std::min(passes_chunk, passes - j);
        HASTE_TRY(passed.Pack(j, passed_lines, from, depth, executor, status));
        const int64_t row = plan.a_stays ? i : j, column = plan.a_stays ? j : i;
        p.rows = plan.a_stays ? kept_lines : passed_lines;
        p.columns = plan.a_stays ? passed_lines : kept_lines;
        p.column_tiles = CeilDiv(p.columns, kProductColumns);
        p.work = plan.Work(p.rows, p.columns);
        p.c = static_cast<float*>(g.c) + row * g.c_row + column;
        p.adds = from > 0 || g.bias != nullptr;
        p.adds_waiting = from > 0 && one_pass;
        p.adds_pieces = one_pass ? g.bias != nullptr : p.adds;
        const bool ends = !one_pass || from + depth == g.k;
        HASTE_TRY(Multiply(p, ends, executor, status));
      }
    }
  }
  return HASTE_OK;
}

}  // namespace haste
