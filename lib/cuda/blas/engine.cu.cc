// The `blas` engine: products of a step by cuBLAS, and after each one launch of the cell. Compiled
// once for each cell (lib/cuda/cell/engine_table.h).
#include "lib/cuda/blas/steps.cuh"
#include "lib/cuda/cell/engine_table.h"

namespace haste {
namespace {

// 16-bit numbers have two split terms where rounding errors of a step would add up in exponents.
template <class Cell, class T>
constexpr int kOperandsOf = sizeof(T) == 2 && Cell::kExponential ? 2 : 1;

template <class Cell, class T, int kTerms = kOperandsOf<Cell, T>>
using Blas = WalkEngine<Cell, BlasPolicy<ForwardPhases<Cell, BlasForwardParams<T, kTerms>>>,
                        BlasPolicy<BackwardPhases<Cell, BlasBackwardParams<T, kTerms>>>>;

}  // namespace

#define HASTE_ENGINE(NAME, T) HASTE_DEFINE_ENGINE(BlasEngine, HASTE_CELL, NAME, Blas<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
