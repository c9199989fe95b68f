// The `scan` engine on CUDA: cells without a matrix product. Compiled once for each cell and group
// of dtypes (lib/cuda/cell/engine_table.h).
//
// One kernel walks all steps. If the state is a linear function of the previous state, the walk is
// lib/cuda/scan/launch.cuh, which divides the steps of an element among warps. Otherwise it is
// lib/cuda/scan/sequential.cuh, with one element a thread. There, loads cover the latency of memory
// only from about ten thousand elements on.
#include "lib/engine/engine.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <type_traits>

#include "lib/base/workspace.h"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/host/device.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ptx/reduce.cuh"
#include "lib/cuda/scan/launch.cuh"
#include "lib/cuda/scan/sequential.cuh"

namespace haste {
namespace {

// Calls run() for all lanes, each time for as many as a launch's parameters have directions for.
template <class Params, class Run>
int32_t ForLanes(const HasteRnnConfig& config, Params* p, const Run& run) {
  for (p->first_lane = 0; p->first_lane < p->K; p->first_lane += kScanLanes) {
    p->lanes = std::min<int64_t>(kScanLanes, p->K - p->first_lane);
    std::fill(std::begin(p->directions), std::end(p->directions), 0u);
    FillDirections(config, p->first_lane, p->lanes, p->directions);
    HASTE_TRY(run());
  }
  return HASTE_OK;
}

// Cells whose state is a linear function of the previous one.
template <class Cell, class T>
struct LinearWalk {
  using C = Compute<T>;
  using ForwardParams = ScanParams<haste::ForwardParams<T>>;
  using BackwardParams = ScanParams<haste::BackwardParams<T>>;

  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    Workspace count(nullptr);
    if (planned.backward) {
      TakeSummaries(config, BackwardKernels<Cell, T>(), planned.cuda, &count);
    } else {
      TakeSummaries(config, ForwardKernels<Cell, T>(), planned.cuda, &count);
    }
    return count.used();
  }

  static int32_t Run(const HasteRnnConfig& config, const CudaProperties& device, ForwardParams* p,
                     void* workspace, const HasteExecutor& executor, HasteStatus* status) {
    return RunKernels(config, ForwardKernels<Cell, T>(), device, p, workspace, executor, status);
  }
  static int32_t Run(const HasteRnnConfig& config, const CudaProperties& device, BackwardParams* p,
                     void* workspace, const HasteExecutor& executor, HasteStatus* status) {
    return RunKernels(config, BackwardKernels<Cell, T>(), device, p, workspace, executor, status);
  }

 private:
  template <class Params>
  static C* TakeSummaries(const HasteRnnConfig& config, const LinearKernels<Params>& kernels,
                          const CudaProperties& device, Workspace* workspace) {
    const int64_t count = SummaryCount(PlanOf(config, kernels, device), kernels);
    return count == 0 ? nullptr : workspace->Take<C>(count);
  }

  template <class Params>
  static int32_t RunKernels(const HasteRnnConfig& config, const LinearKernels<Params>& kernels,
                            const CudaProperties& device, ScanParams<Params>* p, void* workspace,
                            const HasteExecutor& executor, HasteStatus* status) {
    Workspace pieces(workspace);
    p->summaries = TakeSummaries(config, kernels, device, &pieces);
    const ScanPlan plan = PlanOf(config, kernels, device);
    return ForLanes(config, p, [&] { return WalkLinear(kernels, plan, p, executor, status); });
  }
};

// Other cells.
template <class Cell, class T>
struct ElementWalk {
  using C = Compute<T>;
  using ForwardParams = ScanParams<haste::ForwardParams<T>>;
  using BackwardParams = ScanParams<haste::BackwardParams<T>>;

  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    Workspace count(nullptr);
    if (planned.backward) TakePartial(config, &count);
    return count.used();
  }

  static int32_t Run(const HasteRnnConfig& config, const CudaProperties&, ForwardParams* p, void*,
                     const HasteExecutor& executor, HasteStatus* status) {
    return ForLanes(config, p, [&] {
      return LaunchElements<ForwardParams>(ScanForward<Cell, T, true>, ScanForward<Cell, T, false>,
                                           *p, executor, status);
    });
  }
  static int32_t Run(const HasteRnnConfig& config, const CudaProperties&, BackwardParams* p,
                     void* workspace, const HasteExecutor& executor, HasteStatus* status) {
    Workspace pieces(workspace);
    p->partial = TakePartial(config, &pieces);
    const int32_t code = ForLanes(config, p, [&] {
      return LaunchElements<BackwardParams>(ScanBackward<Cell, T, true>,
                                            ScanBackward<Cell, T, false>, *p, executor, status);
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
    const int64_t blocks = CeilDiv(p.N * p.lanes * p.H, kScanThreads);
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

template <class Cell, class T>
class Scan {
  using Walk = std::conditional_t<Cell::kLinearScan, LinearWalk<Cell, T>, ElementWalk<Cell, T>>;

  template <class Params, class Args>
  static int32_t Run(const HasteRnnConfig& config, const CudaProperties& device, const Args& args,
                     void* workspace, const HasteExecutor& executor, HasteStatus* status) {
    Params p = {};
    FillRecurrence<Cell, T>(config, args, &p);
    p.args = args;
    return Walk::Run(config, device, &p, workspace, executor, status);
  }

 public:
  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    // At least 1, so that the caller has memory to pass.
    return std::max<size_t>(Walk::WorkspaceBytes(config, planned), 1);
  }
  static int32_t Forward(const HasteRnnConfig& config, const PlannedRnn& planned,
                         const HasteRnnForwardArgs& args, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status) {
    return Run<typename Walk::ForwardParams>(config, planned.cuda, args, workspace, executor,
                                             status);
  }
  static int32_t Backward(const HasteRnnConfig& config, const PlannedRnn& planned,
                          const HasteRnnBackwardArgs& args, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status) {
    return Run<typename Walk::BackwardParams>(config, planned.cuda, args, workspace, executor,
                                              status);
  }
};

}  // namespace

#define HASTE_ENGINE(NAME, T) HASTE_DEFINE_ENGINE(CudaEngine, HASTE_CELL, NAME, Scan<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
