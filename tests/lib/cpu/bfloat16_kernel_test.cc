// Every kernel of bfloat16 that this machine can run, also those that it does not choose: products
// against float64, and the same bits for a row whatever rows are beside it.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/lib/cpu/bfloat16_kernel_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "lib/cpu/product/narrow-inl.h"
#include "tests/lib/check.h"
#include "tests/lib/simd_targets.h"

#ifndef HASTE_TESTS_LIB_CPU_BFLOAT16_KERNEL_TEST
#define HASTE_TESTS_LIB_CPU_BFLOAT16_KERNEL_TEST
namespace haste {

struct KernelCase {
  const NarrowKernel* kernel;
  int64_t rows, depth;
  int vectors;
  const float* a;        // [rows, depth]
  const Bfloat16* b;     // [depth, columns]
  const Bfloat16* bias;  // [columns]
  float* sums;           // [rows, columns]
  float* biased;         // the same with the bias; only if the kernel adds_bias
};

}  // namespace haste
#endif

HASTE_TARGET_BEGIN
namespace {
#if HWY_TARGET == HWY_AVX3 || !defined(__x86_64__)

void Multiply(const KernelCase& c) {
  const int64_t columns = c.vectors * Width<float>();
  NarrowColumns all;
  for (int64_t at = 0; at < columns; at += Width<float>()) all.Add(at, columns - at);
  const NarrowRows rows(*c.kernel, c.rows, c.depth,
                        NarrowPanel::Bytes(*c.kernel, c.depth, c.vectors), c.a, c.depth);
  NarrowPanel panel{c.kernel, c.depth, c.vectors, rows.spare()};
  panel.Pack(c.b, columns, all, nullptr, c.bias);
  rows.Multiply(panel, [&](int64_t row, const NarrowRows::Sums& sums) HWY_ATTR {
    for (int v = 0; v < c.vectors; ++v) {
      Store(sums[v], c.sums + row * columns + v * Width<float>());
    }
  });
  if (c.kernel->adds_bias) rows.MultiplyTo(panel, 0, c.rows, /*biased=*/true, c.biased);
}

#endif
}  // namespace
HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

struct Runnable {
  const NarrowKernel* kernel;
  void (*multiply)(const KernelCase&);
};

std::vector<Runnable> Kernels() {
  std::vector<Runnable> kernels;  // none that is not compiled
  using Function = void (*)(const KernelCase&);
  const auto add = [&](bool runs, const NarrowKernel& kernel, Function multiply) {
    if (runs && multiply != nullptr) kernels.push_back({&kernel, multiply});
  };
#if defined(__x86_64__)
  const SimdTarget best = BestTarget();
  const bool dot = best >= SimdTarget::kAvx3Dot && HasAvx512Bf16();
  add(best >= SimdTarget::kAmx, kAmxBfloat16, HWY_CHOOSE_AVX3(Multiply));
  add(dot, kAvx512Bfloat16, HWY_CHOOSE_AVX3(Multiply));
  add(best >= SimdTarget::kAvx3, kAvx512FmaBfloat16, HWY_CHOOSE_AVX3(Multiply));
#else
  const NarrowKernel* kernel = FindNarrow(Narrow::kBfloat16, 4);
  if (kernel != nullptr) add(true, *kernel, &HWY_STATIC_DISPATCH(Multiply));
#endif
  return kernels;
}

struct Problem {
  int64_t rows, depth, columns;
  std::vector<float> a;
  std::vector<Bfloat16> b, bias;
  std::vector<float> exact_b, exact_bias;
};

void Draw(int64_t count, std::mt19937* random, std::vector<Bfloat16>* bits,
          std::vector<float>* values) {
  std::normal_distribution<float> normal;
  bits->resize(count);
  values->resize(count);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t word;
    const float drawn = normal(*random);
    std::memcpy(&word, &drawn, sizeof word);
    word &= 0xFFFF0000;
    (*bits)[i].bits = static_cast<uint16_t>(word >> 16);
    std::memcpy(&(*values)[i], &word, sizeof word);
  }
}

Problem MakeProblem(int64_t rows, int64_t depth, int64_t columns, std::mt19937* random) {
  Problem p{rows, depth, columns};
  std::vector<Bfloat16> unused;
  Draw(rows * depth, random, &unused, &p.a);
  Draw(depth * columns, random, &p.b, &p.exact_b);
  Draw(columns, random, &p.bias, &p.exact_bias);
  return p;
}

// The first `rows` rows of the problem.
struct Result {
  std::vector<float> sums, biased;
};
Result Run(const Runnable& run, const Problem& p, int64_t first, int64_t rows) {
  Result result;
  result.sums.resize(rows * p.columns);
  result.biased.resize(rows * p.columns);
  KernelCase c = {run.kernel, rows, p.depth, static_cast<int>(p.columns / run.kernel->width)};
  c.a = p.a.data() + first * p.depth;
  c.b = p.b.data();
  c.bias = p.bias.data();
  c.sums = result.sums.data();
  c.biased = result.biased.data();
  run.multiply(c);
  return result;
}

void Check(const Runnable& run, int64_t rows, int64_t depth, int vectors, std::mt19937* random) {
  const Problem p = MakeProblem(rows, depth, int64_t{vectors} * run.kernel->width, random);
  const Result got = Run(run, p, 0, rows);
  double worst = 0, worst_biased = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t u = 0; u < p.columns; ++u) {
      double sum = 0, size = 1;
      for (int64_t i = 0; i < depth; ++i) {
        const double product = double{p.a[r * depth + i]} * p.exact_b[i * p.columns + u];
        sum += product;
        size += std::abs(product);
      }
      const auto error = [&](double is, double wanted) { return std::abs(is - wanted) / size; };
      const int64_t at = r * p.columns + u;
      worst = std::max(worst, error(got.sums[at], sum));
      if (run.kernel->adds_bias) {
        worst_biased = std::max(worst_biased, error(got.biased[at], sum + p.exact_bias[u]));
      }
    }
  }
  const char* const name = run.kernel->name;
  const int n = static_cast<int>(rows), k = static_cast<int>(depth);
  // Sums are float32: an error of 2^-24 each time.
  EXPECT_NEAR(worst, 0, 2e-6, "%s, %d rows, depth %d, %d vectors", name, n, k, vectors);
  EXPECT_NEAR(worst_biased, 0, 2e-6, "%s, %d rows, depth %d, %d vectors: biased", name, n, k,
              vectors);
  for (int64_t r : {int64_t{0}, rows / 2, rows - 1}) {
    const Result alone = Run(run, p, r, 1);
    const auto same = [&](const std::vector<float>& one, const std::vector<float>& all) {
      return std::memcmp(one.data(), all.data() + r * p.columns, p.columns * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(alone.sums, got.sums), "%s, %d rows, depth %d, %d vectors: row %d alone", name,
                n, k, vectors, static_cast<int>(r));
    EXPECT_TRUE(same(alone.biased, got.biased),
                "%s, %d rows, depth %d, %d vectors: row %d alone, biased", name, n, k, vectors,
                static_cast<int>(r));
  }
}

}  // namespace
}  // namespace haste

int main() {
  using namespace haste;
  std::mt19937 random(haste_test::RandomSeed());
  const std::vector<Runnable> kernels = Kernels();
  if (kernels.empty()) std::printf("nothing checked: no instructions for bfloat16\n");
  for (const Runnable& run : kernels) {
    std::printf("%s\n", run.kernel->name);
    for (int vectors = 1; vectors <= kMaxVectors; ++vectors) {
      for (int64_t depth : {1, 2, 7, 64, 131}) {
        for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 23, 32, 33, 40}) {
          Check(run, rows, depth, vectors, &random);
        }
      }
    }
  }
  return haste_test::Report("bfloat16_kernel_test");
}
#endif  // HWY_ONCE
