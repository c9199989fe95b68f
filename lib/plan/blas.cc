#include "lib/plan/blas.h"

#include <algorithm>
#include <cmath>

namespace haste {
namespace {

constexpr int64_t kAlign = 8;         // elements: 16 bytes of the smallest
constexpr int64_t kTile = 128;        // rows and columns that cuBLAS gives a multiprocessor
constexpr int64_t kLeastDepth = 512;  // of a split
constexpr int kMaxSplits = 4;
constexpr int64_t kMaxCount = 1 << 30;  // cuBLAS counts in 31 bits

// Clock cycles of an H200, fitted to 220 timings of all cells (docs/design/gpu.md): 13 % off (root
// mean square), 16-bit types 7 %. Where it says so, of a multiprocessor.
constexpr double kPhaseClocks = 10100;   // two launches that wait for each other
constexpr double kFloatClocks = 4000;    // more, in 32 and 64 bits
constexpr double kSecondClocks = 6200;   // of the operand's second part
constexpr double kL2BytesPerClock = 38;  // R, of a multiprocessor
constexpr double kMemoryBytesPerClock = 16.4;
constexpr double kL2Share = 0.85;             // of the L2 cache, that R may fill
constexpr double kElementClocks = 0.014;      // of the GPU: an element
constexpr double kElementByteClocks = 0.002;  // and a byte of its gates
constexpr double kLeastRows = 64;             // that a product takes the time of

// Multiply-adds of a multiprocessor and clock.
double ProductsPerClock(const BlasProblem& p, const BlasDevice& device) {
  if (p.storage_bytes == 8) return 127;
  if (p.storage_bytes == 4 && (p.exact || device.sm_major < 8)) return 79;
  const double of_hopper = p.storage_bytes == 4 ? 714 : 1190;
  // Those of 12.x are the tensor cores of 8.x (a guess from data sheets).
  return device.sm_major == 9 || device.sm_major == 10 ? of_hopper : of_hopper / 2;
}

}  // namespace

bool PlanBlas(const BlasProblem& p, const BlasDevice& device, BlasTiling* tiling) {
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

double BlasClocks(const BlasProblem& p, const BlasDevice& device) {
  const double weights = static_cast<double>(p.lanes) * p.hidden * p.hidden * p.gates;
  const double bytes = weights * p.storage_bytes;
  const bool in_l2 = bytes <= kL2Share * static_cast<double>(device.l2_bytes);
  const double load = p.operand_terms * bytes / (in_l2 ? kL2BytesPerClock : kMemoryBytesPerClock);
  // A depth that must not be split leaves multiprocessors idle.
  const double idle = p.whole_depth && p.backward ? 2 : 1;
  const double multiply = idle * p.operand_terms * weights *
                          std::max(static_cast<double>(p.batch), kLeastRows) /
                          ProductsPerClock(p, device);
  const double elements = static_cast<double>(p.batch) * p.lanes * p.hidden;
  return kPhaseClocks + (p.storage_bytes > 2 ? kFloatClocks : 0) +
         (p.operand_terms - 1) * kSecondClocks +
         std::hypot(load, multiply) / device.multiprocessors +
         elements * (kElementClocks + kElementByteClocks * p.gates * p.storage_bytes);
}

}  // namespace haste
