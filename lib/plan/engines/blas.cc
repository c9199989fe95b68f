#include "lib/plan/engines/blas.h"

#include <algorithm>
#include <cmath>

#include "lib/plan/costs/cost_table.h"

namespace haste {
namespace {

constexpr int64_t kAlign = 8;         // elements: 16 bytes of the smallest
constexpr int64_t kTile = 128;        // rows and columns that cuBLAS gives a multiprocessor
constexpr int64_t kLeastDepth = 512;  // of a split
constexpr int kMaxSplits = 4;
constexpr int64_t kMaxCount = 1 << 30;  // cuBLAS counts in 31 bits

// Multiply-adds of a multiprocessor and clock.
double ProductsPerClock(const BlasProblem& p, const CudaProperties& device,
                        const BlasCosts& costs) {
  if (p.storage_bytes == 8) return costs.products_per_clock[0];
  if (p.storage_bytes == 4 && (p.exact || device.sm_major < 8))
    return p.backward ? costs.backward_float_products_per_clock : costs.products_per_clock[1];
  const double of_hopper = costs.products_per_clock[p.storage_bytes == 4 ? 2 : 3];
  // Those of 12.x are the tensor cores of 8.x (a guess from data sheets).
  return device.sm_major == 9 || device.sm_major == 10 ? of_hopper
                                                       : of_hopper * costs.older_tensor_share;
}

}  // namespace

bool PlanBlas(const BlasProblem& p, const CudaProperties& device, BlasTiling* tiling) {
  const int64_t tiles = CeilDiv(p.batch, kTile) * CeilDiv(p.columns(), kTile) * p.lanes;
  // A product that is wider than deep would take longer to add up than it gains.
  const bool may_split = !p.whole_depth && p.columns() <= p.depth();
  int splits = 1;
  while (may_split && splits < kMaxSplits && tiles * splits * 2 <= device.multiprocessors &&
         p.depth() / (splits * 2) >= kLeastDepth) {
    splits *= 2;
  }
  tiling->splits = splits;
  tiling->depth = PadTo(CeilDiv(p.depth(), splits), kAlign);
  tiling->columns = PadTo(p.columns(), kAlign);
  return p.batch <= kMaxCount && tiling->columns <= kMaxCount && tiling->depth <= kMaxCount &&
         p.lanes * splits <= kMaxCount &&
         // Where rows lie side by side for all lanes, with what the cell keeps.
         (!p.whole_depth || p.lanes <= kMaxCount / (2 * tiling->columns));
}

double BlasClocks(const BlasProblem& p, const CudaProperties& device, const BlasCosts& costs) {
  const double weights = static_cast<double>(p.lanes) * p.hidden * p.hidden * p.gates;
  const double bytes = weights * p.storage_bytes;
  const bool in_l2 = bytes <= costs.l2_share * static_cast<double>(device.l2_bytes);
  const double load =
      p.operand_terms * bytes / (in_l2 ? costs.l2_bytes_per_clock : costs.memory_bytes_per_clock);
  // A depth that must not be split leaves multiprocessors idle.
  const double idle = p.whole_depth && p.backward ? 2 : 1;
  const double multiply = idle * p.operand_terms * weights *
                          std::max(static_cast<double>(p.batch), costs.least_rows) /
                          ProductsPerClock(p, device, costs);
  const double elements = static_cast<double>(p.batch) * p.lanes * p.hidden;
  return costs.phase_clocks + (p.storage_bytes > 2 ? costs.float_clocks : 0) +
         (p.operand_terms - 1) * costs.second_clocks + (p.whole_depth ? costs.norm_clocks : 0) +
         std::hypot(load, multiply) / device.multiprocessors +
         elements * (costs.element_clocks + costs.element_byte_clocks * p.gates * p.storage_bytes);
}

}  // namespace haste
