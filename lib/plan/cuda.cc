#include <cinttypes>

#include "lib/base/status.h"
#include "lib/plan/internal.h"

namespace haste {
namespace {

const char* ReasonOf(const Plan& plan, const HasteCellInfo& cell) {
  switch (plan.engine) {
    case EngineKind::kCluster: return "R stays in a cluster's registers and shared memory";
    case EngineKind::kGrid: return "R stays in registers and shared memory of the GPU";
    case EngineKind::kBlock: return "R stays in the registers of each block, and a step there";
    case EngineKind::kTiled:
      return plan.tiled[0].tiling.stationary()
                 ? "products in tiles on tensor cores; R stays in registers and shared memory"
                 : "products in tiles on tensor cores; R from shared memory and the L2 cache";
    case EngineKind::kBlas: return "products by cuBLAS, and a launch of the cell a step";
    default:
      return cell.normalizes || cell.reset_gates > 0
                 ? "a product and a pointwise kernel for each phase of a step"
                 : "one fused product and pointwise kernel a step";
  }
}

}  // namespace

int32_t PlanCuda(const HasteRnnConfig& config, const HasteCellInfo& cell,
                 const CudaProperties& cuda, bool backward, Plan* plan, HasteStatus* status) {
  if (cuda.sm_major > 0 && cuda.sm_major * 10 + cuda.sm_minor < 75) {
    return SetStatus(
        status, HASTE_UNIMPLEMENTED,
        "device: a GPU of compute capability 7.5 or newer is needed, this one has %d.%d",
        cuda.sm_major, cuda.sm_minor);
  }
  if (cell.recurrence != HASTE_DENSE) {
    plan->engine = EngineKind::kScan;
    plan->reason = "element by element, bound by memory";
    return HASTE_OK;
  }
  bool on_chip = false;
  double least = 0;  // 0: no engine yet
  VisitCuts(config, cell, cuda, backward, CostsOf(cuda.sm_major, cuda.sm_minor),
            [&](const Plan& cut, double clocks) {
              on_chip |= cut.engine == EngineKind::kCluster || cut.engine == EngineKind::kGrid;
              const bool compares = cut.engine != EngineKind::kStepwise ||
                                    !(on_chip || plan->engine == EngineKind::kBlock);
              if (clocks <= 0 || (least > 0 && clocks >= least) || !compares) return;
              least = clocks;
              *plan = cut;
            });
  plan->reason = ReasonOf(*plan, cell);
  if (least > 0) return HASTE_OK;
  if (Wants(config, EngineKind::kBlas) && !cuda.has_cublas) {
    return SetStatus(
        status, HASTE_UNIMPLEMENTED,
        "engine: \"blas\" needs cuBLAS 12 or 13, and none that can start was found in this "
        "process, beside this package or where the loader looks; install it (pip install "
        "nvidia-cublas) or use \"auto\"");
  }
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "engine: \"%s\" cannot run %" PRId64 " lanes of %" PRId64
                   " hidden units for a batch of %" PRId64
                   " on this GPU (compute capability %d.%d, %d multiprocessors); use \"auto\"",
                   config.engine, config.lanes, config.hidden, config.batch, cuda.sm_major,
                   cuda.sm_minor, cuda.multiprocessors);
}

}  // namespace haste
