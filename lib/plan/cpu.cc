#include <algorithm>

#include "lib/base/int_math.h"
#include "lib/plan/internal.h"

namespace haste {
namespace {

// Below this many multiply-adds a thread costs more to wake than it saves (about 5 µs).
constexpr double kWakeMacs = 200e3;
// Below this many a step, a slice is done before the others have noticed that it began.
constexpr double kStepMacs = 30e3;
// Elements of a scan that a thread should have, at some 10 ns of memory and arithmetic each.
constexpr double kScanElements = 10e3;
// With fewer rows than this a thread reads R faster from its cache than it multiplies with it. Then
// threads share R out if a slice of a step has so many multiply-adds that a barrier is cheap.
constexpr int64_t kFewRows = 4;
constexpr double kSharedMacs = 100e3;
// With up to half a tile of rows it pays off too, if R has so many weights that reading a slice
// less saves more than a barrier takes (timed with two threads, H = 224 to 320).
constexpr double kSharedWeights = 150e3;
// Hidden units of a slice: at least one panel of the widest vectors.
constexpr int64_t kSliceUnits = 16;

// Whether a step is one product of bfloat16, and nothing that needs another barrier.
bool IsOneBfloat16Product(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return config.dtype == HASTE_BFLOAT16 && config.weights_dtype != HASTE_INT8 &&
         cell.reset_gates == 0 && !cell.normalizes;
}

}  // namespace

Plan PlanCpu(const HasteRnnConfig& config, const HasteCellInfo& cell, const CpuProperties& cpu,
             bool backward) {
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
  const int64_t groups = std::min(n, CeilDiv(useful, k)), rows = CeilDiv(n, groups);
  // Only forward: backward takes up to 1.8 times as long.
  const bool half_tile = !backward && IsOneBfloat16Product(config, cell) && slices == useful &&
                         rows <= cpu.tile_rows / 2 && lane_macs >= kSharedWeights;
  const bool shares =
      groups > 1 && (rows < kFewRows || half_tile) && step_macs >= kSharedMacs * useful;
  if (slices >= 2 && (!fits_l2 || !rows_for_all || shares)) {
    plan.split = CpuSplit::kUnits;
    plan.threads = static_cast<int>(slices);
    plan.reason = !fits_l2        ? "R exceeds a core's cache: each keeps a slice"
                  : !rows_for_all ? "fewer rows than threads"
                                  : "few rows a thread: each reads a slice of R";
    return plan;
  }
  plan.rows_per_task = rows;
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

}  // namespace haste
