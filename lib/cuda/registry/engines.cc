#include "lib/cuda/registry/engines.h"

#include "lib/cells/cells.h"
#include "lib/cells/info.h"
#include "lib/plan/plan.h"

namespace haste {

// As lib/cuda/cell/engine_table.h defines them.
#define HASTE_DECLARE(KIND, CELL, DTYPE) extern const Engine KIND##_##CELL##_##DTYPE;
#define HASTE_DECLARE_TENSOR(KIND, CELL) \
  HASTE_DECLARE(KIND, CELL, f32) HASTE_DECLARE(KIND, CELL, f16) HASTE_DECLARE(KIND, CELL, bf16)
#define HASTE_DECLARE_ALL(KIND, CELL) \
  HASTE_DECLARE_TENSOR(KIND, CELL) HASTE_DECLARE(KIND, CELL, f64)
#define HASTE_DECLARE_CELL(CELL) HASTE_DECLARE_ALL(CudaEngine, CELL)
#define HASTE_DECLARE_DENSE_CELL(CELL) HASTE_DECLARE_ALL(BlasEngine, CELL)
#define HASTE_DECLARE_NORM_CELL(CELL) \
  HASTE_DECLARE(TiledEngine, CELL, bf16) HASTE_DECLARE(TiledEngine, CELL, tf32)
#define HASTE_DECLARE_ON_CHIP(KIND, CELL) \
  HASTE_DECLARE_TENSOR(KIND, CELL) HASTE_DECLARE(KIND, CELL, tf32)
#define HASTE_DECLARE_MATRIX_CELL(CELL) HASTE_DECLARE_ON_CHIP(TiledEngine, CELL)
#define HASTE_DECLARE_ONE_PRODUCT_CELL(CELL) \
  HASTE_DECLARE_ON_CHIP(PersistentEngine, CELL) HASTE_DECLARE_ON_CHIP(BlockEngine, CELL)
HASTE_CELLS(HASTE_DECLARE_CELL)
HASTE_MATRIX_CELLS(HASTE_DECLARE_DENSE_CELL)
HASTE_NORM_CELLS(HASTE_DECLARE_DENSE_CELL)
HASTE_MATRIX_CELLS(HASTE_DECLARE_MATRIX_CELL)
HASTE_NORM_CELLS(HASTE_DECLARE_NORM_CELL)
HASTE_ONE_PRODUCT_CELLS(HASTE_DECLARE_ONE_PRODUCT_CELL)

namespace {

#define HASTE_ENGINES(ENGINE, CELL) \
  {&ENGINE##_##CELL##_f32, &ENGINE##_##CELL##_f64, &ENGINE##_##CELL##_f16, &ENGINE##_##CELL##_bf16}
// Products of tensor cores: not in float64.
#define HASTE_TENSOR_ENGINES(ENGINE, CELL)                                           \
  {&ENGINE##_##CELL##_f32, nullptr, &ENGINE##_##CELL##_f16, &ENGINE##_##CELL##_bf16, \
   &ENGINE##_##CELL##_tf32}
#define HASTE_WIDE_RANGE_ENGINES(ENGINE, CELL) \
  {nullptr, nullptr, nullptr, &ENGINE##_##CELL##_bf16, &ENGINE##_##CELL##_tf32}
#define HASTE_NO_ENGINES(ENGINE, CELL) \
  {                                    \
  }
#define HASTE_ENTRY(CELL, ON_CHIP, TILED, BLAS)                                                  \
  {CellInfo<CELL>(),           HASTE_ENGINES(CudaEngine, CELL), ON_CHIP(PersistentEngine, CELL), \
   ON_CHIP(BlockEngine, CELL), TILED(TiledEngine, CELL),        BLAS(BlasEngine, CELL)},
#define HASTE_ONE_PRODUCT_CELL_ENTRY(CELL) \
  HASTE_ENTRY(CELL, HASTE_TENSOR_ENGINES, HASTE_TENSOR_ENGINES, HASTE_ENGINES)
#define HASTE_TWO_PRODUCT_CELL_ENTRY(CELL) \
  HASTE_ENTRY(CELL, HASTE_NO_ENGINES, HASTE_TENSOR_ENGINES, HASTE_ENGINES)
#define HASTE_NORM_CELL_ENTRY(CELL) \
  HASTE_ENTRY(CELL, HASTE_NO_ENGINES, HASTE_WIDE_RANGE_ENGINES, HASTE_ENGINES)
#define HASTE_SCAN_CELL_ENTRY(CELL) \
  HASTE_ENTRY(CELL, HASTE_NO_ENGINES, HASTE_NO_ENGINES, HASTE_NO_ENGINES)
// In the order of lib/api/registry.cc.
constexpr CudaCell kCells[] = {HASTE_ONE_PRODUCT_CELLS(HASTE_ONE_PRODUCT_CELL_ENTRY)
                                   HASTE_TWO_PRODUCT_CELLS(HASTE_TWO_PRODUCT_CELL_ENTRY)
                                       HASTE_NORM_CELLS(HASTE_NORM_CELL_ENTRY)
                                           HASTE_SCAN_CELLS(HASTE_SCAN_CELL_ENTRY)};

}  // namespace

const CudaCell& CudaCellAt(int cell) { return kCells[cell]; }

const Engine* EngineOf(const HasteRnnConfig& config, const CudaCell& cell, const Plan& plan) {
  const bool relaxed = config.dtype == HASTE_FLOAT32 && config.allow_tf32;
  const int form = relaxed ? kTensorFloatForm : config.dtype;
  switch (plan.engine) {
    case EngineKind::kCluster:
    case EngineKind::kGrid: return cell.persistent[form];
    case EngineKind::kBlock: return cell.block[form];
    case EngineKind::kTiled: return cell.tiled[form];
    case EngineKind::kBlas: return cell.blas[config.dtype];
    default: return cell.any_size[config.dtype];
  }
}

}  // namespace haste
