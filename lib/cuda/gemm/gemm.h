// Products of any strides: our own where they are the fastest, else those of cuBLAS. Plain C++:
// includes nothing of the toolkit.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/plan/gemm/gemm.h"

namespace haste {

// c = a·b + bias, m, n > 0. Any strides of a and b; accumulates in float (double for double).
int32_t CudaGemmWorkspace(const HasteGemm& gemm, size_t* bytes, HasteStatus* status);
int32_t CudaGemm(const HasteGemm& gemm, void* workspace, const HasteExecutor& executor,
                 HasteStatus* status);
// The same with a given plan, whose workspace is ScaledGemmWorkspace; c is float32 if it is `ours`.
int32_t CudaPlannedGemm(const HasteGemm& gemm, const ProductPlan& plan, void* workspace,
                        const HasteExecutor& executor, HasteStatus* status);

// Of a part of a product (lib/plan/gemm/gemm.h) that takes no more bytes than `most`. What is no
// exact float of compute capability 9.0, and no sum in float32, is cuBLAS's, which must be there,
// and has no runs of depths and nothing more.
int32_t CudaProductChunkWorkspace(const ProductChunk& part, int64_t most, size_t* bytes,
                                  HasteStatus* status);
int32_t CudaProductChunk(const ProductChunk& part, int64_t most, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status);

}  // namespace haste
