// The `blas` engine: products of a step by cuBLAS, behind each one launch of the cell. Compiled
// once a cell and dtype: HASTE_CELL (Lstm), HASTE_DTYPE_NAME (f32), HASTE_T (float).
#include "lib/cuda/blas_walk.cuh"

namespace haste {
namespace {

using Cell = HASTE_CELL;
using T = HASTE_T;

// Of 16-bit numbers, where what a step rounds off would add up in exponents, there are two parts.
constexpr int kParts = sizeof(T) == 2 && Cell::kExponential ? 2 : 1;

using Walks = WalkEngine<Cell, BlasMachine<Cell, ForwardPhases<Cell, BlasForwardParams<T, kParts>>>,
                         BlasMachine<Cell, BackwardPhases<Cell, BlasBackwardParams<T, kParts>>>>;

}  // namespace

#define HASTE_PASTE(cell, dtype) BlasEngine_##cell##_##dtype
#define HASTE_ENGINE_NAME(cell, dtype) HASTE_PASTE(cell, dtype)

extern const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME);
const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME) = {Walks::WorkspaceBytes,
                                                                Walks::Forward, Walks::Backward};

}  // namespace haste
