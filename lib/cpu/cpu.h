// The interface of lib/cpu to the rest of the library.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/engine/device_ops.h"
#include "lib/plan/plan.h"

namespace haste {

CpuProperties GetCpuProperties(const HasteExecutor&);

const DeviceOps& CpuOps();

// Its functions. Strides are arbitrary.
int32_t CpuGemm(const HasteGemm&, void* workspace, const HasteExecutor&, HasteStatus*);
// Of bfloat16, by the machine's kernel for it (lib/cpu/narrow): false if there is none.
bool CpuGemmBfloat16(const HasteGemm&, const HasteExecutor&);
// Whether there is one.
bool CpuMultipliesBfloat16();
// With b_scale.
void CpuGemmInt8(const HasteGemm&, void* workspace, const HasteExecutor&);
size_t CpuGemmInt8Workspace(const HasteGemm&);
int32_t CpuReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                      const HasteExecutor&, HasteStatus*);
int32_t CpuLayerNorm(const HasteLayerNorm&, const HasteExecutor&, HasteStatus*);
size_t CpuLayerNormWorkspace(const HasteLayerNormGrad&, const HasteExecutor&);
int32_t CpuLayerNormGrad(const HasteLayerNormGrad&, void* workspace, const HasteExecutor&,
                         HasteStatus*);
int32_t CpuWindows(const HasteWindows&, const HasteExecutor&, HasteStatus*);
int32_t CpuWindowsGrad(const HasteWindowsGrad&, const HasteExecutor&, HasteStatus*);

}  // namespace haste
