// The interface of an engine: functions for one cell and one dtype.
// Each translation unit of an engine covers a cell and some dtypes, and defines the tables of
// these.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"
#include "lib/base/status.h"
#include "lib/plan/overlap.h"
#include "lib/plan/plan.h"

namespace haste {

struct Engine;

// The plan of one direction of a recurrence. A call makes it once (PlanRnn of lib/api/registry.h)
// and passes it on. Workspace sizes, launches and overlapped products depend on it.
struct PlannedRnn {
  bool backward = false;
  Plan plan;
  CudaProperties cuda;  // the GPU that `plan` is for; unused on the CPU
  const Engine* engine = nullptr;
};

// A call with its plan, but for the tensors.
struct RnnCall {
  const HasteRnnConfig& config;
  const PlannedRnn& planned;
  void* workspace;
  const HasteExecutor& executor;
};

// Arguments were checked before (lib/api/c_api.cc): N, T, K, H > 0, all required pointers set,
// rates in range.
struct Engine {
  size_t (*workspace_bytes)(const HasteRnnConfig&, const PlannedRnn&);
  int32_t (*forward)(const RnnCall&, const HasteRnnForwardArgs&, HasteStatus*);
  int32_t (*backward)(const RnnCall&, const HasteRnnBackwardArgs&, HasteStatus*);
  // If not nullptr, layer_forward computes x·W + b itself and does not read args.wx.
  size_t (*layer_workspace_bytes)(const HasteRnnConfig&, const PlannedRnn&,
                                  const HasteLayerForwardArgs&) = nullptr;
  int32_t (*layer_forward)(const RnnCall&, const HasteLayerForwardArgs&, const HasteRnnForwardArgs&,
                           HasteStatus*) = nullptr;
  // If not nullptr, forward and backward that run while products do.
  int32_t (*overlapped_forward)(const RnnCall&, const HasteRnnForwardArgs&, const OverlapFlags&,
                                HasteStatus*) = nullptr;
  int32_t (*overlapped_backward)(const RnnCall&, const HasteRnnBackwardArgs&, const OverlapFlags&,
                                 HasteStatus*) = nullptr;
};

}  // namespace haste
