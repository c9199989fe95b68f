// Pins which products of floats are made of bfloat16 parts, and that their chunks fit the
// workspace.
#include "lib/product_plan.h"

#include <algorithm>

#include "tests/lib/check.h"

namespace haste {
namespace {

HasteGemm Product(int64_t m, int64_t n, int64_t k) {
  HasteGemm gemm = {};
  gemm.dtype = HASTE_FLOAT32;
  gemm.device = HASTE_CUDA;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.a_row = k;
  gemm.b_row = gemm.c_row = n;
  gemm.a_col = gemm.b_col = 1;
  return gemm;
}

void Choices() {
  const struct {
    int64_t m, n, k;
    bool by_parts;
    int64_t rows, columns, depth;
  } cases[] = {
      // Of N=16 T=1024 C=H=768: x·W, dx, and dW or dR.
      {16384, 3072, 768, true, 8192, 3072, 768},
      {16384, 768, 3072, true, 3328, 768, 3072},
      {768, 3072, 16384, true, 768, 3072, 3328},
      // dR of H=2048.
      {2048, 8192, 12800, true, 2048, 8192, 1536},
      // Sums, and operands, that take longer to move than to multiply.
      {16384, 3072, 64, false, 0, 0, 0},
      {6400, 64, 4096, false, 0, 0, 0},
      // Of N=16 T=128 C=H=512: too small to be worth so many launches.
      {2048, 2048, 512, false, 0, 0, 0},
      {2048, 512, 2048, false, 0, 0, 0},
      {512, 2048, 2048, false, 0, 0, 0},
      // Of which only the number of chunks makes it so.
      {1024, 4096, 1600, false, 0, 0, 0},
      {1, 1, 1, false, 0, 0, 0},
      {128, 128, 0, false, 0, 0, 0},
      {0, 128, 128, false, 0, 0, 0},
  };
  for (const auto& c : cases) {
    const ProductPlan plan = PlanProduct(Product(c.m, c.n, c.k), 9, 0);
    const bool cut_so = plan.rows == c.rows && plan.columns == c.columns && plan.depth == c.depth;
    EXPECT_TRUE(plan.by_parts == c.by_parts && (cut_so || !c.by_parts),
                "%ld x %ld x %ld: parts %d, chunks of %ld x %ld x %ld", static_cast<long>(c.m),
                static_cast<long>(c.n), static_cast<long>(c.k), plan.by_parts,
                static_cast<long>(plan.rows), static_cast<long>(plan.columns),
                static_cast<long>(plan.depth));
  }
}

void OnlyExactFloatsOnDataCentreGpus() {
  const HasteGemm large = Product(16384, 3072, 768);
  const struct {
    int major, minor;
    bool by_parts;
  } gpus[] = {{7, 5, false}, {8, 0, true},  {8, 6, false}, {8, 9, false},
              {9, 0, true},  {10, 0, true}, {10, 3, true}, {12, 0, false}};
  for (const auto& gpu : gpus) {
    EXPECT_TRUE(PlanProduct(large, gpu.major, gpu.minor).by_parts == gpu.by_parts, "%d.%d",
                gpu.major, gpu.minor);
  }
  HasteGemm other = large;
  other.allow_tf32 = 1;
  EXPECT_TRUE(!PlanProduct(other, 9, 0).by_parts, "TensorFloat-32");
  for (HasteDtype dtype : {HASTE_FLOAT64, HASTE_FLOAT16, HASTE_BFLOAT16}) {
    other = large;
    other.dtype = dtype;
    EXPECT_TRUE(!PlanProduct(other, 9, 0).by_parts, "dtype %d", dtype);
  }
  other = large;
  other.a_col = 2;
  other.a_row = 2 * other.k;
  EXPECT_TRUE(!PlanProduct(other, 9, 0).by_parts, "neighbours that are not side by side");
}

void ChunksFit() {
  for (int64_t m : {3001, 4099, 16384, 300000}) {
    for (int64_t n : {3001, 4099, 16384, 300000}) {
      for (int64_t k : {1801, 4099, 16384, 300000}) {
        const ProductPlan plan = PlanProduct(Product(m, n, k), 9, 0);
        EXPECT_TRUE(plan.by_parts, "large");
        const double third = (1.0 * m * k + 1.0 * k * n + 1.0 * m * n) * sizeof(float) / 3;
        const double room = std::max(16.0 * (1 << 20), std::min(third, 96.0 * (1 << 20)));
        EXPECT_TRUE(plan.bytes() <= 1.01 * room, "%zu bytes of %.0f", plan.bytes(), room);
        EXPECT_TRUE(plan.rows > 0 && plan.columns > 0 && plan.depth > 0, "chunks");
        EXPECT_TRUE(plan.depth % kProductAlign == 0 && plan.depth < k + kProductAlign,
                    "depth %ld of %ld", static_cast<long>(plan.depth), static_cast<long>(k));
        // What stays is split once for each depth, unless nothing else would fit.
        const int64_t stays = std::min(m, n), chunk = plan.a_stays ? plan.rows : plan.columns;
        const int64_t least = stays * kSumDepth * kProductParts * 2;
        EXPECT_TRUE(chunk >= stays || static_cast<double>(least) > room / 2, "%ld of %ld",
                    static_cast<long>(chunk), static_cast<long>(stays));
      }
    }
  }
}

}  // namespace
}  // namespace haste

int main() {
  haste::Choices();
  haste::OnlyExactFloatsOnDataCentreGpus();
  haste::ChunksFit();
  return haste_test::Report("product_plan_test");
}
