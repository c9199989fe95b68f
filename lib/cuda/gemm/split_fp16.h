// Our own products on tensor cores (sm_90a): for floats in scaled float16, with two split terms if
// they are exact; overlapped with a walk, also for TensorFloat-32 and 16 bits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/engine/engine.h"
#include "lib/plan/gemm/gemm.h"

namespace haste {

// `plan`, here and below, is `ours`.
size_t ScaledGemmWorkspace(const HasteGemm&, const ProductPlan& plan);
// For any dtype but float64; c and the bias are float32.
int32_t ScaledGemm(const ProductChunk&, const ProductPlan& plan, void* workspace,
                   const HasteExecutor& executor, HasteStatus* status);

// A product of PlanOneChunk in several calls. Any dtype but float64; c has the same dtype and is
// not added to. The second call and each later one is one launch of plan.pairs pairs of blocks,
// which compute some rows of tiles of c in their order, from order.first on.
int32_t PackOneChunk(const ProductChunk&, const ProductPlan& plan, void* workspace,
                     const HasteExecutor& executor, HasteStatus* status);
// begun: null, or a cudaEvent_t that is recorded when all blocks have started. ready: tile-ready
// flags, one for each of the order's counts; 0 before, ReadyCount when its tiles have been stored.
int32_t MultiplyOneChunk(const ProductChunk&, const ProductPlan& plan, void* workspace,
                         const TileOrder& order, int rows, uint32_t* ready, void* begun,
                         const HasteExecutor& executor, HasteStatus* status);
uint32_t ReadyCount(const ProductPlan& plan, int tiles);

}  // namespace haste
