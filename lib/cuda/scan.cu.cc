// The `scan` engine on CUDA: cells without a matrix product. Compiled once a cell and dtype:
// HASTE_CELL (QrnnFo), HASTE_DTYPE_NAME (f32), HASTE_T (float).
//
// One kernel walks all steps. A state that is a linear function of the last is walked by
// lib/cuda/scan_linear.cuh, which shares the steps of an element out; any other by
// lib/cuda/scan_kernels.cuh, an element a thread: there a thread's loads cover the latency of
// memory only from about ten thousand elements on.
#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <type_traits>

#include "lib/cuda/cuda.h"
#include "lib/cuda/error.h"
#include "lib/cuda/launch.cuh"
#include "lib/cuda/reduce.cuh"
#include "lib/cuda/scan_kernels.cuh"
#include "lib/cuda/scan_linear.cuh"
#include "lib/engine.h"
#include "lib/workspace.h"

namespace haste {
namespace {

using Cell = HASTE_CELL;
using T = HASTE_T;
using C = Compute<T>;
using Forward = ScanParams<ForwardParams<T>>;
using Backward = ScanParams<BackwardParams<T>>;

template <class Args, class Params>
void Fill(const HasteRnnConfig& config, const Args& args, Params* p) {
  FillRecurrence<Cell, T>(config, args, p);
  p->args = args;
}

// Calls run() for all lanes, as many at once as the parameters of a launch have directions for.
template <class Params, class Run>
int32_t ForLanes(const HasteRnnConfig& config, Params* p, const Run& run) {
  for (p->first_lane = 0; p->first_lane < p->K; p->first_lane += kScanLanes) {
    p->lanes = std::min<int64_t>(kScanLanes, p->K - p->first_lane);
    std::fill(std::begin(p->directions), std::end(p->directions), 0u);
    for (int64_t k = 0; config.reverse != nullptr && k < p->lanes; ++k) {
      if (config.reverse[p->first_lane + k]) p->directions[k / 32] |= 1u << (k % 32);
    }
    const int32_t code = run();
    if (code != HASTE_OK) return code;
  }
  return HASTE_OK;
}

// Whose state is a linear function of the last.
template <class Cell>
struct LinearWalk {
  static size_t WorkspaceBytes(const HasteRnnConfig& config, bool backward) {
    CudaProperties device;
    HasteStatus status;
    // Without a device there is nothing to run on; forward and backward say so.
    if (GetCudaProperties(&device, &status) != HASTE_OK) return 0;
    Workspace count(nullptr);
    if (backward) {
      TakeSpans(config, BackwardKernels<Cell, T>(), device, &count);
    } else {
      TakeSpans(config, ForwardKernels<Cell, T>(), device, &count);
    }
    return count.used();
  }

  static int32_t Run(const HasteRnnConfig& config, Forward* p, void* workspace,
                     const HasteExecutor& executor, HasteStatus* status) {
    return RunKernels(config, ForwardKernels<Cell, T>(), p, workspace, executor, status);
  }
  static int32_t Run(const HasteRnnConfig& config, Backward* p, void* workspace,
                     const HasteExecutor& executor, HasteStatus* status) {
    return RunKernels(config, BackwardKernels<Cell, T>(), p, workspace, executor, status);
  }

 private:
  template <class Params>
  static C* TakeSpans(const HasteRnnConfig& config, const LinearKernels<Params>& kernels,
                      const CudaProperties& device, Workspace* workspace) {
    const int64_t count = SpanCount(PlanOf(config, kernels, device), kernels);
    return count == 0 ? nullptr : workspace->Take<C>(count);
  }

  template <class Params>
  static int32_t RunKernels(const HasteRnnConfig& config, const LinearKernels<Params>& kernels,
                            ScanParams<Params>* p, void* workspace, const HasteExecutor& executor,
                            HasteStatus* status) {
    CudaProperties device;
    const int32_t code = GetCudaProperties(&device, status);
    if (code != HASTE_OK) return code;
    Workspace pieces(workspace);
    p->spans = TakeSpans(config, kernels, device, &pieces);
    const ScanPlan plan = PlanOf(config, kernels, device);
    return ForLanes(config, p, [&] { return WalkLinear(kernels, plan, p, executor, status); });
  }
};

// Any other.
template <class Cell>
struct ElementWalk {
  static size_t WorkspaceBytes(const HasteRnnConfig& config, bool backward) {
    Workspace count(nullptr);
    if (backward) TakePartial(config, &count);
    return count.used();
  }

  static int32_t Run(const HasteRnnConfig& config, Forward* p, void*, const HasteExecutor& executor,
                     HasteStatus* status) {
    return ForLanes(config, p, [&] {
      return LaunchElements<Forward>(ScanForward<Cell, T, true>, ScanForward<Cell, T, false>, *p,
                                     executor, status);
    });
  }
  static int32_t Run(const HasteRnnConfig& config, Backward* p, void* workspace,
                     const HasteExecutor& executor, HasteStatus* status) {
    Workspace pieces(workspace);
    p->partial = TakePartial(config, &pieces);
    const int32_t code = ForLanes(config, p, [&] {
      return LaunchElements<Backward>(ScanBackward<Cell, T, true>, ScanBackward<Cell, T, false>, *p,
                                      executor, status);
    });
    if (code != HASTE_OK || p->partial == nullptr) return code;
    return LaunchSumOverRows<C, T>(p->N, p->K * Cell::kGates * p->H, p->partial, p->args.dR,
                                   executor, status);
  }

 private:
  static C* TakePartial(const HasteRnnConfig& config, Workspace* workspace) {
    if (Cell::kRecurrence != HASTE_DIAGONAL) return nullptr;
    return workspace->Take<C>(config.batch * config.lanes * Cell::kGates * config.hidden);
  }

  template <class Params>
  static int32_t LaunchElements(void (*plain)(const Params), void (*any)(const Params),
                                const Params& p, const HasteExecutor& executor,
                                HasteStatus* status) {
    const int64_t blocks = (p.N * p.lanes * p.H + kScanThreads - 1) / kScanThreads;
    if (blocks > INT32_MAX) {
      return SetStatus(status, HASTE_UNIMPLEMENTED,
                       "batch, lanes, hidden: at most 2^31 - 1 blocks of %d elements, %" PRId64
                       " × %" PRId64 " × %" PRId64 " need %" PRId64,
                       kScanThreads, p.N, p.lanes, p.H, blocks);
    }
    HASTE_CUDA_TRY(Launch(p.mask == nullptr && !p.zoneout ? plain : any, blocks, kScanThreads, 0,
                          false, executor, p),
                   status);
    return HASTE_OK;
  }
};

using Scan = std::conditional_t<Cell::kLinearScan, LinearWalk<Cell>, ElementWalk<Cell>>;

size_t WorkspaceBytes(const HasteRnnConfig& config, bool backward, const HasteExecutor&) {
  // A caller has memory to show for it.
  return std::max<size_t>(Scan::WorkspaceBytes(config, backward), 1);
}

int32_t RunForward(const HasteRnnConfig& config, const HasteRnnForwardArgs& args, void* workspace,
                   const HasteExecutor& executor, HasteStatus* status) {
  Forward p = {};
  Fill(config, args, &p);
  return Scan::Run(config, &p, workspace, executor, status);
}

int32_t RunBackward(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args, void* workspace,
                    const HasteExecutor& executor, HasteStatus* status) {
  Backward p = {};
  Fill(config, args, &p);
  return Scan::Run(config, &p, workspace, executor, status);
}

}  // namespace

#define HASTE_PASTE(cell, dtype) CudaEngine_##cell##_##dtype
#define HASTE_ENGINE_NAME(cell, dtype) HASTE_PASTE(cell, dtype)

extern const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME);
const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME) = {WorkspaceBytes, RunForward,
                                                                RunBackward};

}  // namespace haste
