// Products of floats by tensor cores, in three bfloat16 parts.
#ifndef HASTE_LIB_CUDA_PARTS_GEMM_H_
#define HASTE_LIB_CUDA_PARTS_GEMM_H_

#include <stddef.h>

#include "lib/engine.h"
#include "lib/product_plan.h"

namespace haste {

size_t PartsGemmWorkspace(const ProductPlan& plan);
// c = a·b, or c += a·b with a bias, whose rows are in c. `plan` is by_parts.
int32_t PartsGemm(const HasteGemm& gemm, const ProductPlan& plan, void* workspace,
                  const HasteExecutor& executor, HasteStatus* status);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_PARTS_GEMM_H_
