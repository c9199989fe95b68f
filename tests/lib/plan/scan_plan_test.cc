// Pins what PlanLinearScan decides; needs no GPU. Also checks the linear form of cells with
// kLinearScan against their Forward.
#include <cmath>

#include "lib/cells/cells.h"
#include "lib/plan/scan.h"
#include "tests/lib/check.h"

namespace haste_test {
namespace {

haste::CudaProperties H200() {
  haste::CudaProperties device;
  device.sm_major = 9;
  device.multiprocessors = 132;
  device.shared_bytes_per_block = 227 << 10;
  return device;
}

void Plans() {
  const struct {
    int64_t elements, time, tile_bytes, warp_bytes;
    int warps;
    int64_t chunks, chunk_steps;
  } cases[] = {
      {16 * 768, 1024, 2048, 8192, 5, 1, 1040},           // every multiprocessor has blocks
      {64 * 1024, 256, 2048, 8192, 1, 1, 256},            // and all the blocks that it can hold
      {256, 4096, 2048, 8192, 16, 16, 256},               // eight blocks: chunks
      {256, 300, 2048, 8192, 16, 1, 384},                 // too short for them
      {40 * 128, 4096, 2048, 8192, 8, 1, 4096},           // two blocks share registers
      {256, 4096, 4096, 24576, 9, 15, 288},               // shared memory bounds the warps
      {1, 1, 2048, 8192, 1, 1, 8},                        //
      {1, 3000000, 2048, 8192, 16, 132, 22784},           //
      {1056, 2147480000, 2048, 8192, 16, 1, 2147480064},  // chunks would be too long to count
  };
  for (const auto& c : cases) {
    const haste::ScanPlan plan =
        haste::PlanLinearScan({c.elements, c.time, 8, c.tile_bytes, c.warp_bytes, 1280}, H200());
    const long long elements = c.elements, time = c.time, chunks = plan.chunks;
    EXPECT_TRUE(plan.warps == c.warps, "%lld elements, T=%lld: %d", elements, time, plan.warps);
    EXPECT_TRUE(plan.chunks == c.chunks, "%lld elements, T=%lld: %lld", elements, time, chunks);
    EXPECT_TRUE(plan.chunk_steps == c.chunk_steps, "%lld elements, T=%lld: %lld", elements, time,
                static_cast<long long>(plan.chunk_steps));
    EXPECT_TRUE(plan.chunks * plan.chunk_steps >= c.time, "%lld elements, T=%lld", elements, time);
    EXPECT_TRUE((plan.chunks - 1) * plan.chunk_steps < c.time, "%lld elements, T=%lld", elements,
                time);
  }
}

template <class Cell>
void Pieces() {
  if constexpr (Cell::kLinearScan) {
    const haste::Activations act = {HASTE_TANH, HASTE_SIGMOID};
    for (int trial = 0; trial < 100; ++trial) {
      const double share[1] = {Cell::kZoneoutInGate ? trial % 3 * 0.5 : 0.0};
      const double before[1] = {std::sin(trial)}, ds[1] = {std::cos(2 * trial)}, dy = 0.7;
      double x[Cell::kGates], gate[Cell::kGates], pieces[Cell::kGates], after[1], y = 0, a, b;
      for (int g = 0; g < Cell::kGates; ++g) x[g] = std::sin(7 * trial + g) * 3;
      Cell::Forward(act, share, x, x, before, gate, after, &y);
      Cell::Gates(act, x, pieces);
      Cell::Affine(share, pieces, &a, &b);
      const double w = Cell::OutputWeight(pieces);
      EXPECT_NEAR(a * before[0] + b, after[0], 1e-14, "%s: state", Cell::kName);
      if (!Cell::kOutputsState) EXPECT_NEAR(w * after[0], y, 1e-14, "%s: output", Cell::kName);
      double dx[Cell::kGates], back[1], entering[1] = {ds[0] + (Cell::kOutputsState ? dy : 0)};
      Cell::Backward(act, share, pieces, before, entering, dy, dx, back);
      EXPECT_NEAR(a * (ds[0] + w * dy), back[0], 1e-14, "%s: gradient", Cell::kName);
    }
  }
}

}  // namespace
}  // namespace haste_test

int main() {
  haste_test::Plans();
#define HASTE_PIECES(cell) haste_test::Pieces<haste::cell>();
  HASTE_CELLS(HASTE_PIECES)
  return haste_test::Report("scan_plan_test");
}
