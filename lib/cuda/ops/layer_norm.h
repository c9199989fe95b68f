// haste_layer_norm on CUDA. Plain C++: includes nothing of the toolkit.
#ifndef HASTE_LIB_CUDA_OPS_LAYER_NORM_H_
#define HASTE_LIB_CUDA_OPS_LAYER_NORM_H_

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"

namespace haste {

// Arguments were checked: rows, lanes, features > 0.
int32_t CudaLayerNorm(const HasteLayerNorm& norm, const HasteExecutor& executor,
                      HasteStatus* status);
size_t CudaLayerNormWorkspace(const HasteLayerNormGrad& norm, const HasteExecutor& executor);
int32_t CudaLayerNormGrad(const HasteLayerNormGrad& norm, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_OPS_LAYER_NORM_H_
