// A layer whose caller gives no wx: the walk computes x·W + b for a few steps at a time, or in
// scratch memory. It must equal the same layer with a wx, bit for bit for any number of threads.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "tests/lib/problem.h"
#include "tests/lib/simd_targets.h"

namespace haste_test {
namespace {

struct Size {
  int64_t batch, time, hidden, features;
};

double Difference(const Tensor& a, const Tensor& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::fabs(a[i] - b[i]));
  }
  return most;
}

void Compare(const HasteCellInfo& cell, const Size& size, bool input_norm, bool masked,
             std::mt19937& random) {
  static const uint8_t kReverse[2] = {0, 1};
  Problem problem(cell, size.batch, size.time, 2, size.hidden);
  problem.config.reverse = kReverse;
  problem.features = size.features;
  problem.input_norm = input_norm;
  for (int i = 0; masked && i < size.batch * size.time; ++i) {
    problem.mask.push_back(random() % 3 != 0);
  }
  const Tensors in = problem.Inputs(random, /*initial_states=*/true);
  Tensors want = problem.Forward(in, 1);
  problem.gives_wx = false;
  const Tensors got = problem.Forward(in, 1);
  const std::string where = std::string(cell.name) + ", N=" + std::to_string(size.batch) +
                            " T=" + std::to_string(size.time) +
                            " H=" + std::to_string(size.hidden) + (masked ? ", masked" : "");
  for (const auto& [name, value] : want) {
    EXPECT_NEAR(Difference(got.at(name), value), 0, 1e-11, "%s: %s", where.c_str(), name.c_str());
  }
  for (const int threads : {2, 3}) {
    EXPECT_TRUE(problem.Forward(in, threads) == got, "%s: the same bits with %d threads",
                where.c_str(), threads);
  }
  for (const int threads : {1, 2, 3, 8}) {
    const Tensors bare = problem.Forward(in, threads, /*in_place=*/false, /*keep=*/false);
    EXPECT_TRUE(bare.at("y") == got.at("y"), "%s: the same bits without a reserve, %d threads",
                where.c_str(), threads);
  }
}

void AllCells(std::mt19937& random) {
  // One row with few or many steps; several rows; units that do not fill a vector; panels that are
  // not full; more steps than are computed together. Of seven rows threads get seven, or four and
  // three, or five and two: tiles that compute x·W themselves, and tiles that read it, whichever
  // number of rows a target asks for. With and without what makes a step plain.
  const Size sizes[] = {{1, 1, 16, 5}, {1, 3, 24, 4},  {1, 110, 16, 3},
                        {1, 7, 5, 3},  {2, 9, 40, 6},  {7, 50, 19, 4},
                        {7, 8, 48, 4}, {5, 50, 19, 4}, {33, 14, 8, 300}};
  for (int i = 0; i < haste_cell_count(); ++i) {
    const HasteCellInfo& cell = *haste_cell(i);
    if (cell.separate_gates) continue;
    for (const Size& size : sizes) Compare(cell, size, false, size.time > 8, random);
    Compare(cell, sizes[4], /*input_norm=*/true, false, random);
  }
}

void BadArguments() {
  const haste::RnnConfig config = haste::Config("lstm", HASTE_FLOAT64, HASTE_CPU, 2, 3, 1, 4);
  double some[1] = {0};
  haste::LayerForwardArgs layer = {};
  layer.features = 3;
  haste::ForwardArgs args = {};
  const auto message = [&](void* workspace) {
    return haste::LayerForward(config, layer, args, workspace).message();
  };
  EXPECT_TRUE(message(nullptr).find("workspace") == 0, "%s", message(nullptr).c_str());
  EXPECT_TRUE(message(some).find("W") == 0, "%s", message(some).c_str());
  layer.W = some;
  EXPECT_TRUE(message(some).find("x") == 0, "%s", message(some).c_str());
  layer.x = some;
  EXPECT_TRUE(message(some).find("R") == 0, "%s", message(some).c_str());
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = haste_test::RandomSeed();
  const auto test = [&](const char*) {
    std::mt19937 random(seed);
    haste_test::AllCells(random);
    haste_test::BadArguments();
  };
  return haste_test::OnTargets("formed_input_test", {"avx2", "baseline"}, test);
}
