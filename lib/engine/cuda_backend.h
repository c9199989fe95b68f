// The CUDA half as the rest of the library sees it: a table of functions, which is linked in or
// comes from libhaste_cuda.so. That library is looked up at run time, so the same libhaste.so runs
// on machines with and without it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>

#include "haste/c_api.h"
#include "lib/engine/device_ops.h"
#include "lib/engine/engine.h"
#include "lib/plan/gemm/gemm.h"
#include "lib/plan/plan.h"

namespace haste {

// lib/cuda/host/device.h and lib/cuda/overlap/layer.h document the functions.
struct CudaBackend {
  // Both halves must come from one source tree: another version or another table is refused.
  const char* version;
  size_t table_bytes;

  int32_t toolkit;            // as CUDA counts: 12040 is 12.4
  const char* architectures;  // what device code is compiled for: "75 80 90a compute_90"

  int32_t (*driver_status)(HasteStatus*);
  int32_t (*device_status)(HasteStatus*);
  int32_t (*properties)(CudaProperties*, HasteStatus*);
  // cell, here and below: its index in haste_cell.
  int32_t (*plan)(const HasteRnnConfig&, int cell, bool backward, const HasteExecutor&, PlannedRnn*,
                  HasteStatus*);

  DeviceOps ops;
  // ops.gemm with a plan that is given, so that others can be timed (lib/cuda/gemm/gemm.h).
  int32_t (*planned_gemm)(const HasteGemm&, const ProductPlan&, void* workspace,
                          const HasteExecutor&, HasteStatus*);

  int32_t (*overlapped_input_bytes)(const HasteRnnConfig&, int cell, const PlannedRnn&,
                                    const HasteLayerForwardArgs&, size_t* bytes, HasteStatus*);
  int32_t (*overlapped_gradients_bytes)(const HasteRnnConfig&, int cell, const PlannedRnn&,
                                        const HasteLayerBackwardArgs&, size_t* bytes, HasteStatus*);
  int32_t (*overlapped_layer_forward)(const RnnCall&, int cell, const HasteLayerForwardArgs&,
                                      const HasteRnnForwardArgs&, bool* done, HasteStatus*);
  int32_t (*overlapped_layer_backward)(const RnnCall&, int cell, const HasteLayerBackwardArgs&,
                                       const HasteRnnBackwardArgs&, bool* done, HasteStatus*);
};

// The CUDA half, or nullptr if there is none. Then *why, if given, is a sentence that says why.
// The first call looks it up; see haste_load_cuda.
const CudaBackend* FindCudaBackend(std::string* why = nullptr);

// The same, after CheckDevice has accepted HASTE_CUDA.
inline const CudaBackend& Cuda() { return *FindCudaBackend(); }

// haste_load_cuda.
int32_t LoadCudaBackend(const char* path, HasteStatus*);

// Path of the CUDA half's library; "" if it is linked in or missing.
std::string CudaBackendPath();

}  // namespace haste
