// Additional parameters of kernels for cells that normalise h·R, and the product of one step, which
// leaves plain sums for the kernel that normalises rows of them.
#pragma once

#include "lib/cuda/cell/cell_step.cuh"
#include "lib/cuda/cell/step_params.cuh"
#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/reduce.cuh"

namespace haste {

// Threads of a row's block: as many as units, but at most this many, which leaves each 128
// registers.
constexpr int kMaxRowThreads = 512;

// Indices of the parameters of the normalisations in extra[], in the order of lib/cells/cell.h.
constexpr int kGammaAt = 0, kStateGammaAt = 1, kStateBetaAt = 2;

// Workspace, in compute type. A block of the row kernels owns everything at its index in [N, K].
template <class T>
struct NormWorkspace {
  using C = Compute<T>;
  float epsilon;
  // Sums of the product, [N, K, sums_row], of which [width, H] are used. Forward, width kKept: h·R,
  // then what the cell keeps. Backward, width 1: dq·Rᵀ. Rows are whole pieces of 16 bytes: cuBLAS
  // takes up to twice as long for others.
  C* sums;
  int64_t sums_row;
  C* fresh[HASTE_MAX_STATES];   // forward, kNormalizesState: [N, K, H] states but h, before Zoneout
  C* normed;                    // backward: [N, K, G, H] gradients of the normalised h·R
  C* dextra[HASTE_MAX_EXTRAS];  // backward: [N, K, …] sums over the steps
  // Only where R is stationary: words of RowAllReduce; backward, MomentsOfSteps, and sums over the
  // steps so far [block, AccumulatorsOfBlock].
  uint4* partials;
  float4* moments;
  float4* accumulators;
};

// P: an engine's ForwardParams or BackwardParams.
template <class P>
struct NormParams : P {
  NormWorkspace<typename P::Storage> norm;
};

// The row of a block: a lane of a row of the batch, at one step.
struct NormRow {
  int64_t n, k, index;  // index in [N, K]
  int64_t t, at_step;   // at_step in [N, T, K]
  bool reverse, live;   // never live at step -1

  template <class T>
  __device__ NormRow(const WalkParams<T>& p, int64_t step) : index(blockIdx.x) {
    n = index / p.K;
    k = index % p.K;
    reverse = p.reverse[k] != 0;
    t = TimeOf(p, reverse, step);
    at_step = (n * p.T_ + t) * p.K + k;
    live = step >= 0 && IsLive(p, n, t);
  }

  template <class T>
  __device__ Element Unit(const WalkParams<T>& p, int64_t j) const {
    Element e(p, n, k, j, j < p.H);
    e.at = index * p.H + j;  // the same, from what is known
    return e;
  }
};

// The product of a step, a phase in the sense of lib/cuda/cell/phase_forward.cuh: it leaves its
// sums.
template <class P, class Product, int kWidth>
struct NormProduct : Product {
  using Params = P;
  using T = typename P::Storage;
  using C = Compute<T>;
  static constexpr int kSums = Product::kSums;

  // Everything that belongs to an element is left to the row kernel.
  __device__ void Load(const Params&, const Element&, const StepAt&) {}
  __device__ void LoadCarried(const Params&, const Element&) {}
  static __device__ void Prefetch(const Params&, const Element&, const StepAt&) {}

  __device__ void Step(const Params& p, const Element& e, const StepAt&,
                       const C (&product)[kSums]) const {
    C* to = p.norm.sums + (e.n * p.K + e.k) * p.norm.sums_row + e.j;
    HASTE_UNROLL for (int i = 0; i < kSums; ++i) to[i * p.H] = product[i];
  }
  __device__ void Write(const Params&, const Element&, const StepAt&) const {}
};

// h·R of all gates.
template <class Cell, class P>
struct NormForwardProduct : NormProduct<P, ForwardProduct<Cell, 0, Cell::kGates>, Cell::kKept> {
  static __host__ __device__ bool HasProduct(const P&, int64_t) { return true; }
  static constexpr int kOperandOf = 0;  // steps later
};

// dq·Rᵀ, with the gradients one step later.
template <class Cell, class P>
struct NormBackwardProduct : NormProduct<P, BackwardProduct<Cell, 0, Cell::kGates>, 1> {
  // In the last step of the walk, no later step contributes.
  static __host__ __device__ bool HasProduct(const P& p, int64_t step) { return step != p.T_ - 1; }
  static constexpr int kOperandOf = 1;  // steps later
};

}  // namespace haste
