// Operations around a recurrence on CUDA: haste_layer_norm, haste_windows, and sums over rows.
// Plain C++: includes nothing of the toolkit. Arguments were checked.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"

namespace haste {

// rows, lanes, features > 0.
int32_t CudaLayerNorm(const HasteLayerNorm& norm, const HasteExecutor& executor,
                      HasteStatus* status);
size_t CudaLayerNormWorkspace(const HasteLayerNormGrad& norm, const HasteExecutor& executor);
int32_t CudaLayerNormGrad(const HasteLayerNormGrad& norm, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status);

int32_t CudaWindows(const HasteWindows& windows, const HasteExecutor& executor,
                    HasteStatus* status);
int32_t CudaWindowsGrad(const HasteWindowsGrad& windows, const HasteExecutor& executor,
                        HasteStatus* status);

// `to` = `from` with recurrent dropout, both of h [N, T, K, H].
int32_t CudaDropHidden(const HasteRnnConfig& config, const int64_t* seed, const void* from,
                       void* to, const HasteExecutor& executor, HasteStatus* status);

// out[c] = Σ_r in[r, c] for in [rows, columns]. The order of the sums is fixed.
int32_t CudaReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                       const HasteExecutor& executor, HasteStatus* status);

}  // namespace haste
