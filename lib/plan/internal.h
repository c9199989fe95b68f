// Parts of PlanRecurrence: what each engine can run, and how the CPU's and the CUDA engines are
// cut.
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include "lib/plan/costs/cost_table.h"
#include "lib/plan/overlap.h"
#include "lib/plan/plan.h"

namespace haste {

// Products by cuBLAS. Not in float16 where h·R is normalised: what a row of variance 0 sends back
// is out of its range.
inline bool CanBeBlas(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return cell.recurrence == HASTE_DENSE && !(cell.normalizes && config.dtype == HASTE_FLOAT16);
}
// Products on tensor cores. Where h·R is normalised, in bfloat16 and TensorFloat-32: float16 has
// not the range.
inline bool CanBeTiled(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  if (cell.recurrence != HASTE_DENSE || config.dtype == HASTE_FLOAT64) return false;
  return !cell.normalizes || config.dtype == HASTE_BFLOAT16 ||
         (config.dtype == HASTE_FLOAT32 && config.allow_tf32);
}
// The persistent engines: one such product a step, which is not normalised.
inline bool CanBePersistent(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return CanBeTiled(config, cell) && cell.reset_gates == 0 && !cell.normalizes;
}

inline bool Wants(const HasteRnnConfig& config, EngineKind kind) {
  return config.engine != nullptr && strcmp(config.engine, EngineName(kind)) == 0;
}
inline bool WantsAny(const HasteRnnConfig& config) {
  return config.engine == nullptr || strcmp(config.engine, "auto") == 0;
}

// Products of a step: that of the reset gates, whose product comes first, and that of the others.
inline int PhasesOf(const HasteCellInfo& cell) { return cell.reset_gates > 0 ? 2 : 1; }

// Of a recurrence with a matrix product a step, and of one without.
Plan PlanCpu(const HasteRnnConfig&, const HasteCellInfo&, const CpuProperties&, bool backward);
Plan PlanScan(const HasteRnnConfig&, const CpuProperties&);

int32_t PlanCuda(const HasteRnnConfig&, const HasteCellInfo&, const CudaProperties&, bool backward,
                 Plan*, HasteStatus*);

// Every way in which the engines of a GPU can run a recurrence: calls visit with each, but for
// `reason`, and the estimated clocks of a step. Of those that config.engine names, if it names one.
void VisitCuts(const HasteRnnConfig&, const HasteCellInfo&, const CudaProperties&, bool backward,
               const CostTable&, const std::function<void(const Plan&, double clocks)>& visit);

// Estimated microseconds of a layer, by what of its products runs during the walk (overlap.h): by
// rows_before, and last with x·W apart; by chunks. Empty: the products can only run apart. The rest
// of *overlap is filled in.
std::vector<double> ForwardMicroseconds(const HasteRnnConfig&, const HasteCellInfo&,
                                        int64_t features, const Plan&, const CudaProperties&,
                                        const CostTable&, OverlappedInput* overlap);
std::vector<double> BackwardMicroseconds(const HasteRnnConfig&, const HasteCellInfo&,
                                         int64_t features, const Plan&, const CudaProperties&,
                                         const CostTable&, OverlappedGradients* overlap);

}  // namespace haste
