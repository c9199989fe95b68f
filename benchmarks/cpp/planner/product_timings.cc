#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cpp/planner/layer_timings.h"
#include "lib/base/dtypes.h"

namespace benchmark {
namespace {

constexpr int kMostFailures = 20;  // one after the other

}  // namespace

void Timings::Failed(const std::string& row, const char* why) {
  std::fprintf(stderr, "%s: %s\n", row.c_str(), why);
  ++failures_;
  if (++in_a_row_ == kMostFailures) Fail("the GPU runs nothing more");
}

void Timings::Time(const std::string& row, const std::function<int32_t()>& call,
                   const std::function<bool()>& is_right) {
  if (number_++ < skipped_ || IsOver()) return;
  status_ = {};
  gpu_.Start();
  if (call() != HASTE_OK) return Failed(row, status_.message);
  if (gpu_.MicrosecondsSinceStart() < 0) Hangs(row);
  if (!is_right()) return Failed(row, "the result is wrong");
  const double microseconds = MedianMicroseconds(gpu_, call, true);
  if (microseconds == kHangs) Hangs(row);
  if (microseconds <= 0) return Failed(row, status_.message);
  ++rows_;
  in_a_row_ = 0;
  std::printf("%s,%.4g,%.0f\n", row.c_str(), microseconds, gpu_.Megahertz());
  std::fflush(stdout);
}

void Timings::TimeProduct(const Product& product) {
  HasteGemm gemm = product.Gemm();
  const size_t size = haste::DtypeSize(gemm.dtype);
  memory_.Restart();
  gemm.a = memory_.Read(gemm.m * gemm.k * size);
  gemm.b = memory_.Read(gemm.k * gemm.n * size);
  gemm.c = memory_.Write(gemm.m * gemm.n * sizeof(float));
  for (const ProductCut& cut : CutsOf(product, cuda_)) {
    const size_t scratch = cut.plan.ours ? cut.plan.bytes() + (1 << 20) : 0;
    if (!memory_.Fits(scratch)) return;
    const int32_t c_dtype = cut.plan.ours ? int32_t{HASTE_FLOAT32} : gemm.dtype;
    const double tolerance = product.dtype == "f32" ? 1e-5 : 1e-2;
    const auto is_right = [&] {
      const std::vector<double> some = SomeOf(gpu_, gemm.c, gemm.m * gemm.n, c_dtype);
      for (int i = 0; i < kChecked; i += 4) {
        const int64_t at = (gemm.m * gemm.n - 1) * i / (kChecked - 1);
        const int64_t row = at / gemm.n, column = at % gemm.n;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < gemm.k; ++k) {
          const double term = memory_.At(gemm.a, row * gemm.a_row + k * gemm.a_col, gemm.dtype) *
                              memory_.At(gemm.b, k * gemm.b_row + column * gemm.b_col, gemm.dtype);
          sum += term;
          size += std::abs(term);
        }
        if (!(std::abs(some[i] - sum) <= tolerance * size)) return false;
      }
      return true;
    };
    const std::string row = product.name + "," + product.dtype + "," + std::to_string(product.m) +
                            "," + std::to_string(product.n) + "," + std::to_string(product.k) +
                            "," + cut.name;
    Time(
        row,
        [&] {
          return backend_.planned_gemm(gemm, cut.plan, memory_.scratch(), executor_, &status_);
        },
        is_right);
  }
}

void Timings::Products() {
  PrintGpu(gpu_, cuda_);
  std::puts("product,dtype,m,n,k,cut,microseconds,mhz");
  // Those of gemm_plan_test, then drawn ones.
  static constexpr const char* kNames[] = {"input", "input_gradient", "kernel_gradient"};
  static constexpr const char* kDtypes[] = {"f32", "f32", "f32", "tf32", "bf16"};
  static constexpr int64_t kRows[] = {512,  1024,  2048,  2048,  4096, 6400,
                                      8192, 12800, 16384, 16384, 32768};
  static constexpr int64_t kWidths[] = {256,  384,  512,  640,  768,  1000, 1024,
                                        1536, 2048, 2304, 3072, 4096, 6144};
  // Smaller ones are not planned.
  static constexpr double kLeast = 4e8, kMost = 1.5e11;
  for (const char* dtype : {"f32", "tf32", "bf16"}) {
    for (const char* name : kNames) {
      for (int64_t rows : {2048, 16384}) {
        const int64_t c = 768, width = 3072;
        TimeProduct(name == kNames[0]   ? Product{name, dtype, rows, width, c}
                    : name == kNames[1] ? Product{name, dtype, rows, c, width}
                                        : Product{name, dtype, c, width, rows});
      }
    }
  }
  Draws draws;
  while (!IsOver() && number_ < 4000) {
    const std::string name = draws.Of(kNames), dtype = draws.Of(kDtypes);
    const int64_t rows = draws.Of(kRows), c = draws.Of(kWidths), width = draws.Of(kWidths);
    const double products = static_cast<double>(rows) * c * width;
    if (products < kLeast || products > kMost) continue;
    TimeProduct(name == kNames[2] ? Product{name, dtype, c, width, rows}
                                  : Product{name, dtype, rows, width, c});
  }
  End();
}

}  // namespace benchmark
