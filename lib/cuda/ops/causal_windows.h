// haste_windows on CUDA. Plain C++: includes nothing of the toolkit.
#ifndef HASTE_LIB_CUDA_OPS_CAUSAL_WINDOWS_H_
#define HASTE_LIB_CUDA_OPS_CAUSAL_WINDOWS_H_

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"

namespace haste {

// Arguments were checked.
int32_t CudaWindows(const HasteWindows& windows, const HasteExecutor& executor,
                    HasteStatus* status);
int32_t CudaWindowsGrad(const HasteWindowsGrad& windows, const HasteExecutor& executor,
                        HasteStatus* status);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_OPS_CAUSAL_WINDOWS_H_
