// The engines of each cell on a GPU.
#pragma once

#include <stdint.h>

#include "haste/c_api.h"
#include "lib/engine/engine.h"

namespace haste {

// Engines in the order of HasteDtype. Engines with five entries have one more for float32 where
// TensorFloat-32 is allowed.
constexpr int kTensorFloatForm = 4;
struct CudaCell {
  HasteCellInfo info;
  const Engine* any_size[4];    // `stepwise` or `scan`
  const Engine* persistent[5];  // `cluster` and `grid`; here and below null where it never runs
  const Engine* block[5];
  const Engine* tiled[5];
  const Engine* blas[4];
};

// cell: the cell's index in haste_cell.
const CudaCell& CudaCellAt(int cell);

// The engine that runs a plan.
const Engine* EngineOf(const HasteRnnConfig&, const CudaCell&, const Plan&);

// PlanRnn of lib/api/registry.h, on a GPU. Plans are cached, so a repeated call does not plan
// again.
int32_t PlanCudaRnn(const HasteRnnConfig&, const CudaCell&, bool backward, const HasteExecutor&,
                    PlannedRnn*, HasteStatus*);

}  // namespace haste
