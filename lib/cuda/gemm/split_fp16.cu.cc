// A float is the sum of two split terms of float16, x = x0 + x1, after a power of two has scaled it
// to where float16 is most precise: 22 bits and a sign. Three of the four products of split terms
// matter,
//
//   a·b = a0·b0 + (a0·b1 + a1·b0),
//
// and what is left out is at most 2^-22 of |a|·|b|. A row of a, or a column of b, has one scale.
// Its smallest numbers are exact to 2^-39 of its largest.
#include "lib/cuda/gemm/split_fp16.h"

#include <algorithm>
#include <type_traits>

#include "lib/base/workspace.h"
#include "lib/cuda/gemm/mainloop.cuh"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"

namespace haste {
namespace {

using Exact = Scaled<2>;

// Calls run with a pointer to the type as which elements of a product are multiplied.
template <class Run>
auto WithOperand(const HasteGemm& g, const Run& run) {
  if (g.dtype == HASTE_FLOAT16) return run(static_cast<Half*>(nullptr));
  if (g.dtype == HASTE_BFLOAT16) return run(static_cast<Bfloat16*>(nullptr));
  return g.allow_tf32 ? run(static_cast<Scaled<1>*>(nullptr)) : run(static_cast<Exact*>(nullptr));
}

// An operand: lines (rows of a, columns of b) × depth. A part of both is packed at a time.
template <class T>
class Operand {
  static constexpr int kTerms = PackedLines<T>::kTerms;
  static constexpr bool kScales = PackedLines<T>::kScales;

 public:
  // runs: of lines or depths, whichever are not neighbours in memory.
  Operand(const void* data, int64_t line_stride, int64_t depth_stride, const RowRuns& runs,
          int tile, int64_t lines, int64_t depth, Workspace* workspace)
      : data_(static_cast<const ElementOf<T>*>(data)),
        line_stride_(line_stride),
        depth_stride_(depth_stride),
        runs_(runs),
        tile_(tile),
        k_blocks_(static_cast<int>(depth / kPackedDepth)),
        to_(workspace->Take<MmaOperand<T>>(kTerms * lines * depth)),
        most_(workspace->Take<uint32_t>(lines)) {}
  // Packed where that one is.
  Operand(const void* data, int64_t depth_stride, const Operand& overlap)
      : data_(static_cast<const ElementOf<T>*>(data)),
        line_stride_(overlap.line_stride_),
        depth_stride_(depth_stride),
        runs_(overlap.runs_),
        tile_(overlap.tile_),
        k_blocks_(overlap.k_blocks_),
        to_(overlap.to_),
        most_(overlap.most_) {}

  // at: where the first of these lines goes among the packed ones. after: a kernel of the same
  // product was launched before.
  int32_t Pack(int64_t line, int64_t lines, int64_t from, int64_t depth, int64_t at, bool after,
               const HasteExecutor& executor, HasteStatus* status) const {
    const bool along_depth = depth_stride_ == 1;
    PackedLines<T> p = {};
    p.from = data_ + (along_depth ? from : line);
    p.first = along_depth ? line : from;
    p.runs = runs_;
    p.line_stride = line_stride_;
    p.depth_stride = depth_stride_;
    p.lines = lines;
    p.depth = depth;
    p.k_blocks = k_blocks_;
    p.aligned = reinterpret_cast<uintptr_t>(p.from) % 16 == 0 &&
                line_stride_ * sizeof(ElementOf<T>) % 16 == 0;
    p.to = to_ + at * k_blocks_ * (kTerms * kPackedDepth);
    p.most = most_ + at;
    const int64_t padded = PadTo(lines, tile_);
    if (along_depth) {
      return HASTE_CUDA_STATUS(
          Launch(PackAlongDepth<T>, {padded / 8, kPackWarps * 32, 0, 1, false, after}, executor, p),
          status);
    }
    const int64_t line_blocks = CeilDiv(padded, kLinesOfBlock);
    if constexpr (kScales) {
      const int64_t depth_blocks = CeilDiv(depth, kMostDepths);
      HASTE_CUDA_TRY(Clear(p.most, padded * sizeof(uint32_t), executor), status);
      HASTE_CUDA_TRY(Launch(FindMostOfLines<T>, {line_blocks * depth_blocks, kLinesOfBlock},
                            executor, p, line_blocks),
                     status);
    }
    return HASTE_CUDA_STATUS(
        Launch(PackAlongLines<T>,
               {line_blocks * p.k_blocks, kLinesOfBlock, 0, 1, false, kScales || after}, executor,
               p, line_blocks, padded),
        status);
  }

  const MmaOperand<T>* packed() const { return to_; }
  const uint32_t* most() const { return most_; }

 private:
  const ElementOf<T>* const data_;
  const int64_t line_stride_, depth_stride_;
  const RowRuns runs_;
  const int tile_, k_blocks_;
  MmaOperand<T>* const to_;
  uint32_t* const most_;
};

template <class T>
struct Operands {
  Operand<T> a, b;
  float* waiting;

  Operands(const ProductChunk& part, const ProductPlan& plan, Workspace* workspace)
      : a(part.gemm.a, part.gemm.a_row, part.gemm.a_col,
          part.gemm.a_col == 1 ? part.rows : part.depths, kProductRows, plan.rows, plan.depth,
          workspace),
        b(part.gemm.b, part.gemm.b_col, part.gemm.b_row,
          part.gemm.b_row == 1 ? RowRuns() : part.depths, kProductColumns, plan.columns, plan.depth,
          workspace),
        waiting(workspace->Take<float>(plan.slots * kProductTileBytes / sizeof(float))) {}
};

// Fills in everything except what differs between chunks.
template <class C, class T>
ScaledProduct<T, C> ProductOf(const ProductChunk& part, const Operands<T>& operands) {
  const HasteGemm& g = part.gemm;
  ScaledProduct<T, C> p = {};
  p.a = operands.a.packed();
  p.b = operands.b.packed();
  p.a_most = operands.a.most();
  p.b_most = operands.b.most();
  p.rows[0] = {nullptr, g.c_row, 0, part.rows, 0};
  p.rows[1] = {nullptr, part.more.c_row, 0, {}, 0};
  const uintptr_t begins = reinterpret_cast<uintptr_t>(g.c) | reinterpret_cast<uintptr_t>(g.bias) |
                           reinterpret_cast<uintptr_t>(part.more.c);
  const int64_t strides = g.c_row | part.more.c_row;
  p.aligned = begins % 16 == 0 && strides * sizeof(C) % 16 == 0;
  p.waiting = operands.waiting;
  return p;
}

template <class T, class C>
int32_t LaunchTiles(const ScaledProduct<T, C>& p, LaunchShape shape, const HasteExecutor& executor,
                    HasteStatus* status) {
  HASTE_CUDA_TRY(AllowSharedMemory(MultiplyTiles<T, C>), status);
  shape.blocks = 2 * std::min(p.work.pairs, std::max(p.work.whole, p.work.sharers));
  shape.threads = kTileThreads;
  shape.shared_bytes = kTileStages * kStageBytes;
  shape.cluster = 2;
  return HASTE_CUDA_STATUS(Launch(MultiplyTiles<T, C>, shape, executor, p), status);
}

// ends: nothing more will be added to the waiting sums.
template <class T>
int32_t Multiply(const ScaledProduct<T, float>& p, bool ends, const HasteExecutor& executor,
                 HasteStatus* status) {
  LaunchShape shape;
  shape.overlap = true;
  HASTE_TRY(LaunchTiles(p, shape, executor, status));
  if (p.work.shared() == 0 || !ends) return HASTE_OK;
  return HASTE_CUDA_STATUS(
      Launch(AddPieces<T>,
             {int64_t{p.work.shared()} * (kProductRows / 8), kProductColumns, 0, 1, false, true},
             executor, p),
      status);
}

// Sums in float32, chunk by chunk.
template <class T>
int32_t MultiplyChunks(const ProductChunk& part, const ProductPlan& plan, void* memory,
                       const HasteExecutor& executor, HasteStatus* status) {
  const HasteGemm g = part.Whole();
  Workspace workspace(memory);
  const Operands<T> operands(part, plan, &workspace);
  const Operand<T> more(part.more.a, part.more.a_col, operands.a);
  const int64_t split = part.more.m > 0 ? part.Split() : g.m;
  bool after = false;
  const auto pack_a = [&](int64_t line, int64_t lines, int64_t from, int64_t depth) -> int32_t {
    if (line < split) {
      const int64_t mine = std::min(lines, part.gemm.m - line);
      HASTE_TRY(operands.a.Pack(line, mine, from, depth, 0, after, executor, status));
    }
    const int64_t first = std::max(line, split), end = line + lines;
    if (first >= end) return HASTE_OK;
    return more.Pack(first - split, end - first, from, depth, first - line, after, executor,
                     status);
  };
  const auto pack_b = [&](int64_t line, int64_t lines, int64_t from, int64_t depth) {
    return operands.b.Pack(line, lines, from, depth, 0, after, executor, status);
  };
  const auto pack = [&](bool of_a, int64_t line, int64_t lines, int64_t from, int64_t depth) {
    const int32_t code = of_a ? pack_a(line, lines, from, depth) : pack_b(line, lines, from, depth);
    after = true;
    return code;
  };
  ScaledProduct<T, float> p = ProductOf<float>(part, operands);
  const int64_t stays = plan.a_stays ? g.m : g.n, passes = plan.a_stays ? g.n : g.m;
  const int64_t stays_chunk = plan.a_stays ? plan.rows : plan.columns;
  const int64_t passes_chunk = plan.a_stays ? plan.columns : plan.rows;
  // Then sums that wait for the rest of their depth wait for the next chunk.
  const bool one_pass = passes <= passes_chunk;
  for (int64_t i = 0; i < stays; i += stays_chunk) {
    const int64_t kept_lines = std::min(stays_chunk, stays - i);
    for (int64_t from = 0; from < g.k; from += plan.depth) {
      const int64_t depth = std::min(plan.depth, g.k - from);
      HASTE_TRY(pack(plan.a_stays, i, kept_lines, from, depth));
      for (int64_t j = 0; j < passes; j += passes_chunk) {
        const int64_t passed_lines = std::min(passes_chunk, passes - j);
        HASTE_TRY(pack(!plan.a_stays, j, passed_lines, from, depth));
        const int64_t row = plan.a_stays ? i : j, column = plan.a_stays ? j : i;
        const int64_t rows = plan.a_stays ? kept_lines : passed_lines;
        p.columns = plan.a_stays ? passed_lines : kept_lines;
        p.order = OrderOf(rows, p.columns);
        p.work = plan.Work(rows, p.columns);
        p.split = std::max(split - row, int64_t{0});
        p.rows[0].c = static_cast<float*>(g.c) + column;
        p.rows[0].first = row;
        p.rows[0].end = part.gemm.m - row;
        p.rows[1].c = static_cast<float*>(part.more.c) + column;
        p.rows[1].first = row - split;
        p.rows[1].end = g.m - row;
        const float* bias =
            g.bias == nullptr ? nullptr : static_cast<const float*>(g.bias) + column;
        p.adds = from > 0 || part.adds;
        p.adds_waiting = from > 0 && one_pass;
        p.adds_pieces = one_pass ? part.adds : p.adds;
        p.bias = from == 0 ? bias : nullptr;
        p.bias_of_pieces = one_pass || from == 0 ? bias : nullptr;
        const bool ends = !one_pass || from + depth == g.k;
        HASTE_TRY(Multiply(p, ends, executor, status));
      }
    }
  }
  return HASTE_OK;
}

}  // namespace

size_t ScaledGemmWorkspace(const HasteGemm& g, const ProductPlan& plan) {
  return WithOperand(g, [&](auto* operand) {
    Workspace workspace(nullptr);
    Operands<std::decay_t<decltype(*operand)>>({}, plan, &workspace);
    return workspace.used();
  });
}

int32_t ScaledGemm(const ProductChunk& part, const ProductPlan& plan, void* memory,
                   const HasteExecutor& executor, HasteStatus* status) {
  return WithOperand(part.gemm, [&](auto* operand) {
    return MultiplyChunks<std::decay_t<decltype(*operand)>>(part, plan, memory, executor, status);
  });
}

int32_t PackOneChunk(const ProductChunk& part, const ProductPlan& plan, void* memory,
                     const HasteExecutor& executor, HasteStatus* status) {
  const HasteGemm& g = part.gemm;
  return WithOperand(g, [&](auto* operand) -> int32_t {
    Workspace workspace(memory);
    const Operands<std::decay_t<decltype(*operand)>> operands(part, plan, &workspace);
    HASTE_TRY(operands.b.Pack(0, g.n, 0, g.k, 0, false, executor, status));
    return operands.a.Pack(0, g.m, 0, g.k, 0, true, executor, status);
  });
}

int32_t MultiplyOneChunk(const ProductChunk& part, const ProductPlan& plan, void* memory,
                         const TileOrder& order, int rows, uint32_t* ready, void* begun,
                         const HasteExecutor& executor, HasteStatus* status) {
  const HasteGemm& g = part.gemm;
  return WithOperand(g, [&](auto* operand) {
    using T = std::decay_t<decltype(*operand)>;
    Workspace workspace(memory);
    using C = ElementOf<T>;
    ScaledProduct<T> p = ProductOf<C>(part, Operands<T>(part, plan, &workspace));
    p.rows[0].c = static_cast<C*>(g.c);
    p.rows[0].end = p.split = g.m;
    p.columns = g.n;
    p.order = order;
    p.work = plan.Work(int64_t{rows} * kProductRows, g.n);
    p.bias = static_cast<const C*>(g.bias);
    p.ready = ready;
    LaunchShape shape;
    shape.begun = static_cast<cudaEvent_t>(begun);
    return LaunchTiles(p, shape, executor, status);
  });
}

uint32_t ReadyCount(const ProductPlan& plan, int tiles) {
  return 2 * tiles * (plan.terms == 1 ? kWarpsOfTile<1> : kWarpsOfTile<2>);
}

}  // namespace haste
