// Windows of a convolution over time: the definition, the gradient as the adjoint of a linear map,
// a sequence in two parts, a layer on top, every dtype, masks, both directions, bad arguments.
#include <cinttypes>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "haste/rnn.h"
#include "tests/lib/check.h"
#include "tests/lib/problem.h"
#include "tests/lib/stored.h"

namespace haste_test {
namespace {

struct Case {
  int64_t N, T, C, window;
  bool reverse, masked;
  int64_t steps() const { return N * T * C; }
  int64_t known() const { return N * (window - 1) * C; }
};
const Case kCases[] = {
    {2, 9, 5, 3, false, false}, {3, 9, 5, 3, true, true},    {2, 7, 1, 1, false, true},
    {1, 2, 4, 6, true, false},  {4, 130, 3, 4, false, true}, {2, 0, 3, 2, false, false},
    {3, 70, 17, 2, true, true},
};

// Small whole numbers: exact in every dtype, and so are their sums.
Tensor Draw(int64_t size, std::mt19937& random) {
  Tensor values(size);
  for (double& v : values) v = static_cast<int>(random() % 9) - 4;
  return values;
}
std::vector<uint8_t> Mask(const Case& c, std::mt19937& random) {
  std::vector<uint8_t> mask(c.N * c.T, 1);
  for (int64_t n = 0; c.masked && n < c.N; ++n) {
    for (int64_t t = 0; t < c.T; ++t)
      mask[n * c.T + t] = n != 1 && random() % 3 != 0;  // row 1: none
  }
  return mask;
}

struct Values {
  Tensor seen, after;
};
Values Expected(const Case& c, const Tensor& x, const Tensor& before,
                const std::vector<uint8_t>& mask) {
  Values values = {Tensor(c.steps() * c.window), Tensor(c.known())};
  for (int64_t n = 0; n < c.N; ++n) {
    for (int64_t j = 0; j < c.C; ++j) {
      std::deque<double> last;  // oldest first
      for (int64_t k = 0; k < c.window - 1; ++k) {
        last.push_back(before[(n * (c.window - 1) + k) * c.C + j]);
      }
      for (int64_t step = 0; step < c.T; ++step) {
        const int64_t t = c.reverse ? c.T - 1 - step : step;
        if (!mask[n * c.T + t]) continue;
        last.push_back(x[(n * c.T + t) * c.C + j]);
        for (int64_t k = 0; k < c.window; ++k) {
          values.seen[((n * c.T + t) * c.window + k) * c.C + j] = last[k];
        }
        last.pop_front();
      }
      for (int64_t k = 0; k < c.window - 1; ++k) {
        values.after[(n * (c.window - 1) + k) * c.C + j] = last[k];
      }
    }
  }
  return values;
}

template <class Args>  // haste::WindowsArgs or haste::WindowsGradArgs
Args Of(const Case& c, int32_t dtype, const uint8_t* mask) {
  Args args = {};
  args.dtype = dtype;
  args.batch = c.N;
  args.time = c.T;
  args.features = c.C;
  args.window = c.window;
  args.reverse = c.reverse;
  args.mask = mask;
  return args;
}

double Product(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void TestCase(const Case& c, int32_t dtype, int threads, std::mt19937& random) {
  haste::Executor executor = {};
  executor.threads = threads;
  Tensor x = Draw(c.steps(), random);
  const Tensor before = Draw(c.known(), random);
  const std::vector<uint8_t> mask = Mask(c, random);
  const Values want = Expected(c, x, before, mask);
  for (int64_t i = 0; i < c.steps(); ++i) {  // no window reads a masked step
    if (!mask[i / c.C]) x[i] = std::numeric_limits<double>::quiet_NaN();
  }
  Stored x_in(dtype, x), before_in(dtype, before);
  Stored seen(dtype, c.steps() * c.window), after(dtype, c.known());
  haste::WindowsArgs args = Of<haste::WindowsArgs>(c, dtype, c.masked ? mask.data() : nullptr);
  args.x = x_in.data();
  args.before = before_in.data();
  args.seen = seen.data();
  args.after = after.data();
  const haste::Status status = haste::Windows(args, executor);
  EXPECT_TRUE(status.ok(), "%s", status.message().c_str());
  EXPECT_TRUE(seen.Values() == want.seen, "seen, window %" PRId64 ", dtype %d", c.window, dtype);
  EXPECT_TRUE(after.Values() == want.after, "after, window %" PRId64 ", dtype %d", c.window, dtype);

  const Tensor dseen = Draw(c.steps() * c.window, random), dafter = Draw(c.known(), random);
  Tensor spoilt = dseen;
  for (int64_t i = 0; i < c.steps() * c.window; ++i) {
    if (!mask[i / (c.window * c.C)]) spoilt[i] = std::numeric_limits<double>::quiet_NaN();
  }
  Stored dseen_in(dtype, spoilt), dafter_in(dtype, dafter);
  Stored dx(dtype, c.steps()), dbefore(dtype, c.known());
  haste::WindowsGradArgs grad = Of<haste::WindowsGradArgs>(c, dtype, args.mask);
  grad.dseen = dseen_in.data();
  grad.dafter = dafter_in.data();
  grad.dx = dx.data();
  grad.dbefore = dbefore.data();
  const haste::Status failed = haste::WindowsGrad(grad, executor);
  EXPECT_TRUE(failed.ok(), "%s", failed.message().c_str());
  // Column by column of the map: <A e, w> = <e, Aᵀ w> for unit inputs e.
  const Tensor found_dx = dx.Values(), found_dbefore = dbefore.Values();
  const Tensor zero_x(c.steps()), zero_before(c.known());
  for (int trial = 0; trial < 40; ++trial) {
    Tensor unit_x = zero_x, unit_before = zero_before;
    const int64_t inputs = c.steps() + c.known();
    if (inputs == 0) break;
    const int64_t at = random() % inputs;
    (at < c.steps() ? unit_x[at] : unit_before[at - c.steps()]) = 1;
    const Values out = Expected(c, unit_x, unit_before, mask);
    const double got = at < c.steps() ? found_dx[at] : found_dbefore[at - c.steps()];
    EXPECT_NEAR(got, Product(out.seen, dseen) + Product(out.after, dafter), 0,
                "gradient of input %" PRId64 ", window %" PRId64 ", dtype %d", at, c.window, dtype);
  }
}

// A NULL input counts as zeros; a NULL output is not written.
void TestNull(std::mt19937& random) {
  const Case c = {2, 5, 3, 3, false, false};
  const Tensor x = Draw(c.steps(), random), dseen = Draw(c.steps() * c.window, random);
  Stored x_in(HASTE_FLOAT32, x), seen(HASTE_FLOAT32, c.steps() * c.window);
  haste::WindowsArgs args = Of<haste::WindowsArgs>(c, HASTE_FLOAT32, nullptr);
  args.x = x_in.data();
  args.seen = seen.data();
  EXPECT_TRUE(haste::Windows(args).ok(), "no before, no after");
  const std::vector<uint8_t> live(c.N * c.T, 1);
  EXPECT_TRUE(seen.Values() == Expected(c, x, Tensor(c.known()), live).seen, "zeros before");
  Stored dseen_in(HASTE_FLOAT32, dseen), dafter_in(HASTE_FLOAT32, Tensor(c.known()));
  haste::WindowsGradArgs grad = Of<haste::WindowsGradArgs>(c, HASTE_FLOAT32, nullptr);
  grad.dseen = dseen_in.data();
  EXPECT_TRUE(haste::WindowsGrad(grad).ok(), "nothing wanted");
  Stored dx(HASTE_FLOAT32, c.steps()), want(HASTE_FLOAT32, c.steps());
  grad.dx = dx.data();
  EXPECT_TRUE(haste::WindowsGrad(grad).ok(), "no dafter");
  grad.dafter = dafter_in.data();
  grad.dx = want.data();
  EXPECT_TRUE(haste::WindowsGrad(grad).ok() && dx == want, "no dafter is one of zeros");
}

// A QRNN with a window of 3 over a sequence, and over its two halves.
void TestLayer(std::mt19937& random) {
  constexpr int64_t N = 3, T = 8, C = 5, H = 9, kWindow = 3, kGates = 3;
  std::normal_distribution<double> normal;
  const auto draw = [&](int64_t size) {
    Tensor values(size);
    for (double& v : values) v = normal(random);
    return values;
  };
  const Tensor x = draw(N * T * C), W = draw(kWindow * C * kGates * H), b = draw(kGates * H);
  const auto run = [&](const Tensor& part, int64_t steps, Tensor* before, Tensor* state) {
    haste::WindowsArgs windows = {};
    windows.dtype = HASTE_FLOAT64;
    windows.batch = N;
    windows.time = steps;
    windows.features = C;
    windows.window = kWindow;
    windows.x = part.data();
    windows.before = before->data();
    Tensor seen(N * steps * kWindow * C), after(before->size()), last(N * H), y(N * steps * H);
    windows.seen = seen.data();
    windows.after = after.data();
    EXPECT_TRUE(haste::Windows(windows).ok(), "windows of a layer");
    const haste::RnnConfig config =
        haste::Config("qrnn_fo", HASTE_FLOAT64, HASTE_CPU, N, steps, 1, H);
    haste::LayerForwardArgs layer = {};
    layer.features = kWindow * C;
    layer.x = seen.data();
    layer.W = W.data();
    layer.b = b.data();
    haste::ForwardArgs rnn = {};
    rnn.s0[0] = state->data();
    rnn.sT[0] = last.data();
    rnn.y = y.data();
    size_t bytes = 0;
    EXPECT_TRUE(haste::LayerForwardWorkspaceBytes(config, layer, &bytes).ok(), "bytes");
    std::vector<double> workspace(bytes / sizeof(double) + 16);
    EXPECT_TRUE(haste::LayerForward(config, layer, rnn, workspace.data()).ok(), "layer");
    *before = after;
    *state = last;
    return y;
  };
  Tensor before(N * (kWindow - 1) * C), state(N * H);
  const Tensor whole = run(x, T, &before, &state);
  Tensor before_parts(before.size()), state_terms(state.size());
  for (int64_t half = 0; half < 2; ++half) {
    Tensor part;
    for (int64_t n = 0; n < N; ++n) {
      const auto from = x.begin() + (n * T + half * T / 2) * C;
      part.insert(part.end(), from, from + T / 2 * C);
    }
    const Tensor y = run(part, T / 2, &before_parts, &state_terms);
    for (int64_t i = 0; i < N * T / 2 * H; ++i) {
      const int64_t n = i / (T / 2 * H);
      const double want = whole[n * T * H + half * T / 2 * H + i % (T / 2 * H)];
      EXPECT_NEAR(y[i], want, 1e-14, "half %" PRId64, half);
    }
  }
  EXPECT_TRUE(before == before_parts, "what is carried over");
}

void TestErrors() {
  const Case c = {1, 2, 3, 2, false, false};
  haste::WindowsArgs args = Of<haste::WindowsArgs>(c, HASTE_FLOAT32, nullptr);
  const auto message = [&] { return haste::Windows(args).message(); };
  EXPECT_TRUE(message().find("x: expected memory") != std::string::npos, "%s", message().c_str());
  args.window = 0;
  EXPECT_TRUE(message().find("window: expected sizes") != std::string::npos, "%s",
              message().c_str());
  args.window = int64_t{1} << 61;
  EXPECT_TRUE(message().find("exceeds 2^60 bytes") != std::string::npos, "%s", message().c_str());
  args.dtype = 9;
  EXPECT_TRUE(message().find("dtype") != std::string::npos, "%s", message().c_str());
  const haste::WindowsGradArgs grad = Of<haste::WindowsGradArgs>(c, HASTE_FLOAT32, nullptr);
  const std::string said = haste::WindowsGrad(grad).message();
  EXPECT_TRUE(said.find("dseen: expected memory") != std::string::npos, "%s", said.c_str());
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (const haste_test::Case& c : haste_test::kCases) {
    for (const int32_t dtype : {HASTE_FLOAT32, HASTE_FLOAT64, HASTE_FLOAT16, HASTE_BFLOAT16}) {
      for (const int threads : {1, 2}) haste_test::TestCase(c, dtype, threads, random);
    }
  }
  haste_test::TestNull(random);
  haste_test::TestLayer(random);
  haste_test::TestErrors();
  return haste_test::Report("causal_windows_test");
}
