// Panels of bfloat16 for the kernels of AVX-512 and AMX: packed in every way, each element is where
// narrow.h says. Packing needs AVX-512 alone, so AMX's panels are checked on machines without it.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/lib/cpu/narrow_panel_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "lib/cpu/narrow/narrow.h"
#include "lib/cpu/product/narrow_panel-inl.h"
#include "tests/lib/check.h"

#ifndef HASTE_TESTS_LIB_CPU_NARROW_PANEL_TEST
#define HASTE_TESTS_LIB_CPU_NARROW_PANEL_TEST
namespace haste {

// A matrix [depth, columns], or transposed [columns, depth], with more in each row.
struct NarrowMatrix {
  std::vector<uint16_t> weights;
  int64_t depth, columns, row;
};
enum class Packing { kTogether, kByVectors, kTransposed };

}  // namespace haste
#endif

HASTE_TARGET_BEGIN
namespace {
#if HWY_TARGET == HWY_AVX3

void PackMatrix(const NarrowMatrix& of, Packing packing, const NarrowKernel& kernel, int vectors,
                char* memory) {
  const NarrowPanel panel{&kernel, of.depth, vectors, memory};
  const uint16_t* const from = of.weights.data();
  if (packing == Packing::kTransposed) {
    return PackNarrowTransposed(from, of.columns, of.row, 0, of.depth, panel);
  }
  NarrowColumns columns;
  for (int64_t v = 0; v < panel.vectors; ++v) {
    columns.Add(v * Width<float>(), of.columns - v * Width<float>());
  }
  if (packing == Packing::kTogether) {
    NarrowPanel::PackPanels<Bfloat16>(panel, 1, 0, 0, from, of.row, columns, nullptr, nullptr);
  } else {
    PackNarrow(*panel.kernel, from, of.row, of.depth, columns, panel.memory);
  }
}

#endif
}  // namespace
HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

#if defined(__x86_64__)
using Pack = void (*)(const NarrowMatrix&, Packing, const NarrowKernel&, int vectors, char* memory);
constexpr int kOtherRows = 3;  // of a panel, after its weights

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};

// missing: columns that the last vector has not.
void Check(const NarrowKernel& kernel, int vectors, int64_t depth, int64_t missing, bool odd,
           Packing packing, Pack pack, std::mt19937& random) {
  NarrowMatrix matrix;
  matrix.depth = depth;
  matrix.columns = vectors * kernel.width - missing;
  const bool transposed = packing == Packing::kTransposed;
  matrix.row = (transposed ? depth : matrix.columns) + 6;
  if ((matrix.row % 2 != 0) != odd) ++matrix.row;
  matrix.weights.resize(matrix.row * (transposed ? matrix.columns : depth));
  std::uniform_int_distribution<int> any(1, 65535);
  for (uint16_t& weight : matrix.weights) weight = static_cast<uint16_t>(any(random));

  const int64_t bytes =
      kernel.PanelBytes(depth, vectors) + kOtherRows * vectors * kernel.width * sizeof(float);
  std::unique_ptr<char, Free> memory(static_cast<char*>(std::aligned_alloc(64, bytes)));
  std::fill_n(memory.get(), bytes, '\x55');
  pack(matrix, packing, kernel, vectors, memory.get());
  int64_t wrong = 0;
  for (int64_t i = 0; i < 2 * kernel.Groups(depth); ++i) {
    for (int64_t column = 0; column < vectors * kernel.width; ++column) {
      uint16_t want = 0, got;
      if (i < depth && column < matrix.columns) {
        want = matrix.weights[transposed ? column * matrix.row + i : i * matrix.row + column];
      }
      const int64_t at = kernel.At(i / 2, column / kernel.width, vectors);
      memcpy(&got, memory.get() + at + column % kernel.width * 4 + i % 2 * 2, sizeof got);
      wrong += got != want;
    }
  }
  EXPECT_TRUE(wrong == 0,
              "%s, %d vectors, depth %lld, %lld columns missing, packing %d: %lld elements wrong",
              kernel.name, vectors, static_cast<long long>(depth), static_cast<long long>(missing),
              static_cast<int>(packing), static_cast<long long>(wrong));
}

void CheckAll(Pack pack) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (const NarrowKernel* kernel : {&kAmxBfloat16, &kAvx512Bfloat16}) {
    for (int vectors = 1; vectors <= kMaxVectors; ++vectors) {
      for (int64_t depth : {1, 2, 31, 32, 33, 64, 70, 191, 520}) {
        Check(*kernel, vectors, depth, 0, false, Packing::kTogether, pack, random);
        for (int64_t missing : {0, 1, 15}) {
          for (bool odd : {false, true}) {
            Check(*kernel, vectors, depth, missing, odd, Packing::kByVectors, pack, random);
            Check(*kernel, vectors, depth, missing, odd, Packing::kTransposed, pack, random);
          }
        }
      }
    }
  }
}
#endif

}  // namespace
}  // namespace haste

int main() {
#if defined(__x86_64__)
  using namespace haste;
  if (BestTarget() >= SimdTarget::kAvx3Dot) CheckAll(HWY_CHOOSE_AVX3(PackMatrix));
#endif
  return haste_test::Report("narrow_panel_test");
}
#endif  // HWY_ONCE
