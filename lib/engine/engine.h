// What an engine is to the rest of the library: functions for one cell and one dtype.
// Each engine's translation units, of a cell and some dtypes each, define the tables that they own.
#ifndef HASTE_LIB_ENGINE_ENGINE_H_
#define HASTE_LIB_ENGINE_ENGINE_H_

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/base/status.h"
#include "lib/plan/overlap.h"
#include "lib/plan/plan.h"

namespace haste {

struct Engine;

// One direction of a recurrence as it will run. A call makes it once (PlanRnn of
// lib/api/registry.h) and passes it to whatever depends on it: memory, launches, what runs beside.
struct PlannedRnn {
  bool backward = false;
  Plan plan;
  CudaProperties cuda;  // the GPU that `plan` is for; of the CPU nothing
  const Engine* engine = nullptr;
};

// Arguments were checked before an engine sees them (lib/api/c_api.cc): N, T, K, H > 0, all
// required pointers set, rates in range.
struct Engine {
  size_t (*workspace_bytes)(const HasteRnnConfig&, const PlannedRnn&);
  int32_t (*forward)(const HasteRnnConfig&, const PlannedRnn&, const HasteRnnForwardArgs&,
                     void* workspace, const HasteExecutor&, HasteStatus*);
  int32_t (*backward)(const HasteRnnConfig&, const PlannedRnn&, const HasteRnnBackwardArgs&,
                      void* workspace, const HasteExecutor&, HasteStatus*);
  // nullptr, or: layer_forward forms x·W + b of layer itself and does not read args.wx.
  size_t (*layer_workspace_bytes)(const HasteRnnConfig&, const PlannedRnn&,
                                  const HasteLayerForwardArgs&) = nullptr;
  int32_t (*layer_forward)(const HasteRnnConfig&, const PlannedRnn&, const HasteLayerForwardArgs&,
                           const HasteRnnForwardArgs&, void* workspace, const HasteExecutor&,
                           HasteStatus*) = nullptr;
  // nullptr, or forward and backward beside products.
  int32_t (*overlapped_forward)(const HasteRnnConfig&, const PlannedRnn&,
                                const HasteRnnForwardArgs&, void* workspace, const OverlapFlags&,
                                const HasteExecutor&, HasteStatus*) = nullptr;
  int32_t (*overlapped_backward)(const HasteRnnConfig&, const PlannedRnn&,
                                 const HasteRnnBackwardArgs&, void* workspace, const OverlapFlags&,
                                 const HasteExecutor&, HasteStatus*) = nullptr;
};

}  // namespace haste

#endif  // HASTE_LIB_ENGINE_ENGINE_H_
