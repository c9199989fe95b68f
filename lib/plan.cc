#include "lib/plan.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "lib/dtypes.h"
#include "lib/engine.h"

namespace haste {
namespace {

// Below this many multiply-adds a thread costs more to wake than it saves (about 5 µs).
constexpr double kWakeMacs = 200e3;
// Below this many a step, a slice is done before the others have noticed that it began.
constexpr double kStepMacs = 30e3;
// Elements of a scan that a thread should have, at some 10 ns of memory and arithmetic each.
constexpr double kScanElements = 10e3;
// Hidden units of a slice: at least one panel of the widest vectors.
constexpr int64_t kSliceUnits = 16;

Plan PlanCpu(const HasteRnnConfig& config, const HasteCellInfo& cell, const CpuProperties& cpu) {
  const int64_t n = config.batch, k = config.lanes, h = config.hidden;
  // In double: sizes that are allowed overflow 64 bits when multiplied.
  const double lane_macs = static_cast<double>(h) * h * cell.gates;
  const double step_macs = static_cast<double>(n) * k * lane_macs;
  const double scalar = config.dtype == HASTE_FLOAT64 ? 8 : 4;
  Plan plan;
  plan.rows_per_task = n;
  if (cpu.threads <= 1) {
    plan.reason = "one thread";
    return plan;
  }
  const auto useful =
      static_cast<int64_t>(std::min<double>(cpu.threads, step_macs * config.time / kWakeMacs + 1));
  if (useful == 1) {
    plan.reason = "too little work to wake a second thread";
    return plan;
  }
  const bool fits_l2 = lane_macs * scalar <= cpu.l2_bytes;
  const bool rows_for_all = n * k >= useful;
  const auto worth = static_cast<int64_t>(std::min<double>(useful, step_macs / kStepMacs));
  const int64_t slices = std::min(worth, k * (h / kSliceUnits));
  if (slices >= 2 && (!fits_l2 || !rows_for_all)) {
    plan.split = CpuSplit::kUnits;
    plan.threads = static_cast<int>(slices);
    plan.reason =
        fits_l2 ? "fewer rows than threads" : "R exceeds a core's cache: each keeps a slice";
    return plan;
  }
  const int64_t groups = std::min(n, (useful + k - 1) / k);
  plan.rows_per_task = (n + groups - 1) / groups;
  plan.threads = static_cast<int>(std::min(useful, k * groups));
  plan.reason =
      plan.threads == 1 ? "too small to split a step" : "rows for every thread: no barrier";
  return plan;
}

Plan PlanScan(const HasteRnnConfig& config, const CpuProperties& cpu) {
  Plan plan;
  plan.engine = EngineKind::kScan;
  plan.reason = "element by element, bound by memory";
  const double elements = static_cast<double>(config.batch) * config.time * config.lanes *
                          static_cast<double>(config.hidden);
  plan.threads = static_cast<int>(std::min<double>(cpu.threads, elements / kScanElements + 1));
  if (plan.threads <= 1) plan.reason = "element by element; too little work for a second thread";
  return plan;
}

// Products by cuBLAS. Not in float16 where h·R is normalised: what a row of variance 0 sends back
// is out of its range.
bool CanBeBlas(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return cell.recurrence == HASTE_DENSE && !(cell.normalizes && config.dtype == HASTE_FLOAT16);
}
// Products on tensor cores.
bool CanBeTiled(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return cell.recurrence == HASTE_DENSE && !cell.normalizes && config.dtype != HASTE_FLOAT64;
}
// The persistent engines: one such product a step.
bool CanBeResident(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return CanBeTiled(config, cell) && cell.reset_gates == 0;
}

bool Wants(const HasteRnnConfig& config, EngineKind kind) {
  return config.engine != nullptr && strcmp(config.engine, EngineName(kind)) == 0;
}
bool WantsAny(const HasteRnnConfig& config) {
  return config.engine == nullptr || strcmp(config.engine, "auto") == 0;
}

ResidentDevice DeviceOf(const CudaProperties& cuda) {
  ResidentDevice device = {};
  device.multiprocessors = cuda.multiprocessors;
  device.shared_bytes = static_cast<int>(cuda.shared_bytes_per_block);
  device.l2_bytes = cuda.l2_bytes;
  std::copy(std::begin(cuda.clusters), std::end(cuda.clusters), device.clusters);
  return device;
}

// Which of the two persistent engines, and how; false: neither.
bool PlanOnChip(const HasteRnnConfig& config, const HasteCellInfo& cell, const CudaProperties& cuda,
                bool backward, Plan* plan) {
  if (!CanBeResident(config, cell) || config.lanes > kMaxOnChipLanes) return false;
  if (cuda.sm_major < 8 || cuda.multiprocessors == 0) return false;
  ResidentProblem problem = {};
  problem.cell.gates = cell.gates;
  problem.cell.states = cell.states;
  problem.cell.storage_bytes = config.dtype == HASTE_FLOAT32 ? 4 : 2;
  problem.cell.saved = cell.saved;
  problem.cell.forward_tiles = cuda.sm_major == 9 ? kResidentTiles : kFewerResidentTiles;
  problem.batch = config.batch;
  problem.lanes = config.lanes;
  problem.hidden = config.hidden;
  problem.backward = backward;
  problem.exact = config.allow_tf32 == 0;
  const ResidentDevice device = DeviceOf(cuda);
  bool found = false;
  for (const EngineKind kind : {EngineKind::kCluster, EngineKind::kGrid}) {
    if (!WantsAny(config) && !Wants(config, kind)) continue;
    if (kind == EngineKind::kCluster && cuda.clusters[2] == 0) continue;  // not even of one block
    ResidentPlan resident;
    if (!PlanResident(problem, device, kind == EngineKind::kCluster, &resident)) continue;
    if (found && resident.clocks >= plan->resident.clocks) continue;
    plan->engine = kind;
    plan->resident = resident;
    plan->reason = kind == EngineKind::kCluster
                       ? "R stays in a cluster's registers and shared memory"
                       : "R stays in registers and shared memory of the GPU";
    found = true;
  }
  return found;
}

// Clocks of a step of blocks that each have all of R; 0 if it cannot be.
double PlanInBlocks(const HasteRnnConfig& config, const HasteCellInfo& cell,
                    const CudaProperties& cuda, bool backward, BlockPlan* plan) {
  if (!CanBeResident(config, cell) || config.lanes > kMaxOnChipLanes) return 0;
  if (cuda.sm_major < 8) return 0;
  BlockProblem problem = {};
  problem.cell.gates = cell.gates;
  problem.cell.storage_bytes = config.dtype == HASTE_FLOAT32 ? 4 : 2;
  problem.cell.saved = cell.saved;
  problem.cell.splits_gradient = cell.splits_gradient != 0;
  problem.batch = config.batch;
  problem.lanes = config.lanes;
  problem.hidden = config.hidden;
  problem.backward = backward;
  problem.exact = config.allow_tf32 == 0;
  BlockDevice device = {};
  device.multiprocessors = cuda.multiprocessors;
  device.shared_bytes = static_cast<int>(cuda.shared_bytes_per_block);
  std::copy_n(cuda.clusters, kMaxBlockCluster + 1, device.clusters);
  return PlanBlocks(problem, device, plan) ? plan->clocks : 0;
}

// Products of a step, and gates of each: the reset gates, whose product comes first, and the
// others.
int PhasesOf(const HasteCellInfo& cell) { return cell.reset_gates > 0 ? 2 : 1; }
int GatesOf(const HasteCellInfo& cell, int phase) {
  return phase == 0 && cell.reset_gates > 0 ? cell.reset_gates : cell.gates - cell.reset_gates;
}

// Of compute capability 9.0 alone: its wgmma is in no other, and there are clusters.
bool HasWarpgroups(const CudaProperties& cuda) {
  return cuda.sm_major == 9 && cuda.clusters[2] > 0;
}

// Clocks of a step in tiles; 0 if it cannot be.
double PlanInTiles(const HasteRnnConfig& config, const HasteCellInfo& cell,
                   const CudaProperties& cuda, bool backward, TiledPlan (&tiled)[kMaxPhases]) {
  if (!CanBeTiled(config, cell) || !HasWarpgroups(cuda)) return 0;
  const int phases = PhasesOf(cell);
  double clocks = 0;
  for (int i = 0; i < phases; ++i) {
    const int gates = GatesOf(cell, i);
    TiledProblem problem = {};
    problem.shape.sums = backward ? 1 : gates;
    problem.shape.parts = config.dtype == HASTE_FLOAT32 ? 3 : 1;
    problem.shape.operand_parts = config.dtype == HASTE_FLOAT32 ? 3 : cell.exponential ? 2 : 1;
    problem.batch = config.batch;
    problem.lanes = config.lanes;
    problem.hidden = config.hidden;
    problem.depth = (backward ? gates : 1) * config.hidden;
    problem.exact = config.allow_tf32 == 0;
    problem.one_a_step = phases == 1;
    if (!PlanTiled(problem, DeviceOf(cuda), &tiled[i])) return 0;
    clocks += tiled[i].clocks;
  }
  return clocks;
}

// Clocks of a step whose products cuBLAS makes; 0 if it cannot be.
double PlanWithBlas(const HasteRnnConfig& config, const HasteCellInfo& cell,
                    const CudaProperties& cuda, bool backward, BlasTiling (&blas)[kMaxPhases]) {
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
    problem.operand_parts = problem.storage_bytes == 2 && cell.exponential ? 2 : 1;
    problem.exact = config.allow_tf32 == 0;
    problem.whole_depth = cell.normalizes != 0;
    if (!PlanBlas(problem, device, &blas[i])) return 0;
    clocks += BlasClocks(problem, device);
  }
  return clocks;
}

// Clocks of a step of `stepwise`, of an H200: R from the L2 cache or memory, products without
// tensor cores. Fitted as those of tiled_plan.cc are, to 120 timings.
double StepwiseClocks(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  constexpr double kPhaseClocks = 8000, kBytesPerClock = 2200, kProductsPerClock = 8500;
  const double phases = cell.reset_gates > 0 ? 2 : 1;
  const double weights =
      static_cast<double>(config.lanes) * config.hidden * config.hidden * cell.gates;
  const double bytes = weights * static_cast<double>(DtypeSize(config.dtype));
  const double products = weights * config.batch * (config.dtype == HASTE_FLOAT64 ? 2 : 1);
  return phases * kPhaseClocks + bytes / kBytesPerClock + products / kProductsPerClock;
}

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
  const bool on_chip = PlanOnChip(config, cell, cuda, backward, plan);
  const bool any = WantsAny(config);
  double best = on_chip ? plan->resident.clocks : 0;  // 0: no engine yet
  const auto consider = [&](EngineKind kind, double clocks, const char* reason) {
    if (clocks <= 0 || (best > 0 && clocks >= best)) return;
    best = clocks;
    plan->engine = kind;
    plan->reason = reason;
  };
  if (any || Wants(config, EngineKind::kBlock)) {
    consider(EngineKind::kBlock, PlanInBlocks(config, cell, cuda, backward, &plan->block),
             "R stays in the registers of each block, and a step there");
  }
  if (any || Wants(config, EngineKind::kTiled)) {
    consider(EngineKind::kTiled, PlanInTiles(config, cell, cuda, backward, plan->tiled),
             "products in tiles on tensor cores; R from shared memory and the L2 cache");
  }
  if (any || Wants(config, EngineKind::kBlas)) {
    consider(EngineKind::kBlas, PlanWithBlas(config, cell, cuda, backward, plan->blas),
             "products by cuBLAS, and a launch of the cell a step");
  }
  if (any || Wants(config, EngineKind::kStepwise)) {
    consider(EngineKind::kStepwise,
             on_chip || plan->engine == EngineKind::kBlock ? 0 : StepwiseClocks(config, cell),
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

}  // namespace

const char* EngineName(EngineKind kind) {
  switch (kind) {
    case EngineKind::kCpu:
      return "cpu";
    case EngineKind::kStepwise:
      return "stepwise";
    case EngineKind::kBlas:
      return "blas";
    case EngineKind::kTiled:
      return "tiled";
    case EngineKind::kBlock:
      return "block";
    case EngineKind::kCluster:
      return "cluster";
    case EngineKind::kGrid:
      return "grid";
    case EngineKind::kScan:
      return "scan";
  }
  return "";
}

int32_t CheckEngine(const HasteRnnConfig& config, const HasteCellInfo& cell, HasteStatus* status) {
  if (WantsAny(config)) return HASTE_OK;
  std::string names;
  const auto allow = [&](EngineKind kind) {
    names += std::string(", \"") + EngineName(kind) + "\"";
    return Wants(config, kind);
  };
  bool allowed;
  if (cell.recurrence != HASTE_DENSE) {
    allowed = allow(EngineKind::kScan);
  } else if (config.device == HASTE_CPU) {
    allowed = allow(EngineKind::kCpu);
  } else {
    allowed = allow(EngineKind::kStepwise);
    if (CanBeBlas(config, cell)) allowed |= allow(EngineKind::kBlas);
    if (CanBeTiled(config, cell)) allowed |= allow(EngineKind::kTiled);
    if (CanBeResident(config, cell)) {
      allowed |= allow(EngineKind::kBlock);
      allowed |= allow(EngineKind::kCluster);
      allowed |= allow(EngineKind::kGrid);
    }
  }
  if (allowed) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "engine: expected one of \"auto\"%s for %s of this dtype on this device, got "
                   "\"%s\"",
                   names.c_str(), cell.name, config.engine);
}

int32_t PlanRecurrence(const HasteRnnConfig& config, const HasteCellInfo& cell,
                       const CpuProperties& cpu, const CudaProperties& cuda, Plan* plan,
                       HasteStatus* status, bool backward) {
  const int32_t code = CheckEngine(config, cell, status);
  if (code != HASTE_OK) return code;
  *plan = Plan();
  if (config.device == HASTE_CUDA) return PlanCuda(config, cell, cuda, backward, plan, status);
  *plan = cell.recurrence == HASTE_DENSE ? PlanCpu(config, cell, cpu) : PlanScan(config, cpu);
  return HASTE_OK;
}

namespace {
std::string DescribeTiles(const Plan& plan, const HasteRnnConfig& config) {
  std::string text = EngineName(plan.engine);
  double clocks = 0;
  for (const TiledPlan& tiled : plan.tiled) {
    const TiledTiling& t = tiled.tiling;
    if (t.units == 0) continue;
    char product[120];
    snprintf(product, sizeof product,
             "%s %" PRId64 " blocks of rows × units %d × %d, depth in %d, %d%% of R kept, %s",
             clocks > 0 ? ";" : ":", t.blocks(config.lanes), t.rows, t.units, t.splits,
             100 * t.kept / t.chunks, t.persistent ? "one launch" : "a launch a step");
    text += product;
    clocks += tiled.clocks;
  }
  char about[48];
  snprintf(about, sizeof about, ", about %.0f clocks a step", clocks);
  return text + about;
}
}  // namespace

std::string Describe(const Plan& plan, const HasteRnnConfig& config, const HasteCellInfo& cell) {
  char where[400];
  const ResidentTiling& t = plan.resident.tiling;
  if (plan.engine == EngineKind::kCluster || plan.engine == EngineKind::kGrid) {
    snprintf(where, sizeof where,
             "%s: groups × blocks × units %" PRId64
             " × %d × %d, rows %d × %d%s, about %.0f clocks a "
             "step",
             EngineName(plan.engine), config.lanes * t.row_groups, t.blocks, t.units(), t.passes,
             t.rows(), t.sharers > 1 ? ", clusters share gradients" : "", plan.resident.clocks);
  } else if (plan.engine == EngineKind::kBlock) {
    snprintf(where, sizeof where,
             "%s: groups × blocks × rows %" PRId64 " × %d × %d, %d warps, about %.0f clocks a step",
             EngineName(plan.engine), plan.block.blocks / plan.block.tiling.blocks,
             plan.block.tiling.blocks, plan.block.tiling.rows, plan.block.tiling.warps,
             plan.block.clocks);
  } else if (plan.engine == EngineKind::kTiled) {
    snprintf(where, sizeof where, "%s", DescribeTiles(plan, config).c_str());
  } else if (plan.engine == EngineKind::kBlas) {
    const int splits = plan.blas[PhasesOf(cell) - 1].splits;
    snprintf(where, sizeof where, "%s: depth in %d", EngineName(plan.engine), splits);
  } else if (config.device == HASTE_CUDA) {
    snprintf(where, sizeof where, "%s", EngineName(plan.engine));
  } else {
    const char* parts = plan.engine == EngineKind::kScan ? "rows and units"
                        : plan.split == CpuSplit::kUnits ? "units"
                                                         : "rows";
    snprintf(where, sizeof where, "%s: %d thread%s over %s", EngineName(plan.engine), plan.threads,
             plan.threads == 1 ? "" : "s", parts);
  }
  char text[640];
  snprintf(text, sizeof text,
           "%s on %s, N=%" PRId64 " T=%" PRId64 " K=%" PRId64 " H=%" PRId64 ": %s", cell.name,
           where, config.batch, config.time, config.lanes, config.hidden, plan.reason);
  return text;
}

}  // namespace haste
