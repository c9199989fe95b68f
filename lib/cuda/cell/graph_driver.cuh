// A walk whose launches differ only in the number of their step. Where the same walk recurs, some
// steps are recorded as a CUDA graph, which is replayed for all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "lib/base/int_math.h"
#include "lib/cuda/cell/walk_setup.cuh"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/graph_cache.h"
#include "lib/cuda/host/launch.cuh"

namespace haste {

static __global__ void SetStep(int64_t* at, int64_t step) { *at = step; }
static __global__ void AddSteps(int64_t* at, int64_t steps) { *at += steps; }

// Steps of a graph: enough to leave the host little to do, few enough to be recorded quickly.
constexpr int64_t kLeastRecorded = 4, kMostRecorded = 32;

// Runs `count` steps from `first` on: launch(from, count, executor, status) launches some of them.
// key: everything that launches depend on except the step and the phases' parameters.
//
// Two steps differ from the others: a first step that has no product, and backward's step -1, which
// ends with the gradients of the initial states.
template <class Direction, class LaunchSteps>
int32_t WalkRecorded(const Phased<Direction>& phased, int64_t first, int64_t count, std::string key,
                     const LaunchSteps& launch, const HasteExecutor& executor,
                     HasteStatus* status) {
  using First = typename Direction::First;
  const auto& p = phased.of[0];
  const int64_t alone_before = First::HasProduct(p, first) ? 0 : 1;
  const int64_t alone_after = std::max<int64_t>(count - p.T_, 0);
  int64_t* const at = p.recorded_at;  // the step that recorded steps count from
  const auto launch_from = [&](int64_t done, int64_t count) -> int32_t {
    if (count <= 0) return HASTE_OK;
    return launch(WalkStep{nullptr, first + done * First::kStride}, count, executor, status);
  };
  const int64_t alike = std::max<int64_t>(count - alone_before - alone_after, 0);
  const int64_t replays = std::max<int64_t>(CeilDiv(alike, kMostRecorded), 1);
  const int64_t of_graph = alike / replays;
  Recorded graph;
  const auto record = [&](const HasteExecutor& recording) {
    HasteStatus unused;
    HASTE_TRY(launch(WalkStep{at, 0}, of_graph, recording, &unused));
    return HASTE_CUDA_STATUS(Launch(AddSteps, {1, 1}, recording, at, of_graph * First::kStride),
                             &unused);
  };
  for (const auto& of_phase : phased.of) key += Recorded::BytesOf(of_phase);
  key += Recorded::BytesOf(of_graph);
  if (of_graph < kLeastRecorded || !graph.Find(key, executor, record)) {
    return launch_from(0, count);
  }
  // The remainder goes first, so that the GPU has work while the graph is launched.
  const int64_t replayed = of_graph * replays;
  const int64_t before = alone_before + alike - replayed;
  HASTE_TRY(launch_from(0, before));
  HASTE_CUDA_TRY(Launch(SetStep, {1, 1}, executor, at, first + before * First::kStride), status);
  for (int64_t i = 0; i < replays; ++i) HASTE_TRY(graph.Replay(executor, status));
  return launch_from(before + replayed, alone_after);
}

}  // namespace haste
