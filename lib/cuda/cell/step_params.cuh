// Parameters of every kernel of the `stepwise` engine, and how it finds one element.
#pragma once

#include "lib/cuda/cell/params.cuh"
#include "lib/plan/engines/stepwise.h"

namespace haste {

// Where an operand A lies, [2, K, depth, rows], padded.
template <class C>
struct OperandPlace {
  C* a;
  int64_t depth, rows;
};

// Passed by value as a kernel parameter.
template <class T>
struct StepParams : WalkParams<T> {
  using C = Compute<T>;
  Tiling tiling;

  // Workspace.
  const T* b;  // [K, unit tile, padded depth, block columns] R, packed
  C* a;        // [2, K, padded depth, padded rows] by parity of the step

  // For cells whose steps have two products (kResetGates): tiling, b and a belong to the current
  // product.
  OperandPlace<C> other;  // operand of the step's other product
};

template <class T>
using ForwardParams = WithArgs<StepParams<T>, HasteRnnForwardArgs>;
template <class T>
using BackwardParams = WithArgs<StepParams<T>, HasteRnnBackwardArgs>;

// The tile of a block: grid.x runs over unit tiles, row tiles and lanes, unit tiles fastest.
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
struct BlockElement : Element {
  int row, unit;  // within the block

  template <class T>
  __device__ BlockElement(const StepParams<T>& p, const BlockPlace& block, int index) {
    row = index / p.tiling.units;
    unit = index % p.tiling.units;
    n = block.row + row;
    k = block.lane;
    j = block.unit + unit;
    exists = row < p.tiling.block_rows() && n < p.N && j < p.H;
    at = (n * p.K + k) * p.H + j;
  }
};

// The beginning of row d, [padded rows], of operand A of a lane.
template <class T>
HASTE_DEVICE Compute<T>* Operand(const StepParams<T>& p, int64_t step, int64_t k, int64_t d) {
  const int64_t lane = (step & 1) * p.K + k;
  return p.a + (lane * p.tiling.padded_depth() + d) * p.tiling.padded_rows();
}

// Where number d of an element's row is: in the operand of `step`, or of its other product.
template <class T>
HASTE_DEVICE void PutOperand(const StepParams<T>& p, int64_t step, const Element& e, int64_t d,
                             Compute<T> value) {
  Operand(p, step, e.k, d)[e.n] = value;
}
template <class T>
HASTE_DEVICE void PutOtherOperand(const StepParams<T>& p, int64_t step, const Element& e, int64_t d,
                                  Compute<T> value) {
  const int64_t lane = (step & 1) * p.K + e.k;
  p.other.a[(lane * p.other.depth + d) * p.other.rows + e.n] = value;
}

}  // namespace haste
