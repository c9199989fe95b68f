// Panels of bfloat16 for the kernels of AVX-512 and AMX: in each way of packing, each element is
// where narrow.h says. Packing needs AVX-512 alone, so AMX's panels are checked without AMX too.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/lib/cpu/narrow_panel_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "lib/cpu/narrow/narrow.h"
#include "lib/cpu/product/narrow_panel-inl.h"
#include "tests/lib/simd_targets.h"

#ifndef HASTE_TESTS_LIB_CPU_NARROW_PANEL_TEST
#define HASTE_TESTS_LIB_CPU_NARROW_PANEL_TEST
namespace haste {

// Panels of neighbouring columns at once; one panel; one panel of a matrix [columns, depth].
enum class Packing { kTogether, kAlone, kTransposed };

struct PanelCase {
  const NarrowKernel* kernel;
  int vectors;
  int64_t depth;
  Packing packing;
  int64_t panels, columns, row;  // columns that there are; elements from one row to the next
  int64_t first;                 // column of the first panel
  const uint16_t* weights;
  char* memory;
  int64_t apart;  // bytes from one panel to the next
};

}  // namespace haste
#endif

HASTE_TARGET_BEGIN
namespace {
#if HWY_TARGET == HWY_AVX3

// Vector v of panel p begins with column first + (v * panels + p) * width.
void PackPanel(const PanelCase& c) {
  const NarrowPanel panel{c.kernel, c.depth, c.vectors, c.memory};
  if (c.packing == Packing::kTransposed) {
    return PackNarrowTransposed(c.weights, c.columns, c.row, c.first, c.depth, panel);
  }
  const int64_t width = Width<float>();
  NarrowColumns columns;
  for (int64_t v = 0; v < c.vectors; ++v) {
    const int64_t at = c.first + v * c.panels * width;
    columns.Add(at, c.columns - at);
  }
  if (c.packing == Packing::kTogether) {
    NarrowPanel::PackPanels<Bfloat16>(panel, c.panels, width, c.apart, c.weights, c.row, columns,
                                      nullptr, nullptr);
  } else {
    PackNarrow(*c.kernel, c.weights, c.row, c.depth, columns, c.memory);
  }
}

#endif
}  // namespace
HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

#if defined(__x86_64__)
using Pack = void (*)(const PanelCase&);

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};

// missing: columns that the last vector has not. shift: elements from a multiple of 4 bytes to the
// matrix.
void Check(PanelCase c, int64_t missing, int64_t shift, bool odd, Pack pack, std::mt19937* random) {
  const bool transposed = c.packing == Packing::kTransposed;
  const int64_t width = c.kernel->width;
  c.columns = c.first + c.vectors * c.panels * width - missing;
  c.row = (transposed ? c.depth : c.columns) + 6;
  if ((c.row % 2 != 0) != odd) ++c.row;
  std::vector<uint16_t> weights(shift + c.row * (transposed ? c.columns : c.depth));
  std::uniform_int_distribution<int> any(1, 65535);
  for (uint16_t& weight : weights) weight = static_cast<uint16_t>(any(*random));
  c.weights = weights.data() + shift;

  constexpr char kUnset = '\x55';
  const int64_t of_weights = c.kernel->PanelBytes(c.depth, c.vectors);
  constexpr int kOtherRows = 3;  // start, scale, bias
  c.apart = of_weights + kOtherRows * c.vectors * width * 4;
  std::unique_ptr<char, Free> memory(
      static_cast<char*>(std::aligned_alloc(64, c.panels * c.apart)));
  c.memory = memory.get();
  std::fill_n(c.memory, c.panels * c.apart, kUnset);
  pack(c);
  int64_t wrong = 0;
  for (int64_t p = 0; p < c.panels; ++p) {
    const char* const panel = c.memory + p * c.apart;
    for (int64_t i = 0; i < 2 * c.kernel->Groups(c.depth); ++i) {
      for (int64_t u = 0; u < c.vectors * width; ++u) {
        const int64_t v = u / width, column = c.first + (v * c.panels + p) * width + u % width;
        uint16_t want = 0, got;
        if (i < c.depth && column < c.columns) {
          want = c.weights[transposed ? column * c.row + i : i * c.row + column];
        }
        const int64_t at = c.kernel->At(i / 2, v, c.vectors) + u % width * 4 + i % 2 * 2;
        std::memcpy(&got, panel + at, sizeof got);
        wrong += got != want;
      }
    }
    // Nothing is written between the weights and the bias.
    const char* const bias = panel + c.apart - c.vectors * width * 4;
    wrong += std::count(panel + of_weights, bias, kUnset) != bias - (panel + of_weights);
  }
  EXPECT_TRUE(
      wrong == 0,
      "%s, packing %d, %d vectors, depth %lld, %lld panels, first column %lld, %lld columns "
      "missing: %lld wrong",
      c.kernel->name, static_cast<int>(c.packing), c.vectors, static_cast<long long>(c.depth),
      static_cast<long long>(c.panels), static_cast<long long>(c.first),
      static_cast<long long>(missing), static_cast<long long>(wrong));
}

// pack: nullptr where it is not compiled. Whether anything was checked.
bool CheckAll(Pack pack) {
  if (pack == nullptr || BestTarget() < SimdTarget::kAvx3Dot) return false;
  std::mt19937 random(haste_test::RandomSeed());
  for (const NarrowKernel* kernel : {&kAmxBfloat16, &kAvx512Bfloat16, &kAvx512FmaBfloat16}) {
    for (int vectors = 1; vectors <= kMaxVectors; ++vectors) {
      for (int64_t depth : {1, 2, 31, 32, 33, 64, 70, 191, 520}) {
        PanelCase c = {kernel, vectors, depth};
        c.packing = Packing::kTogether;
        for (int64_t panels : {1, 4}) {
          c.panels = panels;
          for (int64_t missing : {0, 5}) Check(c, missing, 0, false, pack, &random);
        }
        c.panels = 1;
        for (Packing packing : {Packing::kAlone, Packing::kTransposed}) {
          c.packing = packing;
          for (int64_t first : {0, 64}) {
            c.first = first;
            for (int64_t missing : {0, 1, 15}) {
              for (bool odd : {false, true}) Check(c, missing, 0, odd, pack, &random);
              Check(c, missing, 1, false, pack, &random);
            }
          }
        }
      }
    }
  }
  return true;
}
#endif

}  // namespace
}  // namespace haste

int main() {
  using namespace haste;
  bool checked = false;
#if defined(__x86_64__)
  checked = CheckAll(HWY_CHOOSE_AVX3(PackPanel));
#endif
  if (!checked) std::printf("nothing checked: needs AVX-512 with VNNI\n");
  return haste_test::Report("narrow_panel_test");
}
#endif  // HWY_ONCE
