// Layer normalisation of rows: the definition, finite differences, every dtype, sizes that are not
// whole vectors, in place, any number of threads, no rows, bad arguments.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "lib/base/dtypes.h"
#include "tests/lib/check.h"
#include "tests/lib/problem.h"
#include "tests/lib/stored.h"

namespace haste_test {
namespace {

constexpr float kEpsilon = 1e-3f;

struct Sizes {
  int64_t rows, lanes, features;
  int64_t all() const { return rows * lanes * features; }
  int64_t params() const { return lanes * features; }
};
// One feature, parts of a vector, whole ones, more rows than a block of sums has.
const Sizes kSizes[] = {{3, 2, 1}, {2, 3, 7}, {3, 1, 33}, {2, 2, 64}, {1, 1, 101}, {130, 2, 5}};

struct Row {
  Tensor x, gamma, beta, dy;
};
Row Draw(const Sizes& sizes, double mean, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Row row;
  for (double& v : row.x = Tensor(sizes.all())) v = mean + normal(random);
  for (double& v : row.gamma = Tensor(sizes.params())) v = 1 + 0.3 * normal(random);
  for (double& v : row.beta = Tensor(sizes.params())) v = normal(random);
  for (double& v : row.dy = Tensor(sizes.all())) v = normal(random);
  return row;
}

void ExpectCode(int32_t code, const HasteStatus& status) {
  EXPECT_TRUE(code == HASTE_OK, "%s", status.message);
}

Stored Forward(int32_t dtype, const Sizes& sizes, const Row& row, int threads,
               bool in_place = false, bool has_beta = true) {
  Stored x(dtype, row.x), gamma(dtype, row.gamma), beta(dtype, row.beta), y(dtype, sizes.all());
  HasteLayerNorm norm = {sizeof(HasteLayerNorm),
                         dtype,
                         HASTE_CPU,
                         sizes.rows,
                         sizes.lanes,
                         sizes.features,
                         kEpsilon,
                         x.data(),
                         gamma.data(),
                         has_beta ? beta.data() : nullptr,
                         in_place ? x.data() : y.data()};
  HasteExecutor executor = HASTE_INIT(HasteExecutor);
  executor.threads = threads;
  HasteStatus status = {};
  ExpectCode(haste_layer_norm(&norm, &executor, &status), status);
  return in_place ? x : y;
}

struct Gradients {
  Stored dx, dgamma, dbeta;
  bool operator==(const Gradients& other) const {
    return dx == other.dx && dgamma == other.dgamma && dbeta == other.dbeta;
  }
};
Gradients Backward(int32_t dtype, const Sizes& sizes, const Row& row, int threads,
                   bool in_place = false, bool wants_beta = true) {
  Stored x(dtype, row.x), gamma(dtype, row.gamma), dy(dtype, row.dy);
  Gradients out = {Stored(dtype, sizes.all()), Stored(dtype, sizes.params()),
                   Stored(dtype, sizes.params())};
  HasteLayerNormGrad norm = {sizeof(HasteLayerNormGrad),
                             dtype,
                             HASTE_CPU,
                             sizes.rows,
                             sizes.lanes,
                             sizes.features,
                             kEpsilon,
                             x.data(),
                             gamma.data(),
                             dy.data(),
                             in_place ? dy.data() : out.dx.data(),
                             out.dgamma.data(),
                             wants_beta ? out.dbeta.data() : nullptr};
  HasteExecutor executor = HASTE_INIT(HasteExecutor);
  executor.threads = threads;
  HasteStatus status = {};
  size_t bytes = 0;
  ExpectCode(haste_layer_norm_workspace_bytes(&norm, &executor, &bytes, &status), status);
  constexpr size_t kGuard = 64;
  Scratch scratch(bytes + kGuard);
  char* guard = static_cast<char*>(scratch.data()) + bytes;
  memset(scratch.data(), 0xFF, bytes);  // NaN: no code may rely on zeros
  memset(guard, 0x5A, kGuard);
  ExpectCode(haste_layer_norm_grad(&norm, scratch.data(), &executor, &status), status);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_TRUE(guard[i] == 0x5A, "byte %zu after the workspace was written", i);
  }
  if (in_place) out.dx = dy;
  return out;
}

Tensor Definition(const Sizes& sizes, const Row& row) {
  Tensor y(sizes.all());
  const int64_t features = sizes.features;
  for (int64_t r = 0; r < sizes.rows * sizes.lanes; ++r) {
    const double* x = row.x.data() + r * features;
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < features; ++j) mean += x[j] / static_cast<double>(features);
    for (int64_t j = 0; j < features; ++j) {
      variance += (x[j] - mean) * (x[j] - mean) / static_cast<double>(features);
    }
    for (int64_t j = 0; j < features; ++j) {
      const int64_t p = r % sizes.lanes * features + j;
      const double normed = (x[j] - mean) / std::sqrt(variance + static_cast<double>(kEpsilon));
      y[r * features + j] = normed * row.gamma[p] + row.beta[p];
    }
  }
  return y;
}

// Every element within `unit` of itself, and within `unit` · `floor` where it is small.
void ExpectClose(const char* name, const Tensor& got, const Tensor& want, double unit,
                 double floor) {
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], unit * (floor + std::fabs(want[i])), "%s[%zu]", name, i);
  }
}

void TestDefinition() {
  std::mt19937 random(1);
  for (const Sizes& sizes : kSizes) {
    Row row = Draw(sizes, 0.5, random);
    ExpectClose("y", Forward(HASTE_FLOAT64, sizes, row, 1).Values(), Definition(sizes, row), 1e-13,
                1);
    const Stored without = Forward(HASTE_FLOAT64, sizes, row, 1, false, /*has_beta=*/false);
    row.beta.assign(row.beta.size(), 0.0);
    ExpectClose("y without beta", without.Values(), Definition(sizes, row), 1e-13, 1);
  }
}

void TestGradients() {
  std::mt19937 random(2);
  for (const Sizes& sizes : kSizes) {
    Row row = Draw(sizes, 0.5, random);
    const Gradients grad = Backward(HASTE_FLOAT64, sizes, row, 1);
    const auto loss = [&] { return Dot(Forward(HASTE_FLOAT64, sizes, row, 1).Values(), row.dy); };
    CheckGradient("x", row.x, grad.dx.Values(), loss, 60, random);
    CheckGradient("gamma", row.gamma, grad.dgamma.Values(), loss, 60, random);
    CheckGradient("beta", row.beta, grad.dbeta.Values(), loss, 60, random);
  }
}

// The other dtypes against float64 on inputs that they hold exactly.
void TestDtypes() {
  std::mt19937 random(3);
  const struct {
    int32_t dtype;
    double unit;
  } dtypes[] = {{HASTE_FLOAT32, 4e-6}, {HASTE_FLOAT16, 1.0 / 1024}, {HASTE_BFLOAT16, 1.0 / 128}};
  for (const auto& [dtype, unit] : dtypes) {
    for (const Sizes& sizes : kSizes) {
      Row row = Draw(sizes, 0.5, random);
      for (Tensor* tensor : {&row.x, &row.gamma, &row.beta, &row.dy}) {
        *tensor = Stored(dtype, *tensor).Values();
      }
      const double rows = std::sqrt(static_cast<double>(sizes.rows));
      ExpectClose("y", Forward(dtype, sizes, row, 1).Values(), Definition(sizes, row), unit, 0.1);
      const Gradients want = Backward(HASTE_FLOAT64, sizes, row, 1);
      const Gradients got = Backward(dtype, sizes, row, 1);
      // An element of dx is a difference of larger ones, in float32.
      ExpectClose("dx", got.dx.Values(), want.dx.Values(), unit, 1);
      ExpectClose("dgamma", got.dgamma.Values(), want.dgamma.Values(), unit, 0.1 * rows);
      ExpectClose("dbeta", got.dbeta.Values(), want.dbeta.Values(), unit, 0.1 * rows);
    }
  }
}

// A mean that is large against the deviation: mean(x²) - mean(x)² would lose all digits.
void TestLargeMean() {
  std::mt19937 random(4);
  const Sizes sizes = {3, 1, 100};
  Row row = Draw(sizes, 4096, random);
  for (Tensor* tensor : {&row.x, &row.gamma, &row.beta}) {
    *tensor = Stored(HASTE_FLOAT32, *tensor).Values();
  }
  ExpectClose("y", Forward(HASTE_FLOAT32, sizes, row, 1).Values(), Definition(sizes, row), 1e-3, 1);
}

void TestSameBits() {
  std::mt19937 random(5);
  for (const int32_t dtype : {HASTE_FLOAT32, HASTE_FLOAT64, HASTE_FLOAT16, HASTE_BFLOAT16}) {
    for (const Sizes& sizes : {Sizes{3, 2, 7}, Sizes{70, 3, 33}, Sizes{400, 1, 520}}) {
      const Row row = Draw(sizes, 0.5, random);
      const Stored y = Forward(dtype, sizes, row, 1);
      const Gradients grad = Backward(dtype, sizes, row, 1);
      for (const int threads : {1, 2, 3}) {
        for (const bool in_place : {false, true}) {
          EXPECT_TRUE(Forward(dtype, sizes, row, threads, in_place) == y,
                      "dtype %d, %d threads, in place %d", dtype, threads, in_place);
          EXPECT_TRUE(Backward(dtype, sizes, row, threads, in_place) == grad,
                      "gradient, dtype %d, %d threads, in place %d", dtype, threads, in_place);
        }
      }
      const Gradients no_beta = Backward(dtype, sizes, row, 2, false, /*wants_beta=*/false);
      EXPECT_TRUE(no_beta.dx == grad.dx && no_beta.dgamma == grad.dgamma, "dbeta not wanted");
      EXPECT_TRUE(no_beta.dbeta == Stored(dtype, sizes.params()), "dbeta not wanted, but written");
    }
  }
}

void TestNoRows() {
  std::mt19937 random(6);
  const Sizes sizes = {0, 2, 7};
  const Row row = Draw(sizes, 0, random);
  Forward(HASTE_FLOAT32, sizes, row, 1);
  const Gradients grad = Backward(HASTE_FLOAT32, sizes, row, 1);
  const Stored zeros(HASTE_FLOAT32, Tensor(sizes.params(), 0.0));
  EXPECT_TRUE(grad.dgamma == zeros && grad.dbeta == zeros, "gradients of no rows");
}

void TestBadArguments() {
  float x[8] = {}, gamma[4] = {}, y[8] = {}, dgamma[4] = {};
  const HasteLayerNorm good = {
      sizeof(HasteLayerNorm), HASTE_FLOAT32, HASTE_CPU, 2, 1, 4, kEpsilon, x, gamma, nullptr, y};
  const HasteLayerNormGrad good_grad = {sizeof(HasteLayerNormGrad),
                                        HASTE_FLOAT32,
                                        HASTE_CPU,
                                        2,
                                        1,
                                        4,
                                        kEpsilon,
                                        x,
                                        gamma,
                                        y,
                                        y,
                                        dgamma,
                                        nullptr};
  HasteStatus status = {};
  Scratch scratch(1 << 12);
  const auto fails = [&](const char* name, int32_t code) {
    EXPECT_TRUE(code == HASTE_INVALID_ARGUMENT, "%s: code %d", name, code);
    EXPECT_TRUE(strstr(status.message, name) != nullptr, "%s: message %s", name, status.message);
    status = {};
  };
  const auto forward = [&](const char* name, const auto& spoil) {
    HasteLayerNorm bad = good;
    spoil(&bad);
    fails(name, haste_layer_norm(&bad, nullptr, &status));
  };
  const auto backward = [&](const char* name, const auto& spoil, bool has_memory = true) {
    HasteLayerNormGrad bad = good_grad;
    spoil(&bad);
    fails(name,
          haste_layer_norm_grad(&bad, has_memory ? scratch.data() : nullptr, nullptr, &status));
  };
  forward("dtype", [](auto* n) { n->dtype = 9; });
  forward("device", [](auto* n) { n->device = 7; });
  forward("rows", [](auto* n) { n->rows = -1; });
  forward("lanes", [](auto* n) { n->lanes = 0; });
  forward("features", [](auto* n) { n->features = 0; });
  forward("epsilon", [](auto* n) { n->epsilon = 0; });
  forward("epsilon", [](auto* n) { n->epsilon = NAN; });
  forward("x", [](auto* n) { n->x = nullptr; });
  forward("gamma", [](auto* n) { n->gamma = nullptr; });
  forward("y", [](auto* n) { n->y = nullptr; });
  backward("dy", [](auto* n) { n->dy = nullptr; });
  backward("dx", [](auto* n) { n->dx = nullptr; });
  backward("dgamma", [](auto* n) { n->dgamma = nullptr; });
  backward("workspace", [](auto*) {}, /*has_memory=*/false);
}

}  // namespace
}  // namespace haste_test

int main() {
  haste_test::TestDefinition();
  haste_test::TestGradients();
  haste_test::TestDtypes();
  haste_test::TestLargeMean();
  haste_test::TestSameBits();
  haste_test::TestNoRows();
  haste_test::TestBadArguments();
  return haste_test::Report("layer_norm_test");
}
