// What an engine is to the rest of the library: functions for one cell and one dtype.
// Each engine's translation units, of a cell and some dtypes each, define the tables that they own.
#ifndef HASTE_LIB_ENGINE_H_
#define HASTE_LIB_ENGINE_H_

#include <stddef.h>
#include <stdint.h>

#include "lib/haste/c_api.h"
#include "lib/plan.h"

// Returns from the function with the code of CALL if that is an error.
#define HASTE_TRY(CALL)                            \
  do {                                             \
    const int32_t haste_code = (CALL);             \
    if (haste_code != HASTE_OK) return haste_code; \
  } while (0)

namespace haste {

// Products at work beside a walk on a GPU, on another stream, part by part.
struct Watch {
  uint32_t* counts = nullptr;  // of each part, 0 before the call; null: there are none
  // Forward: rows of wx of a part, step by step of the walk, not fewer than N. They are there when
  // it counts `wanted`.
  int32_t rows = 0;
  uint32_t wanted = 0;
  // And so many parts further on, where lanes walk both ways, those of the ones that walk
  // backwards: the first of these parts lacks some steps, which are no fraction of it.
  int32_t parts = 0, missing = 0;
  uint32_t wanted_backwards = 0;
  // Backward: a power of two less one, the steps of a part. Each block counts when it has left
  // those, but not after the last part.
  int32_t mask = -1;

  // Forward: calls wait(part, wanted) for each part more that a step reads. steps_there: of so many
  // steps all were waited for; backwards with those that are missing. 0 at first.
  template <class Wait>
  constexpr void Await(int32_t n, bool backwards, int32_t step, int32_t* steps_there,
                       const Wait& wait) const {
    backwards = backwards && parts > 0;
    if (backwards) step += missing;
    while (step >= *steps_there) {
      const int32_t part = (*steps_there * n + rows - 1) / rows;
      wait(part + (backwards ? parts : 0), backwards ? wanted_backwards : wanted);
      *steps_there = (part + 1) * rows / n;
    }
  }
};

struct Engine;

// One direction of a recurrence as it will run. A call makes it once (PlanRnn of lib/registry.h)
// and passes it to whatever depends on it: memory, launches, what runs beside.
struct PlannedRnn {
  bool backward = false;
  Plan plan;
  CudaProperties cuda;  // the GPU that `plan` is for; of the CPU nothing
  const Engine* engine = nullptr;
};

// Arguments were checked before an engine sees them (lib/c_api.cc): N, T, K, H > 0, all
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
  int32_t (*watched_forward)(const HasteRnnConfig&, const PlannedRnn&, const HasteRnnForwardArgs&,
                             void* workspace, const Watch&, const HasteExecutor&,
                             HasteStatus*) = nullptr;
  int32_t (*watched_backward)(const HasteRnnConfig&, const PlannedRnn&, const HasteRnnBackwardArgs&,
                              void* workspace, const Watch&, const HasteExecutor&,
                              HasteStatus*) = nullptr;
};

// No tensor is larger, with 8 bytes an element: sums and paddings of a few of them, which is what
// the engines compute, stay inside 64 bits.
constexpr double kMaxBytes = 1152921504606846976.0;  // 2^60

// Formats a message into `status` and returns `code`.
int32_t SetStatus(HasteStatus* status, int32_t code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// An error that names the argument if `pointer` is NULL.
int32_t CheckPointer(const void* pointer, const char* name, HasteStatus*);

// Names of the dtypes and of the cells, as they stand in symbols: CpuEngine_Lstm_f32 …
#define HASTE_DTYPES(X)        \
  X(f32, float, HASTE_FLOAT32) \
  X(f64, double, HASTE_FLOAT64) X(f16, Half, HASTE_FLOAT16) X(bf16, Bfloat16, HASTE_BFLOAT16)

}  // namespace haste

#endif  // HASTE_LIB_ENGINE_H_
