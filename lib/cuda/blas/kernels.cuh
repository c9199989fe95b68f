// The kernels of the `blas` engine around the products of cuBLAS, once a call and once a step.
#pragma once

#include "lib/cuda/cell/phase_backward.cuh"
#include "lib/cuda/cell/phase_forward.cuh"
#include "lib/cuda/cell/prepare.cuh"
#include "lib/plan/engines/blas.h"

namespace haste {

// The operand that R is multiplied by, [split term, K, split, N, depth of a split]. Padding is 0.
template <class T>
struct BlasOperand {
  T* a;
  int64_t part;  // elements of a split term
  int splits;
  uint32_t depth;
};

// Passed by value as a kernel parameter. kOfOperand: split terms of the operand.
template <class T, int kOfOperand>
struct BlasParams : WalkParams<T> {
  using C = Compute<T>;
  static constexpr int kTerms = kOfOperand;

  // Workspace.
  BlasTiling tiling;
  const T* kernel;  // [K, split, columns, depth of a split] R, padded
  C* sums;          // [K, split, N, …]: products sums_stride apart, rows sums_row apart
  int64_t sums_stride, sums_row;
  // For cells whose steps have two products (kResetGates): tiling, kernel, sums and operand belong
  // to the current product.
  BlasOperand<T> operand, other;
};
template <class T, int kOfOperand>
using BlasForwardParams = WithArgs<BlasParams<T, kOfOperand>, HasteRnnForwardArgs>;
template <class T, int kOfOperand>
using BlasBackwardParams = WithArgs<BlasParams<T, kOfOperand>, HasteRnnBackwardArgs>;

// There is one operand at a time: a product has read it before the cell writes the next.
template <class T, int kOfOperand>
HASTE_DEVICE void PutBlas(const BlasParams<T, kOfOperand>& p, const BlasOperand<T>& operand,
                          const Element& e, int64_t d, Compute<T> value) {
  const uint32_t split = static_cast<uint32_t>(d) / operand.depth;
  T* to = operand.a + ((e.k * operand.splits + split) * p.N + e.n) * operand.depth +
          (static_cast<uint32_t>(d) - split * operand.depth);
  const T first = *to = FromCompute<T>(value);
  if constexpr (kOfOperand == 2) {
    // The first split term of infinity or NaN is the number itself.
    const Compute<T> rest = value - ToCompute(first);
    to[operand.part] = FromCompute<T>(isfinite(rest) ? rest : 0);
  }
}
template <class T, int kOfOperand>
HASTE_DEVICE void PutOperand(const BlasParams<T, kOfOperand>& p, int64_t, const Element& e,
                             int64_t d, Compute<T> value) {
  PutBlas(p, p.operand, e, d, value);
}
template <class T, int kOfOperand>
HASTE_DEVICE void PutOtherOperand(const BlasParams<T, kOfOperand>& p, int64_t, const Element& e,
                                  int64_t d, Compute<T> value) {
  PutBlas(p, p.other, e, d, value);
}

// A square tile of R, which forward transposes.
constexpr int kPackTile = 32, kPackRows = 8;

// to[k, split, column, depth of a split]. A block of kPackTile × kPackRows threads packs one tile.
template <class Phase>
__global__ void PackBlas(const BlasTiling tiling, int64_t K, int64_t H,
                         const typename Phase::Params::Storage* __restrict__ r,
                         typename Phase::Params::Storage* __restrict__ to) {
  using T = typename Phase::Params::Storage;
  __shared__ T tile[kPackTile][kPackTile + 1];
  const int64_t columns = Phase::kSums * H, depth = Phase::kDepth * H;
  const int64_t across = CeilDiv(tiling.depth, kPackTile);
  const int64_t down = CeilDiv(tiling.columns, kPackTile);
  const int x = threadIdx.x % kPackTile, y = threadIdx.x / kPackTile;
  for (int64_t at = blockIdx.x; at < K * tiling.splits * across * down; at += gridDim.x) {
    const int64_t in_split = at % across * kPackTile, c0 = at / across % down * kPackTile;
    const int64_t matrix = at / across / down, k = matrix / tiling.splits;
    const int64_t d0 = matrix % tiling.splits * tiling.depth + in_split;
    // Of R, along its rows: depth forward, hidden units backward.
    const int64_t row = (Phase::kBackward ? c0 : d0) + y, in_row = (Phase::kBackward ? d0 : c0) + x;
    const T* from = r + ((k * H + row) * Phase::kAllGates + Phase::kBefore) * H + in_row;
    const bool inside = in_row < (Phase::kBackward ? depth : columns);
    HASTE_UNROLL for (int i = 0; i < kPackTile; i += kPackRows) {
      tile[y + i][x] = inside && row + i < H ? from[i * Phase::kAllGates * H] : FromCompute<T>(0);
    }
    __syncthreads();
    T* into = to + (matrix * tiling.columns + c0 + y) * tiling.depth + in_split + x;
    HASTE_UNROLL for (int i = 0; i < kPackTile; i += kPackRows) {
      if (in_split + x < tiling.depth && c0 + y + i < tiling.columns) {
        into[i * tiling.depth] = Phase::kBackward ? tile[y + i][x] : tile[x][y + i];
      }
    }
    __syncthreads();
  }
}

constexpr int kBlasThreads = 128;

// The cell of one step, after its product: a thread has one element. Before WaitForPreviousKernel
// a kernel reads only what no step writes and, in a tensor that is overwritten in place, its own
// time step.
template <class Phase>
__global__ void __launch_bounds__(kBlasThreads)
    BlasElements(const __grid_constant__ typename Phase::Params p, const WalkStep of) {
  using C = typename Phase::Params::C;
  const uint32_t blocks_of_row = static_cast<uint32_t>(CeilDiv(p.H, kBlasThreads));
  const uint32_t row = blockIdx.x / blocks_of_row;
  Element e;
  e.n = row / static_cast<uint32_t>(p.K);
  e.k = row % static_cast<uint32_t>(p.K);
  e.j = (blockIdx.x % blocks_of_row) * kBlasThreads + threadIdx.x;
  e.exists = e.j < p.H;
  if (!e.exists) return;
  e.at = static_cast<int64_t>(row) * p.H + e.j;
  const int64_t step = of.Get();
  const StepAt at(p, e, Phase::kAllGates, p.reverse[e.k] != 0, step);
  Phase phase;
  phase.Load(p, e, at);
  WaitForPreviousKernel();
  LetNextKernelStart();
  phase.LoadCarried(p, e);
  C product[Phase::kSums] = {};
  if (Phase::HasProduct(p, step)) {
    const C* from = p.sums + e.k * p.tiling.splits * p.sums_stride + e.n * p.sums_row + e.j;
    for (int split = 0; split < p.tiling.splits; ++split, from += p.sums_stride) {
      HASTE_UNROLL for (int i = 0; i < Phase::kSums; ++i) product[i] += from[i * p.H];
    }
  }
  phase.Step(p, e, at, product);
  phase.Write(p, e, at);
}

}  // namespace haste
