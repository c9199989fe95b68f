// int8 weights against the same arithmetic written plainly: integer sums, and float32 after them.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/lib/problem.h"
#include "tests/lib/simd_targets.h"
#include "tests/lib/stored.h"

namespace haste_test {
namespace {

// (Σ q_a·q) · (m / 127) · scale of a row `a` with column j of q [depth, columns].
float Product(const std::vector<float>& a, const int8_t* q, int64_t columns, int64_t j,
              float scale) {
  float m = 0;
  bool finite = true;
  for (float v : a) {
    finite &= std::isfinite(v);
    m = std::max(m, std::fabs(v));
  }
  if (!finite) return NAN;
  if (m < 0x1p-120f) return 0;
  const float inverse = 127 / m;
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<int64_t>(std::nearbyint(a[i] * inverse)) * q[i * columns + j];
  }
  return static_cast<float>(static_cast<int32_t>(sum)) * (m / 127) * scale;
}

std::vector<int8_t> RandomWeights(int64_t count, std::mt19937& random) {
  std::uniform_int_distribution<int> any(-128, 127);
  std::vector<int8_t> q(count);
  for (int8_t& v : q) v = static_cast<int8_t>(any(random));
  return q;
}
std::vector<float> RandomScales(int64_t count, double size, std::mt19937& random) {
  std::uniform_real_distribution<float> any(0.5, 1.5);
  std::vector<float> scale(count);
  for (float& v : scale) v = static_cast<float>(size * any(random) / 127);
  return scale;
}

void Products(std::mt19937& random) {
  for (int32_t dtype : {HASTE_FLOAT32, HASTE_FLOAT16, HASTE_BFLOAT16}) {
    for (int64_t m : {1, 3, 20, 33, 130}) {
      for (int64_t n : {1, 37, 160, 1100}) {
        for (int64_t k : {1, 53, 300}) {
          const bool turned = (m + n + k) % 2 == 0, biased = n != 37;  // strides of a, b; bias
          Tensor values(m * k), bias(n);
          std::normal_distribution<double> normal;
          for (double& v : values) v = normal(random);
          for (double& v : bias) v = normal(random);
          if (m > 1) {  // rows that are special, beside one that is not
            values[k] = m > 3 ? INFINITY : NAN;
            for (int64_t i = 0; m > 3 && i < k; ++i) values[2 * k + i] = i % 2 ? 1e-38 : 0;
          }
          Stored a(dtype, values), b(dtype, bias), c(dtype, m * n);
          const Tensor given = a.Values(), added = b.Values();
          const std::vector<int8_t> q = RandomWeights(k * n, random);
          const std::vector<float> scale = RandomScales(n, 0.3, random);
          std::vector<int8_t> stored = q;
          Tensor order = given;
          if (turned) {
            for (int64_t i = 0; i < k; ++i) {
              for (int64_t j = 0; j < n; ++j) stored[j * k + i] = q[i * n + j];
              for (int64_t r = 0; r < m; ++r) order[i * m + r] = given[r * k + i];
            }
          }
          Stored in(dtype, order);
          HasteGemm gemm = HASTE_INIT(HasteGemm);
          gemm.dtype = dtype;
          gemm.m = m;
          gemm.n = n;
          gemm.k = k;
          gemm.a = in.data();
          gemm.a_row = turned ? 1 : k;
          gemm.a_col = turned ? m : 1;
          gemm.b = stored.data();
          gemm.b_row = turned ? 1 : n;
          gemm.b_col = turned ? k : 1;
          gemm.b_scale = scale.data();
          gemm.c = c.data();
          gemm.c_row = n;
          gemm.bias = biased ? b.data() : nullptr;
          HasteStatus status = {};
          size_t bytes = 0;
          haste_gemm_workspace_bytes(&gemm, &bytes, &status);
          Scratch scratch(bytes);
          haste::Executor executor;
          executor.threads = 2;
          const int32_t code = haste_gemm(&gemm, scratch.data(), &executor, &status);
          EXPECT_TRUE(code == HASTE_OK, "%s", status.message);
          Tensor want(m * n);
          for (int64_t r = 0; r < m; ++r) {
            const std::vector<float> row(given.begin() + r * k, given.begin() + (r + 1) * k);
            for (int64_t j = 0; j < n; ++j) {
              const float product = Product(row, q.data(), n, j, scale[j]);
              want[r * n + j] = product + static_cast<float>(biased ? added[j] : 0);
            }
          }
          const Tensor got = c.Values(), wanted = Stored(dtype, want).Values();
          int wrong = 0;
          for (size_t i = 0; i < got.size(); ++i) {
            wrong += std::isnan(wanted[i]) ? !std::isnan(got[i]) : got[i] != wanted[i];
          }
          EXPECT_TRUE(wrong == 0, "dtype %d, m=%d n=%d k=%d: %d elements", static_cast<int>(dtype),
                      static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), wrong);
        }
      }
    }
  }
}

struct Sizes {
  int64_t n, t, k, h, c;
};

// A cell's tensors in float32, with int8 weights and the weights that those stand for.
class Recurrence {
 public:
  Recurrence(const HasteCellInfo& cell, const Sizes& s, std::mt19937& random)
      : cell_(cell), s_(s), units_(s.k * cell.gates * s.h) {
    std::normal_distribution<float> normal;
    const auto draw = [&](int64_t count, float size) {
      std::vector<float> v(count);
      for (float& each : v) each = size * normal(random);
      return v;
    };
    x_ = draw(s.n * s.t * s.c, 1);
    b_ = draw(units_, 0.3f);
    W_ = RandomWeights(s.c * units_, random);
    W_scale_ = RandomScales(units_, 1 / std::sqrt(s.c + 1), random);
    R_ = RandomWeights(s.h * units_, random);
    R_scale_ = RandomScales(units_, 1 / std::sqrt(s.h), random);
    for (int e = 0; e < cell.extras; ++e) {
      extra_[e] = draw(units_, 0.3f);
      if (strstr(cell.extra_names[e], "gamma") != nullptr) {
        for (float& v : extra_[e]) v += 1;
      }
    }
    for (int i = 0; i < cell.states; ++i) {
      s0_[i] = draw(s.n * s.k * s.h, 0.5f);
      for (float& v : s0_[i]) v = i > 1 ? 1 + std::fabs(v) : v;
    }
    for (int64_t i = 0; i < s.n * s.t; ++i) mask_.push_back(i % s.t == 0 || random() % 4 > 0);
    ones_.resize(s.n * s.t, 1);
  }

  // Steps that are masked.
  enum Mask { kSome, kOnes, kNoMask } mask = kSome;
  // Of the last state that may have a rate of its own.
  float zoneout = 0.1f;

  // y and the final states of rows [first, first + rows), of int8 weights or of the floats that
  // they stand for. gives_wx: with memory for all of wx, so that the walk does not form it.
  std::vector<std::vector<float>> Run(bool int8, int threads, int64_t first, int64_t rows,
                                      bool gives_wx = false) const {
    haste::RnnConfig config =
        haste::Config(cell_.name, HASTE_FLOAT32, HASTE_CPU, rows, s_.t, s_.k, s_.h);
    if (cell_.exponential) config.recurrent_activation = HASTE_EXPONENTIAL;
    config.zoneout[cell_.states > 1 ? 1 : 0] = zoneout;
    const std::vector<uint8_t> reverse = {0, 1, 0};
    config.reverse = reverse.data();
    if (int8) config.weights_dtype = HASTE_INT8;
    const std::vector<float> R = Dequantized(R_, R_scale_, s_.h, true);
    const std::vector<float> W = Dequantized(W_, W_scale_, s_.c, false);
    const int64_t state = s_.k * s_.h;
    haste::ForwardArgs args;
    args.R = int8 ? static_cast<const void*>(R_.data()) : R.data();
    if (int8) args.R_scale = R_scale_.data();
    if (mask != kNoMask) args.mask = (mask == kSome ? mask_ : ones_).data() + first * s_.t;
    std::vector<std::vector<float>> out(1 + cell_.states, std::vector<float>(rows * state));
    out[0].resize(rows * s_.t * state);
    args.y = out[0].data();
    for (int e = 0; e < cell_.extras; ++e) args.extra[e] = extra_[e].data();
    for (int i = 0; i < cell_.states; ++i) {
      args.s0[i] = s0_[i].data() + first * state;
      args.sT[i] = out[1 + i].data();
    }
    haste::LayerForwardArgs layer;
    layer.features = s_.c;
    layer.x = x_.data() + first * s_.t * s_.c;
    layer.b = b_.data();
    layer.W = int8 ? static_cast<const void*>(W_.data()) : W.data();
    if (int8) layer.W_scale = W_scale_.data();
    std::vector<float> wx(gives_wx ? rows * s_.t * units_ : 0);
    if (gives_wx) layer.wx = wx.data();
    haste::Executor executor;
    executor.threads = threads;
    haste::ScratchMemory scratch(HASTE_CPU);
    ExpectOk(haste::LayerForward(config, layer, args, scratch, executor));
    return out;
  }

  const Sizes& sizes() const { return s_; }

 private:
  // R [K, H, G, H] or W [C, K, G, H].
  std::vector<float> Dequantized(const std::vector<int8_t>& q, const std::vector<float>& scale,
                                 int64_t depth, bool by_lanes) const {
    std::vector<float> w(q.size());
    const int64_t lane = cell_.gates * s_.h;
    for (size_t i = 0; i < q.size(); ++i) {
      const int64_t k = static_cast<int64_t>(i) / (depth * lane);
      w[i] = q[i] * scale[by_lanes ? k * lane + i % lane : i % units_];
    }
    return w;
  }

  const HasteCellInfo& cell_;
  const Sizes s_;
  const int64_t units_;
  std::vector<float> x_, b_, W_scale_, R_scale_, extra_[HASTE_MAX_EXTRAS], s0_[HASTE_MAX_STATES];
  std::vector<int8_t> W_, R_;
  std::vector<uint8_t> mask_, ones_;
};

// Near what the floats that the weights stand for give; the same bits alone and among other rows,
// and for any number of threads.
void Recurrences(const HasteCellInfo& cell, std::mt19937& random) {
  for (const Sizes& s : {Sizes{1, 1, 1, 20, 9}, Sizes{1, 7, 2, 128, 40}, Sizes{5, 6, 2, 33, 40},
                         Sizes{19, 5, 1, 50, 16}, Sizes{40, 1, 2, 80, 16}, Sizes{37, 4, 1, 144, 24},
                         Sizes{2, 3, 1, 300, 24}, Sizes{1, 110, 2, 40, 70}, Sizes{7, 31, 2, 24, 5},
                         Sizes{3, 4, 1, 24, 0}}) {
    Recurrence problem(cell, s, random);
    const auto got = problem.Run(true, 1, 0, s.n), near = problem.Run(false, 1, 0, s.n);
    // A long walk adds up what each step rounds.
    for (size_t i = 0; s.t <= 10 && i < got.size(); ++i) {
      double error = 0, size = 0;
      for (size_t j = 0; j < got[i].size(); ++j) {
        error += std::pow(got[i][j] - near[i][j], 2);
        size += std::pow(near[i][j], 2);
      }
      // Eight bits: some 1 % of a product, less of a state. A normalisation divides what is left of
      // a row without its mean, and the error with it.
      EXPECT_NEAR(std::sqrt(error / size), 0, cell.normalizes ? 0.05 : 0.03,
                  "%s, N=%d H=%d: output %zu", cell.name, static_cast<int>(s.n),
                  static_cast<int>(s.h), i);
      EXPECT_TRUE(error > 0, "%s: as exact as floats", cell.name);
    }
    EXPECT_TRUE(problem.Run(true, 2, 0, s.n, /*gives_wx=*/true) == got, "%s, N=%d H=%d: with wx",
                cell.name, static_cast<int>(s.n), static_cast<int>(s.h));
    EXPECT_TRUE(problem.Run(true, 2, 0, s.n) == got, "%s: two threads", cell.name);
    EXPECT_TRUE(problem.Run(true, 3, 0, s.n) == got, "%s: three threads", cell.name);
    const int64_t last = s.n - 1;
    const auto alone = problem.Run(true, 1, last, 1);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t row = alone[i].size();
      EXPECT_TRUE(memcmp(alone[i].data(), got[i].data() + last * row, row * sizeof(float)) == 0,
                  "%s, N=%d H=%d: a row alone, output %zu", cell.name, static_cast<int>(s.n),
                  static_cast<int>(s.h), i);
    }
    // Where nothing interrupts the walk, it takes a loop of its own.
    for (float zoneout : {0.1f, 0.0f}) {
      problem.zoneout = zoneout;
      problem.mask = Recurrence::kOnes;
      const auto whole = problem.Run(true, 1, 0, s.n);
      problem.mask = Recurrence::kNoMask;
      for (int threads : {1, 2, 3}) {
        EXPECT_TRUE(problem.Run(true, threads, 0, s.n) == whole,
                    "%s, N=%d H=%d, Zoneout %g: without a mask", cell.name, static_cast<int>(s.n),
                    static_cast<int>(s.h), zoneout);
      }
      EXPECT_TRUE(problem.Run(true, 2, 0, s.n, /*gives_wx=*/true) == whole,
                  "%s, Zoneout %g: without a mask, with wx", cell.name, zoneout);
    }
  }
}

// One step of Elman's network, whose y is the product itself.
void OneStep(std::mt19937& random) {
  for (int64_t h : {3, 16, 65, 130, 520}) {
    for (int64_t n : {1, 2, 3, 17, 50}) {
      haste::RnnConfig config = haste::Config("elman", HASTE_FLOAT32, HASTE_CPU, n, 1, 1, h);
      config.activation = HASTE_LINEAR;
      config.weights_dtype = HASTE_INT8;
      std::normal_distribution<float> normal;
      std::vector<float> h0(n * h), wx(n * h), y(n * h);
      for (float& v : h0) v = normal(random);
      if (n > 2) h0[h + 1] = NAN;
      const std::vector<int8_t> R = RandomWeights(h * h, random);
      const std::vector<float> scale = RandomScales(h, 1, random);
      haste::ForwardArgs args;
      args.set_wx(wx.data()).set_R(R.data()).set_R_scale(scale.data()).set_y(y.data());
      args.set_initial_state(0, h0.data());
      haste::ScratchMemory scratch(HASTE_CPU);
      ExpectOk(haste::Forward(config, args, scratch));
      int wrong = 0;
      for (int64_t r = 0; r < n; ++r) {
        const std::vector<float> row(h0.begin() + r * h, h0.begin() + (r + 1) * h);
        for (int64_t j = 0; j < h; ++j) {
          const float want = Product(row, R.data(), h, j, scale[j]);
          wrong += std::isnan(want) ? !std::isnan(y[r * h + j]) : y[r * h + j] != want;
        }
      }
      EXPECT_TRUE(wrong == 0, "N=%d H=%d: %d elements", static_cast<int>(n), static_cast<int>(h),
                  wrong);
    }
  }
}

void BadArguments() {
  const auto expect = [](const haste::Status& status, const char* text) {
    EXPECT_TRUE(!status.ok() && status.message().find(text) != std::string::npos, "\"%s\": \"%s\"",
                status.message().c_str(), text);
  };
  int8_t R[4 * 16] = {};
  float wx[16] = {}, y[4], scale[16] = {};
  haste::RnnConfig config = haste::Config("lstm", HASTE_FLOAT32, HASTE_CPU, 1, 1, 1, 4);
  haste::ScratchMemory scratch(HASTE_CPU);
  haste::ForwardArgs args;
  args.set_wx(wx).set_R(R).set_y(y);
  config.weights_dtype = HASTE_BFLOAT16;
  expect(haste::Forward(config, args, scratch), "weights_dtype: expected 0 (as dtype) or");
  config.weights_dtype = HASTE_INT8;
  expect(haste::Forward(config, args, scratch), "R_scale");
  args.set_R_scale(scale);
  ExpectOk(haste::Forward(config, args, scratch));
  args.keep = 1;
  expect(haste::Forward(config, args, scratch), "keep: expected 0");
  expect(haste::Backward(config, haste::BackwardArgs(), scratch), "no gradient");
  config.dtype = HASTE_FLOAT64;
  expect(haste::Forward(config, args, scratch), "HASTE_FLOAT64");
  config.dtype = HASTE_FLOAT32;
  config.hidden = 131073;
  expect(haste::Forward(config, args, scratch), "hidden: with int8 weights");
  config.hidden = 4;
  args.keep = 0;
  haste::LayerForwardArgs layer;
  layer.set_features(131073).set_x(wx).set_W(R);
  layer.W_scale = scale;
  expect(haste::LayerForward(config, layer, args, scratch), "features: with int8 weights");
  // Without features neither W nor its scales are read.
  layer = haste::LayerForwardArgs();
  layer.set_features(0);
  config.time = 2;
  float long_y[8];
  args.set_y(long_y);
  ExpectOk(haste::LayerForward(config, layer, args, scratch));
  config.cell = "indrnn";
  expect(haste::Forward(config, args, scratch), "dense");
}

}  // namespace
}  // namespace haste_test

namespace haste_test {
namespace {

// Without features W has no elements, and W and its scales may be nullptr.
void NoFeatures() {
  for (int64_t H : {16, 64, 256}) {
    for (int64_t N : {1, 2}) {
      haste::RnnConfig config = haste::Config("lstm", HASTE_FLOAT32, HASTE_CPU, N, 1, 1, H);
      config.weights_dtype = HASTE_INT8;
      const std::vector<int8_t> R(H * 4 * H, 1);
      const std::vector<float> scale(4 * H, 0.01f), h0(N * H, 0.5f);
      std::vector<float> y(N * H, -1);
      haste::ForwardArgs args;
      args.R = R.data();
      args.R_scale = scale.data();
      args.s0[0] = h0.data();
      args.y = y.data();
      haste::LayerForwardArgs layer;
      size_t bytes = 0;
      ExpectOk(haste::LayerForwardWorkspaceBytes(config, layer, &bytes));
      Scratch scratch(bytes);
      ExpectOk(haste::LayerForward(config, layer, args, scratch.data()));
      EXPECT_TRUE(y[N * H - 1] > 0, "H=%d N=%d", static_cast<int>(H), static_cast<int>(N));
    }
  }
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = haste_test::RandomSeed();
  const auto test = [&](const char*) {
    std::mt19937 random(seed);
    haste_test::Products(random);
    haste_test::OneStep(random);
    for (int i = 0; i < haste_cell_count(); ++i) {
      const HasteCellInfo& cell = *haste_cell(i);
      if (cell.recurrence == HASTE_DENSE) haste_test::Recurrences(cell, random);
    }
    haste_test::BadArguments();
    haste_test::NoFeatures();
  };
  return haste_test::OnTargets("int8_test", {"avx3_dot", "avx3", "avx2", "baseline"}, test);
}
