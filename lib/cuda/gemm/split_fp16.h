// Products by tensor cores that are our own (sm_90a): of floats in scaled float16, two parts where
// they are exact; beside a walk of TensorFloat-32 and of 16 bits as well.
#ifndef HASTE_LIB_CUDA_GEMM_SPLIT_FP16_H_
#define HASTE_LIB_CUDA_GEMM_SPLIT_FP16_H_

#include <stddef.h>
#include <stdint.h>

#include "lib/engine/engine.h"
#include "lib/plan/gemm.h"

namespace haste {

// `plan`, here and below, is `ours`.
size_t ScaledGemmWorkspace(const HasteGemm&, const ProductPlan& plan);
// Of any dtype but float64; c and the bias are float32.
int32_t ScaledGemm(const ProductChunk&, const ProductPlan& plan, void* workspace,
                   const HasteExecutor& executor, HasteStatus* status);

// A product of PlanOneChunk, of any dtype but float64, whose c is of that and no sum, in several
// calls. The second, and those after it, are one launch of plan.pairs pairs of blocks each, which
// make so many rows of tiles of c in their order, from order.first on.
int32_t PackOneChunk(const ProductChunk&, const ProductPlan& plan, void* workspace,
                     const HasteExecutor& executor, HasteStatus* status);
// begun: null, or a cudaEvent_t, recorded when all blocks are there. ready: of each of the order's
// counts, 0 before, ReadyCount when so many tiles have been stored.
int32_t MultiplyOneChunk(const ProductChunk&, const ProductPlan& plan, void* workspace,
                         const TileOrder& order, int rows, uint32_t* ready, void* begun,
                         const HasteExecutor& executor, HasteStatus* status);
uint32_t ReadyCount(const ProductPlan& plan, int tiles);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_GEMM_SPLIT_FP16_H_
