// The interface of lib/cpu to the rest of the library.
#ifndef HASTE_LIB_CPU_CPU_H_
#define HASTE_LIB_CPU_CPU_H_

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/plan/plan.h"

namespace haste {

CpuProperties GetCpuProperties(const HasteExecutor&);

// Arguments were checked. Strides are arbitrary.
void CpuGemm(const HasteGemm&, const HasteExecutor&);

// out[j] = Σ_row in[row, j].
void CpuReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                   const HasteExecutor&);

// Arguments were checked: rows, lanes, features > 0.
void CpuLayerNorm(const HasteLayerNorm&, const HasteExecutor&);
size_t CpuLayerNormWorkspace(const HasteLayerNormGrad&, const HasteExecutor&);
void CpuLayerNormGrad(const HasteLayerNormGrad&, void* workspace, const HasteExecutor&);

// Arguments were checked.
void CpuWindows(const HasteWindows&, const HasteExecutor&);
void CpuWindowsGrad(const HasteWindowsGrad&, const HasteExecutor&);

}  // namespace haste

#endif  // HASTE_LIB_CPU_CPU_H_
