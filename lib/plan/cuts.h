// Every way in which the engines of a GPU can run a recurrence: which of them can, and their cuts.
#pragma once

#include <functional>

#include "lib/plan/costs/cost_table.h"
#include "lib/plan/plan.h"

namespace haste {

// Calls visit with each, but for `reason`, and the estimated clocks of a step. Of those that
// config.engine names, if it names one.
void VisitCuts(const HasteRnnConfig&, const HasteCellInfo&, const CudaProperties&, bool backward,
               const CostTable&, const std::function<void(const Plan&, double clocks)>& visit);

}  // namespace haste
