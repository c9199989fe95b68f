// Sums over rows. Plain C++: includes nothing of the toolkit.
#ifndef HASTE_LIB_CUDA_OPS_REDUCE_ROWS_H_
#define HASTE_LIB_CUDA_OPS_REDUCE_ROWS_H_

#include <stdint.h>

#include "haste/c_api.h"

namespace haste {

// out[c] = Σ_r in[r, c] for in [rows, columns]. The order of the sums is fixed.
int32_t CudaReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                       const HasteExecutor& executor, HasteStatus* status);

}  // namespace haste

#endif  // HASTE_LIB_CUDA_OPS_REDUCE_ROWS_H_
