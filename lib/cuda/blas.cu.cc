// The `blas` engine: products of a step by cuBLAS, behind each one launch of the cell. Compiled
// once a cell: HASTE_CELL (Lstm).
#include "lib/cuda/blas_walk.cuh"

namespace haste {
namespace {

using Cell = HASTE_CELL;

// Of 16-bit numbers, where what a step rounds off would add up in exponents, there are two parts.
template <class T>
constexpr int kParts = sizeof(T) == 2 && Cell::kExponential ? 2 : 1;

template <class T>
using Walks =
    WalkEngine<Cell, BlasMachine<Cell, ForwardPhases<Cell, BlasForwardParams<T, kParts<T>>>>,
               BlasMachine<Cell, BackwardPhases<Cell, BlasBackwardParams<T, kParts<T>>>>>;

}  // namespace

HASTE_BLAS_ENGINES(HASTE_CELL, Walks)

}  // namespace haste
