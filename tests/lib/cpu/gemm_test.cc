// haste_gemm of each dtype, on each kind of instruction that this machine has, against float64: any
// strides, and the same bits for any number of threads and of rows.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/lib/problem.h"
#include "tests/lib/simd_targets.h"
#include "tests/lib/stored.h"

namespace haste_test {
namespace {

// A matrix of random numbers of a dtype, row by row, and the same with any strides.
struct Matrix {
  Matrix(HasteDtype dtype, int64_t rows, int64_t columns, int layout, std::mt19937& random)
      : row(layout == 0   ? columns
            : layout == 1 ? 1
                          : 2 * columns + 1),
        col(layout == 0   ? 1
            : layout == 1 ? rows
                          : 2),
        values(rows * columns),
        stored(dtype, Tensor((rows + 1) * (2 * columns + 1))) {
    std::normal_distribution<double> normal;
    Tensor order((rows + 1) * (2 * columns + 1), 7);  // 7: not an element
    for (double& v : values) v = normal(random);
    values = Stored(dtype, values).Values();
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) order[i * row + j * col] = values[i * columns + j];
    }
    stored = Stored(dtype, order);
  }

  const int64_t row, col;
  Tensor values;
  Stored stored;
};

// Rows [first, first + rows) of the product. Columns of c are followed by some that are not its.
Tensor Multiply(HasteGemm gemm, int64_t first, int64_t rows, int threads) {
  constexpr int64_t kBehind = 3;
  Stored c(gemm.dtype, Tensor(rows * (gemm.n + kBehind), -5));
  gemm.a = static_cast<const char*>(gemm.a) + haste::DtypeSize(gemm.dtype) * first * gemm.a_row;
  gemm.m = rows;
  gemm.c = c.data();
  gemm.c_row = gemm.n + kBehind;
  haste::Executor executor;
  executor.threads = threads;
  HasteStatus status = {};
  size_t bytes = 1;
  EXPECT_TRUE(haste_gemm_workspace_bytes(&gemm, &bytes, &status) == HASTE_OK && bytes == 0, "%zu",
              bytes);
  EXPECT_TRUE(haste_gemm(&gemm, nullptr, &executor, &status) == HASTE_OK, "%s", status.message);
  const Tensor all = c.Values();
  Tensor got;
  for (int64_t i = 0; i < rows; ++i) {
    const auto row = all.begin() + i * gemm.c_row;
    got.insert(got.end(), row, row + gemm.n);
    for (int64_t j = 0; j < kBehind; ++j) {
      EXPECT_TRUE(row[gemm.n + j] == -5, "row %d: wrote behind it", static_cast<int>(i));
    }
  }
  return got;
}

// Errors of a rounding to the dtype, and of an addition.
struct Precision {
  HasteDtype dtype;
  const char* name;
  double rounding, addition;
};
constexpr Precision kPrecisions[] = {{HASTE_FLOAT32, "float32", 0x1p-24, 0x1p-23},
                                     {HASTE_FLOAT64, "float64", 0x1p-53, 0x1p-51},
                                     {HASTE_FLOAT16, "float16", 0x1p-11, 0x1p-23},
                                     {HASTE_BFLOAT16, "bfloat16", 0x1p-8, 0x1p-23}};

void CheckProduct(const Precision& of, int64_t m, int64_t n, int64_t k, int a_layout, int b_layout,
                  bool biased, std::mt19937& random) {
  Matrix a(of.dtype, m, k, a_layout, random), b(of.dtype, k, n, b_layout, random);
  Matrix bias(of.dtype, 1, n, 0, random);
  HasteGemm gemm = HASTE_INIT(HasteGemm);
  gemm.dtype = of.dtype;
  gemm.n = n;
  gemm.k = k;
  gemm.a = a.stored.data();
  gemm.a_row = a.row;
  gemm.a_col = a.col;
  gemm.b = b.stored.data();
  gemm.b_row = b.row;
  gemm.b_col = b.col;
  gemm.bias = biased ? bias.stored.data() : nullptr;
  const Tensor got = Multiply(gemm, 0, m, 1);
  int wrong = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double want = biased ? bias.values[j] : 0, size = std::fabs(want);
      for (int64_t p = 0; p < k; ++p) {
        const double product = a.values[i * k + p] * b.values[p * n + j];
        want += product;
        size += std::fabs(product);
      }
      // Subnormal halves are 2^-24 apart.
      const double error = std::fabs(want) * of.rounding + size * (k + 1) * of.addition + 0x1p-25;
      wrong += !(std::fabs(got[i * n + j] - want) <= error);
    }
  }
  EXPECT_TRUE(wrong == 0, "%s, m=%d n=%d k=%d layouts %d %d: %d elements", of.name,
              static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), a_layout, b_layout,
              wrong);
  EXPECT_TRUE(Multiply(gemm, 0, m, 3) == got, "%s: three threads", of.name);
  const int64_t last = m - 1;
  const Tensor alone = Multiply(gemm, last, 1, 1);
  EXPECT_TRUE(memcmp(alone.data(), got.data() + last * n, n * sizeof(double)) == 0,
              "%s, m=%d n=%d k=%d: a row alone", of.name, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k));
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = haste_test::RandomSeed();
  const auto test = [&](const char*) {
    std::mt19937 random(seed);
    for (const haste_test::Precision& of : haste_test::kPrecisions) {
      for (int64_t m : {1, 2, 19, 100}) {
        for (int64_t n : {1, 37, 64, 150}) {
          for (int64_t k : {0, 1, 53, 512, 777}) {
            const int layout = static_cast<int>(random() % 9);
            haste_test::CheckProduct(of, m, n, k, layout % 3, layout / 3, random() % 2 == 0,
                                     random);
          }
        }
      }
      for (int layout = 0; layout < 9; ++layout) {
        haste_test::CheckProduct(of, 130, 150, 300, layout % 3, layout / 3, true, random);
      }
      // Several panels share rows, and there are several blocks of these.
      for (int layout : {0, 1, 5}) {
        haste_test::CheckProduct(of, 230, 600, 270, layout % 3, layout / 3, true, random);
      }
    }
  };
  return haste_test::OnTargets("gemm_test", {"avx3_dot", "avx3", "avx2", "baseline"}, test);
}
