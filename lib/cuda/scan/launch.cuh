// Host side of the linear scans: which kernel, how many blocks, how much memory.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <initializer_list>

#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/scan/linear_backward.cuh"
#include "lib/cuda/scan/linear_forward.cuh"
#include "lib/engine/engine.h"

namespace haste {

template <class Params>
using ScanKernel = void (*)(const ScanParams<Params>);

// The kernels of a direction, by kWide.
template <class Params>
struct LinearKernels {
  ScanKernel<Params> plain[2], any[2], summaries[2];
  int64_t tile_steps, tile_bytes, warp_bytes;
  int summary_values;
};

template <class Cell, class T>
LinearKernels<ForwardParams<T>> ForwardKernels() {
  using Tiles = LinearForwardTiles<Cell, T, true>;
  return {{LinearForward<Cell, T, true, false, false>, LinearForward<Cell, T, true, true, false>},
          {LinearForward<Cell, T, false, false, false>, LinearForward<Cell, T, false, true, false>},
          {LinearForward<Cell, T, false, false, true>, LinearForward<Cell, T, false, true, true>},
          Tiles::In::kSteps,
          sizeof(typename Tiles::In::Tile),
          sizeof(Tiles),
          kForwardSummary};
}
template <class Cell, class T>
LinearKernels<BackwardParams<T>> BackwardKernels() {
  using Tiles = LinearBackwardTiles<Cell, T, true>;
  return {
      {LinearBackward<Cell, T, true, false, false>, LinearBackward<Cell, T, true, true, false>},
      {LinearBackward<Cell, T, false, false, false>, LinearBackward<Cell, T, false, true, false>},
      {LinearBackward<Cell, T, false, false, true>, LinearBackward<Cell, T, false, true, true>},
      Tiles::In::kSteps,
      sizeof(typename Tiles::In::Tile),
      sizeof(Tiles),
      kBackwardSummary};
}

template <class Params>
ScanPlan PlanOf(const HasteRnnConfig& config, const LinearKernels<Params>& kernels,
                const CudaProperties& device) {
  ScanSizes sizes;
  sizes.elements = config.batch * std::min<int64_t>(config.lanes, kScanLanes) * config.hidden;
  sizes.time = config.time;
  sizes.tile_steps = kernels.tile_steps;
  sizes.tile_bytes = kernels.tile_bytes;
  sizes.warp_bytes = kernels.warp_bytes;
  sizes.shared_bytes = CarryBytes<typename Params::C>(kernels.summary_values);
  return PlanLinearScan(sizes, device);
}

// Elements of p.summaries; 0 if there is only one chunk.
template <class Params>
int64_t SummaryCount(const ScanPlan& plan, const LinearKernels<Params>& kernels) {
  return plan.chunks == 1 ? 0 : plan.blocks() * kernels.summary_values * kScanWidth;
}

// Can rows be read and written in pieces of 16 bytes?
inline bool AreWide(int64_t row_bytes, std::initializer_list<const void*> tensors) {
  uintptr_t bits = static_cast<uintptr_t>(row_bytes);
  for (const void* tensor : tensors) bits |= reinterpret_cast<uintptr_t>(tensor);
  return bits % 16 == 0;
}
template <class T>
bool IsWide(const ScanParams<ForwardParams<T>>& p) {
  const HasteRnnForwardArgs& a = p.args;
  return AreWide(p.H * sizeof(T), {a.wx, a.x[0], a.x[1], a.x[2], a.x[3], a.y, a.gates, a.saved[0]});
}
template <class T>
bool IsWide(const ScanParams<BackwardParams<T>>& p) {
  const HasteRnnBackwardArgs& a = p.args;
  return AreWide(p.H * sizeof(T), {a.gates, a.x[0], a.x[1], a.x[2], a.x[3], a.saved[0], a.dy, a.dwx,
                                   a.dx[0], a.dx[1], a.dx[2], a.dx[3]});
}

template <class Params>
int32_t LaunchLinear(ScanKernel<Params> kernel, const ScanPlan& plan, size_t shared_bytes,
                     bool overlap, const ScanParams<Params>& p, const HasteExecutor& executor,
                     HasteStatus* status) {
  if (shared_bytes > 48 << 10) {  // more than the default limit of a kernel
    HASTE_CUDA_TRY(AllowSharedMemory(kernel), status);
  }
  return HASTE_CUDA_STATUS(
      Launch(kernel, {plan.blocks(), plan.warps * kScanWidth, shared_bytes, 1, false, overlap},
             executor, p),
      status);
}

// Walks the lanes of p: one kernel, or two where time is cut into chunks.
template <class Params>
int32_t WalkLinear(const LinearKernels<Params>& kernels, ScanPlan plan, ScanParams<Params>* p,
                   const HasteExecutor& executor, HasteStatus* status) {
  plan.units = CeilDiv(p->N * p->lanes * p->H, kScanWidth);
  if (p->T_ > kMaxScanSteps) {
    return SetStatus(status, HASTE_UNIMPLEMENTED, "time: expected at most %d steps, got %" PRId64,
                     kMaxScanSteps, p->T_);
  }
  HASTE_TRY(CheckBlocks(plan.blocks(), "batch, lanes, hidden", status));
  p->units = plan.units;
  p->chunk_steps = plan.chunk_steps;
  const bool wide = IsWide(*p), chunked = plan.chunks > 1;
  const size_t shared_bytes =
      plan.warps * kernels.warp_bytes + CarryBytes<typename Params::C>(kernels.summary_values);
  if (chunked) {
    HASTE_TRY(
        LaunchLinear(kernels.summaries[wide], plan, shared_bytes, false, *p, executor, status));
  }
  const auto& walk = p->mask == nullptr && !p->zoneout ? kernels.plain : kernels.any;
  return LaunchLinear(walk[wide], plan, shared_bytes, chunked, *p, executor, status);
}

}  // namespace haste
