#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iterator>

#include "lib/plan/internal.h"

namespace haste {
namespace {

const char* NameOf(TiledPart part, const TiledTiling& t) {
  switch (part) {
    case TiledPart::kWaits: return t.persistent ? "waits for other blocks" : "launches of blocks";
    case TiledPart::kLoads: return "loads into shared memory";
    case TiledPart::kProducts: return "products";
    case TiledPart::kSums: return t.stationary() ? "sums of rows" : "sums of clusters";
    case TiledPart::kElements: break;
  }
  return "elements";
}

std::string DescribeTiles(const Plan& plan, const HasteRnnConfig& config) {
  std::string text;
  double clocks = 0;
  float parts[kTiledParts] = {};
  for (const TiledPlan& tiled : plan.tiled) {
    const TiledTiling& t = tiled.tiling;
    if (t.units == 0) continue;
    char product[120];
    snprintf(product, sizeof product,
             "%s %" PRId64 " blocks of rows × units %d × %d, depth in %d, %d%% of R kept, %s",
             clocks > 0 ? ";" : ":", t.blocks(config.lanes), t.rows, t.units, t.splits,
             t.stationary() ? 100 : 100 * t.kept / t.chunks,
             t.persistent ? "one launch" : "a launch a step");
    text += product;
    if (t.stationary()) {
      char share[40] = "", form[72];
      if (t.splits == 1 || t.meets_in_memory()) {
        snprintf(share, sizeof share, ", clusters of %d share %s", t.sharers,
                 t.splits == 1 ? "h" : "gradients");
      }
      snprintf(form, sizeof form, "%s, row tiles in %d turn%s", share, t.turns,
               t.turns > 1 ? "s" : "");
      text += form;
    }
    clocks += tiled.step.clocks;
    for (int i = 0; i < kTiledParts; ++i) parts[i] += tiled.step.parts[i];
  }
  const float* bound = std::max_element(std::begin(parts), std::end(parts));
  char about[96];
  snprintf(about, sizeof about, ", about %.0f clocks a step: %s take %.0f%%", clocks,
           NameOf(static_cast<TiledPart>(bound - parts), plan.tiled[0].tiling),
           100 * *bound / clocks);
  return text + about;
}
}  // namespace

std::string Describe(const Plan& plan, const HasteRnnConfig& config, const HasteCellInfo& cell) {
  char cut[400] = "";
  const PersistentTiling& t = plan.persistent.tiling;
  if (plan.engine == EngineKind::kCluster || plan.engine == EngineKind::kGrid) {
    snprintf(cut, sizeof cut,
             ": groups × blocks × units %" PRId64
             " × %d × %d, rows %d × %d%s, about %.0f clocks a step",
             config.lanes * t.row_groups, t.blocks, t.units(), t.passes, t.rows(),
             t.sharers > 1         ? ", clusters share gradients"
             : t.element_warps > 0 ? ", warps for elements"
                                   : "",
             plan.persistent.clocks);
  } else if (plan.engine == EngineKind::kBlock) {
    snprintf(cut, sizeof cut,
             ": groups × blocks × rows %" PRId64 " × %d × %d, %d warps, about %.0f clocks a step",
             plan.block.blocks / plan.block.tiling.blocks, plan.block.tiling.blocks,
             plan.block.tiling.rows, plan.block.tiling.warps, plan.block.clocks);
  } else if (plan.engine == EngineKind::kTiled) {
    snprintf(cut, sizeof cut, "%s", DescribeTiles(plan, config).c_str());
  } else if (plan.engine == EngineKind::kBlas) {
    snprintf(cut, sizeof cut, ": depth in %d", plan.blas[PhasesOf(cell) - 1].splits);
  } else if (config.device == HASTE_CPU) {
    const char* terms = plan.engine == EngineKind::kScan ? "rows and units"
                        : plan.split == CpuSplit::kUnits ? "units"
                                                         : "rows";
    snprintf(cut, sizeof cut, ": %d thread%s over %s", plan.threads, plan.threads == 1 ? "" : "s",
             terms);
  }
  char text[640];
  snprintf(text, sizeof text,
           "%s on %s%s, N=%" PRId64 " T=%" PRId64 " K=%" PRId64 " H=%" PRId64 ": %s", cell.name,
           EngineName(plan.engine), cut, config.batch, config.time, config.lanes, config.hidden,
           plan.reason);
  return text;
}

}  // namespace haste
