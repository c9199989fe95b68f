// Products of floats by tensor cores, in two parts of scaled float16 (sm_90a).
#ifndef HASTE_LIB_CUDA_SCALED_GEMM_H_
#define HASTE_LIB_CUDA_SCALED_GEMM_H_

#include <stddef.h>

#include "lib/engine.h"
#include "lib/product_plan.h"

namespace haste {

size_t ScaledGemmWorkspace(const ProductPlan& plan);
// c = a·b, or c += a·b with a bias, whose rows are in c. `plan` is scaled.
int32_t ScaledGemm(const HasteGemm& gemm, const ProductPlan& plan, void* workspace,
                   const HasteExecutor& executor, HasteStatus* status);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_SCALED_GEMM_H_
