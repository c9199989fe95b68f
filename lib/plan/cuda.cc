#include <algorithm>
#include <cinttypes>
#include <iterator>

#include "lib/base/dtypes.h"
#include "lib/base/int_math.h"
#include "lib/base/status.h"
#include "lib/cells/info.h"
#include "lib/plan/internal.h"

namespace haste {
namespace {

PersistentDevice DeviceOf(const CudaProperties& cuda) {
  PersistentDevice device = {};
  device.multiprocessors = cuda.multiprocessors;
  device.shared_bytes = static_cast<int>(cuda.shared_bytes_per_block);
  device.l2_bytes = cuda.l2_bytes;
  std::copy(std::begin(cuda.clusters), std::end(cuda.clusters), device.clusters);
  return device;
}

// Of an operand of the tensor cores, in engines that tell float32 from TensorFloat-32: of float16
// where floats are scaled, else of bfloat16.
int ScaledTermsOf(const HasteRnnConfig& config) {
  return config.dtype != HASTE_FLOAT32 || config.allow_tf32 ? 1 : 2;
}
int TermsOf(const HasteRnnConfig& config) {
  return config.dtype != HASTE_FLOAT32 ? 1 : config.allow_tf32 ? 2 : 3;
}
// Forward (WithForwardStorage).
int ForwardTermsOf(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  if (HasBoundedStates(config, cell)) return ScaledTermsOf(config);
  return config.dtype == HASTE_FLOAT32 ? 3 : 1;
}
// Backward, where a warp has whole units' gradients to scale.
int SharedTermsOf(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return cell.gates > 1 ? ScaledTermsOf(config) : TermsOf(config);
}

// Which of the two persistent engines, and how; false: neither.
bool PlanOnChip(const HasteRnnConfig& config, const HasteCellInfo& cell, const CudaProperties& cuda,
                const CostTable& costs, bool backward, Plan* plan) {
  if (!CanBePersistent(config, cell) || config.lanes > kMaxOnChipLanes) return false;
  if (cuda.sm_major < 8 || cuda.multiprocessors == 0) return false;
  PersistentProblem problem = {};
  problem.cell.gates = cell.gates;
  problem.cell.states = cell.states;
  problem.cell.storage_bytes = config.dtype == HASTE_FLOAT32 ? 4 : 2;
  problem.cell.terms = backward ? TermsOf(config) : ForwardTermsOf(config, cell);
  problem.shared_terms = SharedTermsOf(config, cell);
  problem.cell.operand_bytes = problem.cell.terms == 1 ? 2 : 4;
  problem.cell.saved = cell.saved;
  problem.gives_registers = cuda.sm_major == 9;
  problem.cell.forward_tiles = problem.gives_registers ? kPersistentTiles : kFewerPersistentTiles;
  problem.batch = config.batch;
  problem.lanes = config.lanes;
  problem.hidden = config.hidden;
  problem.backward = backward;
  const PersistentDevice device = DeviceOf(cuda);
  bool found = false;
  for (const EngineKind kind : {EngineKind::kCluster, EngineKind::kGrid}) {
    if (!WantsAny(config) && !Wants(config, kind)) continue;
    if (kind == EngineKind::kCluster && cuda.clusters[2] == 0) continue;  // not even of one block
    PersistentPlan persistent;
    if (!PlanPersistent(problem, device, costs, kind == EngineKind::kCluster, &persistent))
      continue;
    if (found && persistent.clocks >= plan->persistent.clocks) continue;
    plan->engine = kind;
    plan->persistent = persistent;
    plan->reason = kind == EngineKind::kCluster
                       ? "R stays in a cluster's registers and shared memory"
                       : "R stays in registers and shared memory of the GPU";
    found = true;
  }
  return found;
}

// Clocks of a step of blocks that each have all of R; 0 if it cannot be.
double PlanInBlocks(const HasteRnnConfig& config, const HasteCellInfo& cell,
                    const CudaProperties& cuda, const BlockCosts& costs, bool backward,
                    BlockPlan* plan) {
  if (!CanBePersistent(config, cell) || config.lanes > kMaxOnChipLanes) return 0;
  if (cuda.sm_major < 8) return 0;
  BlockProblem problem = {};
  problem.cell.gates = cell.gates;
  problem.cell.storage_bytes = config.dtype == HASTE_FLOAT32 ? 4 : 2;
  problem.cell.terms = backward ? SharedTermsOf(config, cell) : ForwardTermsOf(config, cell);
  problem.cell.saved = cell.saved;
  problem.cell.splits_gradient = cell.splits_gradient != 0;
  problem.batch = config.batch;
  problem.lanes = config.lanes;
  problem.hidden = config.hidden;
  problem.backward = backward;
  BlockDevice device = {};
  device.multiprocessors = cuda.multiprocessors;
  device.shared_bytes = static_cast<int>(cuda.shared_bytes_per_block);
  std::copy_n(cuda.clusters, kMaxBlockCluster + 1, device.clusters);
  return PlanBlocks(problem, device, costs, plan) ? plan->clocks : 0;
}

// Gates of a product.
int GatesOf(const HasteCellInfo& cell, int phase) {
  return phase == 0 && cell.reset_gates > 0 ? cell.reset_gates : cell.gates - cell.reset_gates;
}

// Of compute capability 9.0 alone: its wgmma is in no other, and there are clusters.
bool HasWarpgroups(const CudaProperties& cuda) {
  return cuda.sm_major == 9 && cuda.clusters[2] > 0;
}

// Clocks of a step in tiles; 0 if it cannot be.
double PlanInTiles(const HasteRnnConfig& config, const HasteCellInfo& cell,
                   const CudaProperties& cuda, const TiledCosts& costs, bool backward,
                   TiledPlan (&tiled)[kMaxPhases]) {
  if (!CanBeTiled(config, cell) || !HasWarpgroups(cuda)) return 0;
  const int phases = PhasesOf(cell);
  double clocks = 0;
  for (int i = 0; i < phases; ++i) {
    const int gates = GatesOf(cell, i);
    TiledProblem problem = {};
    problem.shape.sums = backward ? 1 : gates;
    const bool floats = config.dtype == HASTE_FLOAT32;
    problem.shape.scales_rows = floats && backward && ScalesTiledGradients(cell);
    const bool scales = backward ? problem.shape.scales_rows : HasBoundedStates(config, cell);
    problem.shape.terms = !floats ? 1 : scales ? 2 : 3;
    problem.shape.operand_terms =
        problem.shape.terms == 1 && cell.exponential ? 2 : problem.shape.terms;
    problem.batch = config.batch;
    problem.lanes = config.lanes;
    problem.hidden = config.hidden;
    problem.gates = gates;
    problem.depth =
        problem.shape.scales_rows ? PadTo(config.hidden, problem.shape.depth()) : config.hidden;
    if (backward) problem.depth *= gates;
    problem.exact = config.allow_tf32 == 0;
    problem.one_a_step = phases == 1;
    if (!PlanTiled(problem, DeviceOf(cuda), costs, &tiled[i])) return 0;
    clocks += tiled[i].clocks;
  }
  return clocks;
}

// Clocks of a step whose products cuBLAS makes; 0 if it cannot be.
double PlanWithBlas(const HasteRnnConfig& config, const HasteCellInfo& cell,
                    const CudaProperties& cuda, const BlasCosts& costs, bool backward,
                    BlasTiling (&blas)[kMaxPhases]) {
  // In bfloat16 it needs tensor cores that have that.
  if (!CanBeBlas(config, cell) || !cuda.has_cublas) return 0;
  if (config.dtype == HASTE_BFLOAT16 && cuda.sm_major < 8) return 0;
  const BlasDevice device = {cuda.sm_major, cuda.multiprocessors, cuda.l2_bytes};
  double clocks = 0;
  for (int i = 0; i < PhasesOf(cell); ++i) {
    BlasProblem problem = {};
    problem.batch = config.batch;
    problem.lanes = config.lanes;
    problem.hidden = config.hidden;
    problem.gates = GatesOf(cell, i);
    problem.backward = backward;
    problem.storage_bytes = static_cast<int>(DtypeSize(config.dtype));
    problem.operand_terms = problem.storage_bytes == 2 && cell.exponential ? 2 : 1;
    problem.exact = config.allow_tf32 == 0;
    problem.whole_depth = cell.normalizes != 0;
    if (!PlanBlas(problem, device, &blas[i])) return 0;
    clocks += BlasClocks(problem, device, costs);
  }
  return clocks;
}

// Clocks of a step of `stepwise`: R from the L2 cache or memory, products without tensor cores.
// Bytes and products are given by multiprocessor, so that a smaller GPU is not taken for the one
// that was timed.
double StepwiseClocks(const HasteRnnConfig& config, const HasteCellInfo& cell,
                      const CudaProperties& cuda, const CostTable& table) {
  const StepwiseCosts& costs = table.stepwise;
  const double share = cuda.multiprocessors > 0 ? cuda.multiprocessors / table.multiprocessors : 1;
  const double phases = cell.reset_gates > 0 ? 2 : 1;
  const double weights =
      static_cast<double>(config.lanes) * config.hidden * config.hidden * cell.gates;
  const double bytes = weights * static_cast<double>(DtypeSize(config.dtype));
  const double products = weights * config.batch * (config.dtype == HASTE_FLOAT64 ? 2 : 1);
  return phases * costs.phase_clocks + bytes / (costs.bytes_per_clock * share) +
         products / (costs.products_per_clock * share);
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
  const CostTable& costs = CostsOf(cuda.sm_major, cuda.sm_minor);
  const bool on_chip = PlanOnChip(config, cell, cuda, costs, backward, plan);
  const bool any = WantsAny(config);
  double best = on_chip ? plan->persistent.clocks : 0;  // 0: no engine yet
  const auto consider = [&](EngineKind kind, double clocks, const char* reason) {
    if (clocks <= 0 || (best > 0 && clocks >= best)) return;
    best = clocks;
    plan->engine = kind;
    plan->reason = reason;
  };
  if (any || Wants(config, EngineKind::kBlock)) {
    consider(EngineKind::kBlock,
             PlanInBlocks(config, cell, cuda, costs.block, backward, &plan->block),
             "R stays in the registers of each block, and a step there");
  }
  if (any || Wants(config, EngineKind::kTiled)) {
    consider(EngineKind::kTiled,
             PlanInTiles(config, cell, cuda, costs.tiled, backward, plan->tiled),
             "products in tiles on tensor cores; R from shared memory and the L2 cache");
  }
  if (any || Wants(config, EngineKind::kBlas)) {
    consider(EngineKind::kBlas, PlanWithBlas(config, cell, cuda, costs.blas, backward, plan->blas),
             "products by cuBLAS, and a launch of the cell a step");
  }
  if (any || Wants(config, EngineKind::kStepwise)) {
    consider(EngineKind::kStepwise,
             on_chip || plan->engine == EngineKind::kBlock
                 ? 0
                 : StepwiseClocks(config, cell, cuda, costs),
             cell.normalizes || cell.reset_gates > 0
                 ? "a product and a pointwise kernel for each phase of a step"
                 : "one fused product and pointwise kernel a step");
  }
  if (best > 0) return HASTE_OK;
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
