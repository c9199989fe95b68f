#include <cstdint>
#include <vector>

#include "lib/base/dtypes.h"
#include "lib/base/int_math.h"
#include "lib/cells/info.h"
#include "lib/plan/internal.h"

namespace haste {
namespace {

using Visit = std::function<void(const Plan&, double clocks)>;

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

template <class Problem>
Problem ProblemOf(const HasteRnnConfig& config) {
  Problem problem = {};
  problem.batch = config.batch;
  problem.lanes = config.lanes;
  problem.hidden = config.hidden;
  return problem;
}

// `cluster` and `grid`.
void VisitOnChip(const HasteRnnConfig& config, const HasteCellInfo& cell,
                 const CudaProperties& cuda, bool backward, const CostTable& costs,
                 const Visit& visit) {
  if (!CanBePersistent(config, cell) || config.lanes > kMaxOnChipLanes) return;
  if (cuda.sm_major < 8 || cuda.multiprocessors == 0) return;
  auto problem = ProblemOf<PersistentProblem>(config);
  problem.cell.gates = cell.gates;
  problem.cell.states = cell.states;
  problem.cell.storage_bytes = config.dtype == HASTE_FLOAT32 ? 4 : 2;
  problem.cell.terms = backward ? TermsOf(config) : ForwardTermsOf(config, cell);
  problem.shared_terms = SharedTermsOf(config, cell);
  problem.cell.operand_bytes = problem.cell.terms == 1 ? 2 : 4;
  problem.cell.saved = AlwaysSaved(cell);
  problem.gives_registers = cuda.sm_major == 9;
  problem.cell.forward_tiles = problem.gives_registers ? kPersistentTiles : kFewerPersistentTiles;
  problem.backward = backward;
  for (const EngineKind kind : {EngineKind::kCluster, EngineKind::kGrid}) {
    if (!WantsAny(config) && !Wants(config, kind)) continue;
    const bool cluster = kind == EngineKind::kCluster;
    if (cluster && cuda.clusters[2] == 0) continue;  // not even of one block
    VisitPersistent(problem, cuda, costs, cluster, [&](const PersistentPlan& cut) {
      Plan plan;
      plan.engine = kind;
      plan.persistent = cut;
      visit(plan, cut.clocks);
    });
  }
}

// Whether there is code made for compute capability 9.0: its wgmma is in no other, and there are
// clusters.
bool HasWarpgroups(const CudaProperties& cuda) {
  return cuda.sm_major == 9 && cuda.clusters[2] > 0;
}

void VisitInBlocks(const HasteRnnConfig& config, const HasteCellInfo& cell,
                   const CudaProperties& cuda, bool backward, const CostTable& costs,
                   const Visit& visit) {
  if (!CanBePersistent(config, cell) || config.lanes > kMaxOnChipLanes) return;
  if (cuda.sm_major < 8) return;
  auto problem = ProblemOf<BlockProblem>(config);
  problem.cell.gates = cell.gates;
  problem.cell.storage_bytes = config.dtype == HASTE_FLOAT32 ? 4 : 2;
  problem.cell.terms = backward ? SharedTermsOf(config, cell) : ForwardTermsOf(config, cell);
  problem.cell.saved = AlwaysSaved(cell);
  problem.cell.splits_gradient = cell.splits_gradient != 0;
  problem.backward = backward;
  // Only code made for 9.0 copies rows that do not begin at multiples of 16 bytes.
  if (!HasWarpgroups(cuda) && problem.hidden * problem.cell.storage_bytes % kPieceBytes != 0)
    return;
  VisitBlocks(problem, cuda, costs.block, [&](const BlockPlan& cut) {
    Plan plan;
    plan.engine = EngineKind::kBlock;
    plan.block = cut;
    visit(plan, cut.clocks);
  });
}

// Gates of a product.
int GatesOf(const HasteCellInfo& cell, int phase) {
  return phase == 0 && cell.reset_gates > 0 ? cell.reset_gates : cell.gates - cell.reset_gates;
}

// Of a product of `gates` gates, or of all products of a step, where R is stationary.
TiledProblem TiledProblemOf(const HasteRnnConfig& config, const HasteCellInfo& cell, bool backward,
                            int gates) {
  auto problem = ProblemOf<TiledProblem>(config);
  problem.shape.sums = backward ? 1 : gates;
  const bool floats = config.dtype == HASTE_FLOAT32;
  problem.shape.scales_rows = floats && backward && ScalesTiledGradients(cell);
  const bool scales = backward ? problem.shape.scales_rows : HasBoundedStates(config, cell);
  problem.shape.terms = !floats ? 1 : scales ? 2 : 3;
  problem.exponential = cell.exponential != 0;
  problem.shape.operand_terms =
      problem.shape.terms == 1 && problem.exponential ? 2 : problem.shape.terms;
  problem.gates = gates;
  problem.depth =
      problem.shape.scales_rows ? PadTo(config.hidden, problem.shape.depth()) : config.hidden;
  if (backward) problem.depth *= gates;
  problem.exact = config.allow_tf32 == 0;
  problem.one_a_step = gates == cell.gates;
  problem.backward = backward;
  problem.all_reduces = cell.normalizes ? NormalizesState(cell) ? 2 : 1 : 0;
  problem.relaxed =
      floats && config.allow_tf32 != 0 && (backward || HasBoundedStates(config, cell));
  return problem;
}

// R stationary, for all products of a step; else each product with each of the others.
void VisitInTiles(const HasteRnnConfig& config, const HasteCellInfo& cell,
                  const CudaProperties& cuda, bool backward, const CostTable& costs,
                  const Visit& visit) {
  if (!CanBeTiled(config, cell) || !HasWarpgroups(cuda)) return;
  Plan plan;
  plan.engine = EngineKind::kTiled;
  const auto visit_one = [&](const TiledPlan& cut) {
    plan.tiled[0] = cut;
    visit(plan, cut.step.clocks);
  };
  TiledProblem all = TiledProblemOf(config, cell, backward, cell.gates);
  all.reset_gates = cell.reset_gates;
  // Its kernels count products in 32 bits; backward has one more.
  const bool counts = config.time < INT32_MAX / PhasesOf(cell);
  if (counts) VisitStationary(all, cuda, costs.tiled, visit_one);
  if (PhasesOf(cell) == 1) return VisitTiled(all, cuda, costs.tiled, visit_one);
  std::vector<TiledPlan> cuts[kMaxPhases];
  for (int i = 0; i < kMaxPhases; ++i) {
    VisitTiled(TiledProblemOf(config, cell, backward, GatesOf(cell, i)), cuda, costs.tiled,
               [&](const TiledPlan& cut) { cuts[i].push_back(cut); });
  }
  for (const TiledPlan& cut : cuts[0]) {
    plan.tiled[0] = cut;
    for (const TiledPlan& other : cuts[1]) {
      plan.tiled[1] = other;
      visit(plan, cut.step.clocks + other.step.clocks);
    }
  }
}

void VisitWithBlas(const HasteRnnConfig& config, const HasteCellInfo& cell,
                   const CudaProperties& cuda, bool backward, const CostTable& costs,
                   const Visit& visit) {
  // In bfloat16 it needs tensor cores that have that.
  if (!CanBeBlas(config, cell) || !cuda.has_cublas) return;
  if (config.dtype == HASTE_BFLOAT16 && cuda.sm_major < 8) return;
  Plan plan;
  plan.engine = EngineKind::kBlas;
  double clocks = 0;
  for (int i = 0; i < PhasesOf(cell); ++i) {
    auto problem = ProblemOf<BlasProblem>(config);
    problem.gates = GatesOf(cell, i);
    problem.backward = backward;
    problem.storage_bytes = static_cast<int>(DtypeSize(config.dtype));
    problem.operand_terms = problem.storage_bytes == 2 && cell.exponential ? 2 : 1;
    problem.exact = config.allow_tf32 == 0;
    problem.whole_depth = cell.normalizes != 0;
    if (!PlanBlas(problem, cuda, &plan.blas[i])) return;
    clocks += BlasClocks(problem, cuda, costs.blas);
  }
  visit(plan, clocks);
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
  return phases * costs.phase_clocks + (cell.normalizes ? costs.norm_clocks : 0) +
         bytes / (costs.bytes_per_clock * share) + products / (costs.products_per_clock * share);
}

}  // namespace

void VisitCuts(const HasteRnnConfig& config, const HasteCellInfo& cell, const CudaProperties& cuda,
               bool backward, const CostTable& costs, const Visit& visit) {
  const auto wants = [&](EngineKind kind) { return WantsAny(config) || Wants(config, kind); };
  VisitOnChip(config, cell, cuda, backward, costs, visit);
  if (wants(EngineKind::kBlock)) VisitInBlocks(config, cell, cuda, backward, costs, visit);
  if (wants(EngineKind::kTiled)) VisitInTiles(config, cell, cuda, backward, costs, visit);
  if (wants(EngineKind::kBlas)) VisitWithBlas(config, cell, cuda, backward, costs, visit);
  if (wants(EngineKind::kStepwise)) {
    Plan plan;
    plan.engine = EngineKind::kStepwise;
    visit(plan, StepwiseClocks(config, cell, cuda, costs));
  }
}

}  // namespace haste
