// What every kernel of the `stepwise` engine is given, and where it finds one element.
#ifndef HASTE_LIB_CUDA_STEPWISE_PARAMS_CUH_
#define HASTE_LIB_CUDA_STEPWISE_PARAMS_CUH_

#include "lib/cells/cells.h"
#include "lib/cuda/storage.cuh"
#include "lib/cuda/tiling.h"
#include "lib/random.h"

namespace haste {

// Where an operand A lies, [2, K, depth, rows], padded.
template <class C>
struct OperandPlace {
  C* a;
  int64_t depth, rows;
};

// By value in kernel parameters. Names of sizes as in haste/c_api.h.
template <class T>
struct StepParams {
  using Storage = T;
  using C = Compute<T>;
  int64_t N, T_, K, H;
  Tiling tiling;
  Activations act;
  bool training, zoneout, zero_output_for_mask;
  float zoneout_rate[HASTE_MAX_STATES];
  float dropout_rate;   // 0 when nothing is dropped
  const uint8_t* mask;  // [N, T] or null
  const int64_t* seed;  // [2], read only where something is drawn

  // Workspace.
  const uint8_t* reverse;        // [K]
  const int64_t* first_live;     // [2, N]: first live step of a forward, of a reverse walk
  const T* b;                    // [K, unit tile, padded depth, block columns] R, packed
  C* a;                          // [2, K, padded depth, padded rows] by parity of the step
  C* carried[HASTE_MAX_STATES];  // [N, K, H] states, or their gradients

  // Of cells whose steps have two products (kResetGates): tiling, b and a are those of the product
  // at hand.
  OperandPlace<C> other;     // what the other product of the step multiplies
  C* made[HASTE_MAX_GATES];  // [N, K, H] forward: gates that the first product has made
};

template <class T>
struct ForwardParams : StepParams<T> {
  HasteRnnForwardArgs args;
};

template <class T>
struct BackwardParams : StepParams<T> {
  HasteRnnBackwardArgs args;
};

// The tile of a block: grid.x runs over unit tiles, row tiles and lanes, units fastest.
struct BlockPlace {
  int64_t lane, unit_tile, row, unit;  // lane, tile, first row of the batch, first hidden unit

  __device__ explicit BlockPlace(const Tiling& tiling) {
    int64_t rest = blockIdx.x;
    unit_tile = rest % tiling.unit_tiles;
    rest /= tiling.unit_tiles;
    row = rest % tiling.row_tiles * tiling.block_rows();
    lane = rest / tiling.row_tiles;
    unit = unit_tile * tiling.units;
  }
};

// Element `index` of a block, units fastest.
struct Element {
  int row, unit;  // within the block
  int64_t n, k, j;
  bool exists;
  int64_t at;  // in [N, K, H]

  Element() = default;
  template <class T>
  __device__ Element(const StepParams<T>& p, const BlockPlace& block, int index) {
    row = index / p.tiling.units;
    unit = index % p.tiling.units;
    n = block.row + row;
    k = block.lane;
    j = block.unit + unit;
    exists = row < p.tiling.block_rows() && n < p.N && j < p.H;
    at = (n * p.K + k) * p.H + j;
  }
};

// Time index of a step of the walk.
template <class T>
__device__ __forceinline__ int64_t TimeOf(const StepParams<T>& p, bool reverse, int64_t step) {
  return reverse ? p.T_ - 1 - step : step;
}

template <class T>
__device__ __forceinline__ bool IsLive(const StepParams<T>& p, int64_t n, int64_t t) {
  return p.mask == nullptr || p.mask[n * p.T_ + t] != 0;
}

// At a masked step: does y repeat the output before it (and is not 0)?
template <class T>
__device__ __forceinline__ bool Repeats(const StepParams<T>& p, bool reverse, int64_t n,
                                        int64_t step) {
  return !p.zero_output_for_mask && step >= p.first_live[(reverse ? p.N : 0) + n];
}

// What h is multiplied by where it enters the product.
template <class T>
__device__ __forceinline__ Compute<T> DropScale(const StepParams<T>& p, const Element& e) {
  if (p.dropout_rate == 0.0f) return 1;
  return DropoutScale(MakePhiloxKey(p.seed), static_cast<uint32_t>(e.n),
                      static_cast<uint32_t>(e.k * p.H + e.j), p.dropout_rate);
}

// share[s]: how much of state s Zoneout takes from the state before; 0 or 1 where it is drawn.
template <int kStates, class T>
__device__ __forceinline__ void ZoneoutShares(const StepParams<T>& p, const Element& e, int64_t t,
                                              Compute<T> (&share)[kStates]) {
  uint32_t word[4];
  if (p.training) {
    Philox(MakePhiloxKey(p.seed), static_cast<uint32_t>(t), static_cast<uint32_t>(e.n),
           static_cast<uint32_t>(e.k * p.H + e.j), kZoneoutStream, word);
  }
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    const float rate = p.zoneout_rate[s];
    share[s] = p.training ? (Draw(word[s], rate) ? 1 : 0) : rate;
  }
}

// Where row d of operand A of a lane begins: [padded rows].
template <class T>
__device__ __forceinline__ Compute<T>* Operand(const StepParams<T>& p, int64_t step, int64_t k,
                                               int64_t d) {
  const int64_t lane = (step & 1) * p.K + k;
  return p.a + (lane * p.tiling.padded_depth() + d) * p.tiling.padded_rows();
}

// The same of the operand of the step's other product.
template <class T>
__device__ __forceinline__ Compute<T>* OtherOperand(const StepParams<T>& p, int64_t step, int64_t k,
                                                    int64_t d) {
  const int64_t lane = (step & 1) * p.K + k;
  return p.other.a + (lane * p.other.depth + d) * p.other.rows;
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_STEPWISE_PARAMS_CUH_
