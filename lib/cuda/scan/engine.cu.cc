// The `scan` engine on CUDA: cells without a matrix product. Compiled once for each cell and group
// of dtypes (lib/cuda/cell/engine_table.h).
//
// One kernel walks all steps. If the state is a linear function of the previous state, the walk is
// lib/cuda/scan/launch.cuh, which divides the steps of an element among warps. Otherwise it is
// lib/cuda/scan/sequential.cuh, with one element a thread. There, loads cover the latency of memory
// only from about ten thousand elements on.
#include "lib/engine/engine.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lib/base/workspace.h"
#include "lib/cuda/cell/engine_table.h"
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
  static auto KernelsOf(const ForwardParams<T>*) { return ForwardKernels<Cell, T>(); }
  static auto KernelsOf(const BackwardParams<T>*) { return BackwardKernels<Cell, T>(); }

  // Fills in the workspace, of which `workspace` counts the bytes.
  template <class Params>
  static void Fill(const HasteRnnConfig& config, const CudaProperties& device, Workspace* workspace,
                   ScanParams<Params>* p) {
    const auto kernels = KernelsOf(p);
    const int64_t count = SummaryCount(PlanOf(config, kernels, device), kernels);
    if (count > 0) p->summaries = workspace->Take<typename Params::C>(count);
  }

  template <class Params>
  static int32_t Run(const HasteRnnConfig& config, const CudaProperties& device,
                     ScanParams<Params>* p, const HasteExecutor& executor, HasteStatus* status) {
    const auto kernels = KernelsOf(p);
    const ScanPlan plan = PlanOf(config, kernels, device);
    return ForLanes(config, p, [&] { return WalkLinear(kernels, plan, p, executor, status); });
  }
};

// Other cells.
template <class Cell, class T>
struct ElementWalk {
  using C = Compute<T>;
  using Forward = ScanParams<ForwardParams<T>>;
  using Backward = ScanParams<BackwardParams<T>>;

  static void Fill(const HasteRnnConfig&, const CudaProperties&, Workspace*, Forward*) {}
  static void Fill(const HasteRnnConfig& config, const CudaProperties&, Workspace* workspace,
                   Backward* p) {
    if (Cell::kRecurrence != HASTE_DIAGONAL) return;
    p->partial = workspace->Take<C>(config.batch * config.lanes * Cell::kGates * config.hidden);
  }

  static int32_t Run(const HasteRnnConfig& config, const CudaProperties&, Forward* p,
                     const HasteExecutor& executor, HasteStatus* status) {
    return LaunchElements(ScanForward<Cell, T, true>, ScanForward<Cell, T, false>, config, p,
                          executor, status);
  }
  static int32_t Run(const HasteRnnConfig& config, const CudaProperties&, Backward* p,
                     const HasteExecutor& executor, HasteStatus* status) {
    HASTE_TRY(LaunchElements(ScanBackward<Cell, T, true>, ScanBackward<Cell, T, false>, config, p,
                             executor, status));
    if (p->partial == nullptr) return HASTE_OK;
    return LaunchSumOverRows<C, T>(p->N, p->K * Cell::kGates * p->H, p->partial, p->args.dR,
                                   executor, status);
  }

 private:
  template <class Params>
  static int32_t LaunchElements(void (*plain)(const Params), void (*any)(const Params),
                                const HasteRnnConfig& config, Params* p,
                                const HasteExecutor& executor, HasteStatus* status) {
    const auto kernel = p->mask == nullptr && !p->zoneout ? plain : any;
    return ForLanes(config, p, [&]() -> int32_t {
      const int64_t blocks = CeilDiv(p->N * p->lanes * p->H, kScanThreads);
      HASTE_TRY(CheckBlocks(blocks, "batch, lanes, hidden", status));
      return HASTE_CUDA_STATUS(Launch(kernel, {blocks, kScanThreads}, executor, *p), status);
    });
  }
};

template <class Cell, class T>
class Scan {
  using Walk = std::conditional_t<Cell::kLinearScan, LinearWalk<Cell, T>, ElementWalk<Cell, T>>;

  template <template <class> class Params>
  static size_t BytesOf(const HasteRnnConfig& config, const PlannedRnn& planned) {
    Workspace count(nullptr);
    ScanParams<Params<T>> p = {};
    Walk::Fill(config, planned.cuda, &count, &p);
    return std::max<size_t>(count.used(), 1);  // so that the caller has memory to pass
  }

  template <template <class> class Params, class Args>
  static int32_t Run(const RnnCall& call, const Args& args, HasteStatus* status) {
    const auto& [config, planned, workspace, executor] = call;
    ScanParams<Params<T>> p = {};
    FillRecurrence<Cell, T>(config, args, &p);
    p.args = args;
    Workspace pieces(workspace);
    Walk::Fill(config, planned.cuda, &pieces, &p);
    return Walk::Run(config, planned.cuda, &p, executor, status);
  }

 public:
  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    return planned.backward ? BytesOf<BackwardParams>(config, planned)
                            : BytesOf<ForwardParams>(config, planned);
  }
  static constexpr auto Forward = Run<ForwardParams, HasteRnnForwardArgs>;
  static constexpr auto Backward = Run<BackwardParams, HasteRnnBackwardArgs>;
};

}  // namespace

#define HASTE_ENGINE(NAME, T) HASTE_DEFINE_ENGINE(CudaEngine, HASTE_CELL, NAME, Scan<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
