// The `blas` engine of cells that normalise h·R: a step is a product by cuBLAS and a kernel that
// takes its rows. Compiled once for each cell (lib/cuda/cell/engine_table.h).
#include "lib/cuda/blas/steps.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/layer_norm/setup.cuh"

namespace haste {

// Of a product of h·R: its rows, which lie side by side for all lanes.
template <class Rows>
struct BlasRowsEpilogue : Rows {
  using Params = typename Rows::Params;

  static void TakeSums(const HasteRnnConfig& config, Workspace* workspace, Params* p) {
    Rows::TakeWorkspace(config, workspace, p);
    p->sums = p->norm.sums;
    p->sums_stride = p->norm.sums_row;
    p->sums_row = p->K * p->sums_stride;
  }
  static LaunchShape ShapeOf(const Params& p) { return ShapeOfRows(p); }
};
template <class Cell, class P>
struct BlasEpilogue<NormForwardProduct<Cell, NormParams<P>>>
    : BlasRowsEpilogue<NormForwardRows<Cell, P>> {};
template <class Cell, class P>
struct BlasEpilogue<NormBackwardProduct<Cell, NormParams<P>>>
    : BlasRowsEpilogue<NormBackwardRows<Cell, P>> {};

namespace {

template <class Cell, class T>
using NormBlas =
    WalkEngine<Cell, BlasPolicy<NormPhases<NormForwardRows<Cell, BlasForwardParams<T, 1>>>>,
               BlasPolicy<NormPhases<NormBackwardRows<Cell, BlasBackwardParams<T, 1>>>>>;

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(BlasEngine, HASTE_CELL, NAME, NormBlas<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
