// bfloat16 forward and backward, on each kind of instruction that this machine has, against
// float64: and the same bits for any number of threads and of rows.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/lib/problem.h"
#include "tests/lib/simd_targets.h"
#include "tests/lib/stored.h"

namespace haste_test {
namespace {

struct Sizes {
  int64_t n, t, k, h;
};
using Results = std::map<std::string, Stored>;

// Of the rows [first, first + rows) of the problem: the outputs and the gradients of a dtype.
Results Run(const HasteCellInfo& cell, const Sizes& s, const Tensors& in, int32_t dtype,
            int threads, int64_t first, int64_t rows) {
  const int64_t state = s.k * s.h, walk = s.t * state, G = cell.gates;
  haste::RnnConfig config =
      haste::Config(cell.name, static_cast<HasteDtype>(dtype), HASTE_CPU, rows, s.t, s.k, s.h);
  if (cell.exponential) config.recurrent_activation = HASTE_EXPONENTIAL;
  config.epsilon = 0.01f;
  const std::vector<uint8_t> reverse = {0, 1};
  config.reverse = reverse.data();
  config.training = 1;
  config.recurrent_dropout = 0.25f;
  const int64_t seed[2] = {5, 6};
  std::vector<uint8_t> mask(rows * s.t, 1);
  for (int64_t r = 0; r < rows; ++r) mask[r * s.t + s.t / 2] = (first + r) % 3 != 0;

  Results given, out;
  const auto take = [&](const std::string& name, int64_t row) {
    const Tensor& all = in.at(name);
    const Tensor part(all.begin() + first * row,
                      row == 0 ? all.end() : all.begin() + (first + rows) * row);
    return given.emplace(name, Stored(dtype, part)).first->second.data();
  };
  const auto make = [&](const std::string& name, int64_t count) {
    return out.emplace(name, Stored(dtype, count)).first->second.data();
  };
  haste::ForwardArgs args;
  args.set_wx(take("wx", walk * G)).set_R(take("R", 0)).set_mask(mask.data()).set_seed(seed);
  args.set_y(make("y", rows * walk)).set_gates(make("gates", rows * walk * G));
  if (cell.normalizes) args.set_products(make("products", rows * walk * G));
  for (int e = 0; e < cell.extras; ++e) args.set_extra(e, take(cell.extra_names[e], 0));
  for (int i = 0; i < cell.saved; ++i) args.set_saved(i, make(cell.saved_names[i], rows * walk));
  for (int i = 0; i < cell.states; ++i) {
    args.set_initial_state(i, take(std::string(cell.state_names[i]) + "0", state));
  }
  haste::Executor executor;
  executor.threads = threads;
  haste::ScratchMemory scratch(HASTE_CPU);
  ExpectOk(haste::Forward(config, args, scratch, executor));

  haste::BackwardArgs back;
  back.set_R(args.R).set_mask(mask.data()).set_seed(seed).set_gates(args.gates);
  back.set_products(args.products).set_dy(take("dy", walk)).set_dwx(make("dwx", rows * walk * G));
  if (cell.splits_gradient) back.set_dq(make("dq", rows * walk * G));
  for (int e = 0; e < cell.extras; ++e) {
    back.set_extra(e, args.extra[e]);
    const bool each = strcmp(cell.extra_dims[e], "KGH") == 0;
    back.set_dextra(e, make(std::string("d") + cell.extra_names[e], each ? state * G : state));
  }
  for (int i = 0; i < cell.saved; ++i) back.set_saved(i, args.saved[i]);
  for (int i = 0; i < cell.states; ++i) {
    back.set_initial_state_gradient(i, make(std::string("d") + cell.state_names[i], rows * state));
  }
  ExpectOk(haste::Backward(config, back, scratch, executor));
  return out;
}

// Normal numbers that bfloat16 holds, so that float64 begins from the same.
Tensor Drawn(int64_t count, double size, double mean, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Tensor values(count);
  for (double& v : values) v = mean + size * normal(random);
  return Stored(HASTE_BFLOAT16, values).Values();
}

// y of a layer, which is given x, W and b, in inference. masked: with a mask that masks nothing.
// zoneout: the rate of the last state that may have one of its own.
Stored RunLayer(const HasteCellInfo& cell, const Sizes& s, int64_t features, const Tensors& in,
                int32_t dtype, int threads, bool masked = false, float zoneout = 0) {
  haste::RnnConfig config =
      haste::Config(cell.name, static_cast<HasteDtype>(dtype), HASTE_CPU, s.n, s.t, s.k, s.h);
  if (cell.exponential) config.recurrent_activation = HASTE_EXPONENTIAL;
  config.zoneout[cell.states > 1 ? 1 : 0] = zoneout;
  const std::vector<uint8_t> ones(s.n * s.t, 1);
  const std::vector<uint8_t> reverse = {0, 1};
  config.reverse = reverse.data();
  Results given;
  const auto take = [&](const std::string& name) {
    return given.emplace(name, Stored(dtype, in.at(name))).first->second.data();
  };
  Stored y(dtype, s.n * s.t * s.k * s.h);
  haste::ForwardArgs args;
  args.set_R(take("R")).set_y(y.data());
  if (masked) args.set_mask(ones.data());
  for (int e = 0; e < cell.extras; ++e) args.set_extra(e, take(cell.extra_names[e]));
  haste::LayerForwardArgs layer;
  layer.set_features(features).set_x(take("x")).set_W(take("W")).set_b(take("b"));
  haste::Executor executor;
  executor.threads = threads;
  haste::ScratchMemory scratch(HASTE_CPU);
  ExpectOk(haste::LayerForward(config, layer, args, scratch, executor));
  return y;
}

// Longer walks than are formed at once; few rows in all; one step, which is not formed; no
// features.
void TestLayer(const HasteCellInfo& cell, std::mt19937& random) {
  struct LayerSizes {
    Sizes s;
    int64_t features;
  };
  for (const auto& [s, features] : {LayerSizes{{1, 110, 2, 40}, 70}, LayerSizes{{5, 33, 2, 33}, 9},
                                    LayerSizes{{50, 5, 1, 80}, 64}, LayerSizes{{3, 1, 1, 24}, 20},
                                    LayerSizes{{7, 2, 2, 48}, 37}, LayerSizes{{2, 3, 1, 24}, 0},
                                    LayerSizes{{8, 3, 1, 232}, 40}}) {
    Tensors in;
    const auto draw = [&](const std::string& name, int64_t count, double size, double mean = 0) {
      in[name] = Drawn(count, size, mean, random);
    };
    const int64_t units = s.k * cell.gates * s.h;
    draw("x", s.n * s.t * features, 1);
    draw("W", features * units, 1 / std::sqrt(features + 1.0));
    draw("b", units, 0.3);
    draw("R", units * s.h, 0.8 / std::sqrt(s.h));
    for (int e = 0; e < cell.extras; ++e) {
      const bool each = strcmp(cell.extra_dims[e], "KGH") == 0;
      const bool gamma = strstr(cell.extra_names[e], "gamma") != nullptr;
      draw(cell.extra_names[e], each ? units : s.k * s.h, gamma ? 0.1 : 0.3, gamma ? 0.3 : 0);
    }
    const Stored got = RunLayer(cell, s, features, in, HASTE_BFLOAT16, 1);
    const Tensor ours = got.Values();
    const Tensor theirs = RunLayer(cell, s, features, in, HASTE_FLOAT64, 1).Values();
    double error = 0, size = 1e-30;
    for (size_t i = 0; i < ours.size(); ++i) {
      error += std::pow(ours[i] - theirs[i], 2);
      size += std::pow(theirs[i], 2);
    }
    EXPECT_NEAR(std::sqrt(error / size), 0, 0.04, "layer of %s, N=%d T=%d H=%d", cell.name,
                static_cast<int>(s.n), static_cast<int>(s.t), static_cast<int>(s.h));
    for (int threads : {2, 3}) {
      EXPECT_TRUE(RunLayer(cell, s, features, in, HASTE_BFLOAT16, threads) == got,
                  "layer of %s, N=%d T=%d H=%d: %d threads", cell.name, static_cast<int>(s.n),
                  static_cast<int>(s.t), static_cast<int>(s.h), threads);
    }
    const Tensor one = RunLayer(cell, {1, s.t, s.k, s.h}, features, in, HASTE_BFLOAT16, 2).Values();
    EXPECT_TRUE(std::equal(one.begin(), one.end(), ours.begin()),
                "layer of %s, N=%d T=%d H=%d: a row alone", cell.name, static_cast<int>(s.n),
                static_cast<int>(s.t), static_cast<int>(s.h));
    // Where nothing interrupts the walk, it takes a loop of its own.
    for (int32_t dtype : {HASTE_BFLOAT16, HASTE_FLOAT16, HASTE_FLOAT32}) {
      for (float zoneout : {0.0f, 0.1f}) {
        EXPECT_TRUE(RunLayer(cell, s, features, in, dtype, 1, /*masked=*/true, zoneout) ==
                        RunLayer(cell, s, features, in, dtype, 1, /*masked=*/false, zoneout),
                    "layer of %s, dtype %d, N=%d T=%d H=%d, Zoneout %g: without a mask", cell.name,
                    static_cast<int>(dtype), static_cast<int>(s.n), static_cast<int>(s.t),
                    static_cast<int>(s.h), zoneout);
      }
    }
  }
}

void TestCell(const HasteCellInfo& cell, std::mt19937& random) {
  // The last: with AMX, threads share R out forward (lib/plan/cpu.cc), and rows backward.
  for (const Sizes& s : {Sizes{1, 3, 2, 40}, Sizes{5, 4, 2, 33}, Sizes{35, 3, 1, 80},
                         Sizes{18, 2, 1, 130}, Sizes{8, 3, 1, 232}}) {
    Tensors in;
    const auto draw = [&](const std::string& name, int64_t count, double size, double mean = 0) {
      in[name] = Drawn(count, size, mean, random);
    };
    const int64_t units = s.k * cell.gates * s.h, state = s.k * s.h;
    draw("wx", s.n * s.t * units, 1);
    draw("R", units * s.h, 0.8 / std::sqrt(s.h));
    draw("dy", s.n * s.t * state, 1);
    for (int e = 0; e < cell.extras; ++e) {
      const bool each = strcmp(cell.extra_dims[e], "KGH") == 0;
      const bool gamma = strstr(cell.extra_names[e], "gamma") != nullptr;
      draw(cell.extra_names[e], each ? units : state, gamma ? 0.1 : 0.3, gamma ? 0.3 : 0);
    }
    for (int i = 0; i < cell.states; ++i) {
      const std::string name = std::string(cell.state_names[i]) + "0";
      draw(name, s.n * state, 0.5);
      for (double& v : in[name]) v = i > 1 ? 1 : v;
    }
    const Results got = Run(cell, s, in, HASTE_BFLOAT16, 1, 0, s.n);
    const Results exact = Run(cell, s, in, HASTE_FLOAT64, 1, 0, s.n);
    for (const auto& [name, stored] : got) {
      const Tensor ours = stored.Values(), theirs = exact.at(name).Values();
      double error = 0, size = 1e-30;
      for (size_t i = 0; i < ours.size(); ++i) {
        error += std::pow(ours[i] - theirs[i], 2);
        size += std::pow(theirs[i], 2);
      }
      // Numbers have 8 bits, so that each is off by 0.2 % on average.
      EXPECT_NEAR(std::sqrt(error / size), 0, 0.04, "%s, N=%d H=%d: %s", cell.name,
                  static_cast<int>(s.n), static_cast<int>(s.h), name.c_str());
    }
    for (int threads : {2, 3}) {
      EXPECT_TRUE(Run(cell, s, in, HASTE_BFLOAT16, threads, 0, s.n) == got,
                  "%s, N=%d H=%d: %d threads", cell.name, static_cast<int>(s.n),
                  static_cast<int>(s.h), threads);
    }
    // The first row alone: what is drawn depends on the row's number.
    const Results alone = Run(cell, s, in, HASTE_BFLOAT16, 1, 0, 1);
    for (const char* name : {"y", "gates", "dwx"}) {
      const Tensor one = alone.at(name).Values();
      Tensor all = got.at(name).Values();
      all.resize(one.size());
      EXPECT_TRUE(all == one, "%s, N=%d H=%d: a row alone, %s", cell.name, static_cast<int>(s.n),
                  static_cast<int>(s.h), name);
    }
  }
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = haste_test::RandomSeed();
  return haste_test::OnTargets("bfloat16_test", {"avx3_dot", "avx3", "avx2"}, [&](const char*) {
    std::mt19937 random(seed);
    const char* only = getenv("HASTE_TEST_CELL");
    for (int i = 0; i < haste_cell_count(); ++i) {
      const HasteCellInfo& cell = *haste_cell(i);
      if (only != nullptr && strcmp(only, cell.name) != 0) continue;
      if (cell.recurrence != HASTE_DENSE) continue;
      haste_test::TestCell(cell, random);
      haste_test::TestLayer(cell, random);
    }
  });
}
