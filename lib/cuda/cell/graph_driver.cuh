// A walk whose launches differ only in the number of their step. Where the same walk recurs, some
// steps are recorded as a CUDA graph, which is replayed for all of them.
#ifndef HASTE_LIB_CUDA_CELL_GRAPH_DRIVER_CUH_
#define HASTE_LIB_CUDA_CELL_GRAPH_DRIVER_CUH_

#include <algorithm>
#include <cstdint>
#include <string>

#include "lib/base/int_math.h"
#include "lib/cuda/cell/params.cuh"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/graph_cache.h"
#include "lib/cuda/host/launch.cuh"

namespace haste {

static __global__ void SetStep(int64_t* at, int64_t step) { *at = step; }
static __global__ void AddSteps(int64_t* at, int64_t steps) { *at += steps; }

// Steps of a graph: enough to leave the host little to do, few enough to be recorded quickly.
constexpr int64_t kLeastRecorded = 4, kMostRecorded = 32;

// The steps of a call: `count` from `first` on, `stride` apart. `alone_before` steps at the
// beginning and `alone_after` at the end differ from the others.
struct StepRange {
  int64_t first, count;
  int stride;
  int64_t alone_before, alone_after;
};

// For phases (phase_forward.cuh). Two steps differ from the others: a first step that has no
// product, and backward's step -1, which ends with the gradients of the initial states.
template <class Phase>
StepRange StepRangeOf(const typename Phase::Params& p, int64_t first, int64_t count) {
  return {first, count, Phase::kStride, Phase::HasProduct(p, first) ? 0 : 1,
          std::max<int64_t>(count - p.T_, 0)};
}

// launch(from, count, executor, status) launches steps from `from` on. key: everything they depend
// on except the step. at: in the workspace, the step that recorded steps count from.
template <class LaunchSteps>
int32_t WalkRecorded(const StepRange& span, const std::string& key, int64_t* at,
                     const LaunchSteps& launch, const HasteExecutor& executor,
                     HasteStatus* status) {
  const auto launch_from = [&](int64_t done, int64_t count) -> int32_t {
    if (count <= 0) return HASTE_OK;
    return launch(WalkStep{nullptr, span.first + done * span.stride}, count, executor, status);
  };
  const int64_t alike = std::max<int64_t>(span.count - span.alone_before - span.alone_after, 0);
  const int64_t replays = std::max<int64_t>(CeilDiv(alike, kMostRecorded), 1);
  const int64_t of_graph = alike / replays;
  Recorded graph;
  const auto record = [&](const HasteExecutor& recording) {
    HasteStatus unused;
    const int32_t code = launch(WalkStep{at, 0}, of_graph, recording, &unused);
    if (code != HASTE_OK) return code;
    HASTE_CUDA_TRY(Launch(AddSteps, 1, 1, 0, false, recording, at, of_graph * span.stride),
                   &unused);
    return static_cast<int32_t>(HASTE_OK);
  };
  const std::string whole_key = key + Recorded::BytesOf(of_graph) + Recorded::BytesOf(at);
  if (of_graph < kLeastRecorded || !graph.Find(whole_key, executor, record)) {
    return launch_from(0, span.count);
  }
  // The remainder goes first, so that the GPU has work while the graph is launched.
  const int64_t replayed = of_graph * replays;
  const int64_t before = span.alone_before + alike - replayed;
  int32_t code = launch_from(0, before);
  if (code != HASTE_OK) return code;
  HASTE_CUDA_TRY(Launch(SetStep, 1, 1, 0, false, executor, at, span.first + before * span.stride),
                 status);
  for (int64_t i = 0; code == HASTE_OK && i < replays; ++i) code = graph.Replay(executor, status);
  return code != HASTE_OK ? code : launch_from(before + replayed, span.alone_after);
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_CELL_GRAPH_DRIVER_CUH_
