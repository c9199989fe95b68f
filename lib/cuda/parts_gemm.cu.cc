// A float is the sum of three bfloat16 parts of 8 bits each: x = x0 + x1 + x2, each part 2^-8 of
// the one before. Of the nine products of parts six matter,
//
//   a·b = (a0·b2 + a1·b1 + a2·b0) + (a0·b1 + a1·b0) + a0·b0,
//
// and what is left out is 2^-24 of |a|·|b| at most. Each bracket is one product of a greater depth:
// a's parts lie one behind the other in this order, b's in the opposite one.
#include "lib/cuda/parts_gemm.h"

#include <algorithm>

#include "lib/cuda/cublas.h"
#include "lib/cuda/error.h"
#include "lib/cuda/launch.cuh"
#include "lib/cuda/storage.cuh"

namespace haste {
namespace {

// A block splits kTileRows rows of 32 runs of neighbours.
constexpr int kRun = 8, kLanes = 32, kWarps = 8, kRowsOfThread = 4;
constexpr int kTileRows = kWarps * kRowsOfThread, kTileColumns = kLanes * kRun;

// Of cuBLAS, for products as large as these: more makes them no faster.
constexpr size_t kCublasRoom = (4 << 20) + 256;

// Of one operand's chunk, as it lies in memory; padding is 0.
struct Split {
  const float* from;
  int64_t rows, columns, from_stride;
  bool aligned;  // rows begin at multiples of 16 bytes
  Bfloat16* to;
  int64_t to_rows, to_columns, to_stride;
  int64_t place[kProductParts];  // of the parts, elements
};

__device__ __forceinline__ Bfloat16 TakePart(float* x) {
  __nv_bfloat16 part = __float2bfloat16_rn(*x);
  if (__hisinf(part)) part = __float2bfloat16_rz(*x);  // not of a float that is finite
  const float rest = *x - __bfloat162float(part);
  *x = isfinite(rest) ? rest : 0;  // infinity and NaN are their own first part
  return {__bfloat16_as_ushort(part)};
}

__global__ void __launch_bounds__(kLanes* kWarps) SplitIntoParts(Split s, int64_t column_tiles) {
  const int64_t tile = blockIdx.x / column_tiles;
  const int64_t column =
      (blockIdx.x - tile * column_tiles) * kTileColumns + threadIdx.x % kLanes * kRun;
  if (column >= s.to_columns) return;
  const int64_t first = tile * kTileRows + threadIdx.x / kLanes;
  const bool whole = s.aligned && column + kRun <= s.columns;
  float values[kRowsOfThread][kRun];
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int64_t row = first + i * kWarps;
    const float* from = s.from + row * s.from_stride + column;
    if (whole && row < s.rows) {
      const auto low = LoadFragment<kRun / 2>(from), high = LoadFragment<kRun / 2>(from + kRun / 2);
#pragma unroll
      for (int j = 0; j < kRun; ++j) values[i][j] = j < kRun / 2 ? low.v[j] : high.v[j - kRun / 2];
    } else {
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        values[i][j] = row < s.rows && column + j < s.columns ? from[j] : 0.0f;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int64_t row = first + i * kWarps;
    if (row >= s.to_rows) return;
#pragma unroll
    for (int part = 0; part < kProductParts; ++part) {
      Bfloat16 parts[kRun];
#pragma unroll
      for (int j = 0; j < kRun; ++j) parts[j] = TakePart(&values[i][j]);
      StoreFragment<kRun>(s.to + s.place[part] + row * s.to_stride + column, parts);
    }
  }
}

// An operand of the product: lines (rows of a, columns of b) × depth.
struct Operand {
  const float* data;
  int64_t line_stride, depth_stride;
  int64_t line_room, depth_room;  // of a chunk, padded
  bool ascending;                 // the order of its parts
  Bfloat16* parts;

  bool along_depth() const { return depth_stride == 1; }
  int64_t stride() const { return along_depth() ? kProductParts * depth_room : line_room; }

  int32_t Put(int64_t line, int64_t lines, int64_t from, int64_t depth,
              const HasteExecutor& executor, HasteStatus* status) const {
    Split s = {};
    s.from = data + line * line_stride + from * depth_stride;
    s.rows = along_depth() ? lines : depth;
    s.columns = along_depth() ? depth : lines;
    s.from_stride = along_depth() ? line_stride : depth_stride;
    s.aligned = reinterpret_cast<uintptr_t>(s.from) % 16 == 0 && s.from_stride % 4 == 0;
    s.to = parts;
    s.to_rows = along_depth() ? lines : depth_room;
    s.to_columns = along_depth() ? depth_room : PadTo(lines, kProductAlign);
    s.to_stride = stride();
    for (int part = 0; part < kProductParts; ++part) {
      const int64_t at = ascending ? part : kProductParts - 1 - part;
      s.place[part] = at * (along_depth() ? depth_room : depth_room * line_room);
    }
    const int64_t column_tiles = CeilDiv(s.to_columns, kTileColumns);
    const int64_t blocks = CeilDiv(s.to_rows, kTileRows) * column_tiles;
    HASTE_CUDA_TRY(
        Launch(SplitIntoParts, blocks, kLanes * kWarps, 0, false, executor, s, column_tiles),
        status);
    return HASTE_OK;
  }

  // Its parts from `depth` of all three on.
  const Bfloat16* At(int64_t depth) const {
    return parts + depth * (along_depth() ? 1 : line_room);
  }
};

// c's chunk = or += that of a·b, whose parts are there. The smallest terms come first.
int32_t AddProducts(const Operand& a, const Operand& b, CublasProduct product, bool adds,
                    const CublasCall& cublas, HasteStatus* status) {
  const int64_t depth = a.depth_room;
  const auto add = [&](int64_t from_a, int64_t from_b, int64_t length) {
    product.depth = length;
    product.adds = adds;
    product.a.data = a.At(from_a);
    product.b.data = b.At(from_b);
    adds = true;
    return cublas.Multiply(product, status);
  };
  for (int parts = kProductParts; parts > 1; --parts) {
    HASTE_TRY(add(0, (kProductParts - parts) * depth, parts * depth));
  }
  const int64_t piece = PadTo(CeilDiv(depth, CeilDiv(depth, kSumDepth)), kProductAlign);
  for (int64_t from = 0; from < depth; from += piece) {
    HASTE_TRY(add(from, (kProductParts - 1) * depth + from, std::min(piece, depth - from)));
  }
  return HASTE_OK;
}

}  // namespace

size_t PartsGemmWorkspace(const ProductPlan& plan) { return plan.bytes() + kCublasRoom; }

int32_t PartsGemm(const HasteGemm& g, const ProductPlan& plan, void* workspace,
                  const HasteExecutor& executor, HasteStatus* status) {
  auto* const parts = static_cast<Bfloat16*>(workspace);
  const Operand a = {static_cast<const float*>(g.a),
                     g.a_row,
                     g.a_col,
                     PadTo(plan.rows, kProductAlign),
                     plan.depth,
                     true,
                     parts};
  const Operand b = {static_cast<const float*>(g.b),     g.b_col,    g.b_row,
                     PadTo(plan.columns, kProductAlign), plan.depth, false,
                     parts + plan.a_elements()};
  CublasProduct product = {};
  product.dtype = HASTE_BFLOAT16;
  product.c_dtype = HASTE_FLOAT32;
  product.a = {nullptr, a.stride(), 0, a.along_depth()};
  product.b = {nullptr, b.stride(), 0, !b.along_depth()};
  product.c_stride = g.c_row;
  CublasCall cublas;
  HASTE_TRY(
      cublas.Begin(executor, static_cast<char*>(workspace) + plan.bytes(), kCublasRoom, status));
  const int64_t stays = plan.a_stays ? g.m : g.n, passes = plan.a_stays ? g.n : g.m;
  const int64_t stays_chunk = plan.a_stays ? plan.rows : plan.columns;
  const int64_t passes_chunk = plan.a_stays ? plan.columns : plan.rows;
  const Operand &kept = plan.a_stays ? a : b, &passed = plan.a_stays ? b : a;
  for (int64_t i = 0; i < stays; i += stays_chunk) {
    const int64_t kept_lines = std::min(stays_chunk, stays - i);
    for (int64_t from = 0; from < g.k; from += plan.depth) {
      const int64_t depth = std::min(plan.depth, g.k - from);
      HASTE_TRY(kept.Put(i, kept_lines, from, depth, executor, status));
      for (int64_t j = 0; j < passes; j += passes_chunk) {
        const int64_t passed_lines = std::min(passes_chunk, passes - j);
        HASTE_TRY(passed.Put(j, passed_lines, from, depth, executor, status));
        const int64_t row = plan.a_stays ? i : j, column = plan.a_stays ? j : i;
        product.rows = plan.a_stays ? kept_lines : passed_lines;
        product.columns = plan.a_stays ? passed_lines : kept_lines;
        product.c = static_cast<float*>(g.c) + row * g.c_row + column;
        HASTE_TRY(AddProducts(a, b, product, from > 0 || g.bias != nullptr, cublas, status));
      }
    }
  }
  return HASTE_OK;
}

}  // namespace haste
