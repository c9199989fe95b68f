// Memory of a kind of device, and the operations around a recurrence there: a table of functions of
// the CPU, and one of the CUDA half. Arguments were checked: products, rows and windows have sizes
// above 0.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"

namespace haste {

struct DeviceOps {
  // Aligned as haste_allocate promises, or more.
  int32_t (*allocate)(size_t bytes, void** memory, HasteStatus*);
  int32_t (*free)(void* memory, HasteStatus*);
  // `to` = `from`, or 0 if that is NULL.
  int32_t (*copy)(void* to, const void* from, size_t bytes, const HasteExecutor&, HasteStatus*);

  int32_t (*gemm_workspace)(const HasteGemm&, size_t* bytes, HasteStatus*);
  int32_t (*gemm)(const HasteGemm&, void* workspace, const HasteExecutor&, HasteStatus*);
  // out[j] = Σ_row in[row, j].
  int32_t (*reduce_rows)(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                         const HasteExecutor&, HasteStatus*);
  int32_t (*layer_norm)(const HasteLayerNorm&, const HasteExecutor&, HasteStatus*);
  size_t (*layer_norm_workspace)(const HasteLayerNormGrad&, const HasteExecutor&);
  int32_t (*layer_norm_grad)(const HasteLayerNormGrad&, void* workspace, const HasteExecutor&,
                             HasteStatus*);
  int32_t (*windows)(const HasteWindows&, const HasteExecutor&, HasteStatus*);
  int32_t (*windows_grad)(const HasteWindowsGrad&, const HasteExecutor&, HasteStatus*);
};

}  // namespace haste
