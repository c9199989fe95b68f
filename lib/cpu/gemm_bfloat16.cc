// haste_gemm of bfloat16 on a machine that multiplies bfloat16. Panels of b are packed where they
// are multiplied, so no workspace is needed.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/gemm_bfloat16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lib/base/int_math.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/product/narrow-inl.h"
#include "lib/cpu/threads/team.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

// A task's part of c, and the depth of a packed panel: 64 KiB of b, which 96 rows share.
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockPanels = 16;
constexpr int64_t kBlockDepth = 512;
// Tasks of a thread, so that threads end together.
constexpr int64_t kTasksOfThread = 2;
// With fewer multiply-adds a thread, waking it costs more than it saves.
constexpr double kWakeMacs = 400e3;

class Bfloat16Gemm {
 public:
  Bfloat16Gemm(const HasteGemm& gemm, const NarrowKernel& kernel)
      : gemm_(gemm),
        kernel_(kernel),
        columns_(kMaxVectors * Width<float>()),
        panels_(CeilDiv(gemm.n, columns_)) {}

  void Run(const HasteExecutor& executor) const {
    HasteExecutor team = executor;
    const double macs = static_cast<double>(gemm_.m) * gemm_.n * gemm_.k;
    team.threads = static_cast<int>(std::min<double>(TeamThreads(executor), macs / kWakeMacs + 1));
    const int64_t down = CeilDiv(gemm_.m, kBlockRows);
    const int64_t tasks = team.threads == 1 ? 1 : team.threads * kTasksOfThread;
    const int64_t some = std::clamp<int64_t>(down * panels_ / tasks, 1, kBlockPanels);
    const int64_t across = CeilDiv(panels_, some);
    ParallelFor(team, across * down, [&](int64_t task) {
      const int64_t row = task / across * kBlockRows, panel = task % across * some;
      Block(row, std::min(gemm_.m, row + kBlockRows), panel, std::min(panels_, panel + some));
    });
  }

 private:
  using Storage16 = Storage<Bfloat16>;

  // c of the rows [first, end) and the panels [panel, panel_end).
  void Block(int64_t first, int64_t end, int64_t panel, int64_t panel_end) const {
    static thread_local std::vector<float> sums_before;
    const int64_t of_panel = (end - first) * columns_;
    if (gemm_.k > kBlockDepth) sums_before.resize((panel_end - panel) * of_panel);
    int64_t from = 0;
    do {
      const int64_t depth = std::min(kBlockDepth, gemm_.k - from);
      const bool begins = from == 0, ends = from + depth == gemm_.k;
      NarrowRows rows(kernel_, end - first, depth, NarrowPanel::Bytes(kernel_, depth, kMaxVectors));
      ConvertRows(first, end, from, depth, &rows);
      for (int64_t p = panel; p < panel_end; ++p) {
        const NarrowPanel b = Pack(p, from, depth, ends, rows.spare());
        float* const before = sums_before.data() + (p - panel) * of_panel;
        rows.Multiply(b, [&](int64_t row, const NarrowRows::Sums& sums) HWY_ATTR {
          for (int v = 0; v < b.vectors; ++v) {
            const int64_t at = v * Width<float>();
            Vec<float> sum = sums[v] + Load(b.bias() + at);
            float* const of_row = before + row * columns_ + at;
            if (!begins) sum = sum + Load(of_row);
            if (!ends) {
              Store(sum, of_row);
              continue;
            }
            Bfloat16* const to =
                static_cast<Bfloat16*>(gemm_.c) + (first + row) * gemm_.c_row + p * columns_;
            StorePart(sum, to + at, gemm_.n - p * columns_ - at);
          }
        });
      }
      from += depth;
    } while (from < gemm_.k);
  }

  // Elements [from, from + depth) of the rows [first, end) of a.
  void ConvertRows(int64_t first, int64_t end, int64_t from, int64_t depth,
                   NarrowRows* rows) const {
    const Bfloat16* a =
        static_cast<const Bfloat16*>(gemm_.a) + first * gemm_.a_row + from * gemm_.a_col;
    int64_t a_row = gemm_.a_row;
    if (gemm_.a_col != 1) {
      // Not a power of two, so that the elements of a column lie in different sets of the cache.
      constexpr int64_t kRow = kBlockDepth + 32;
      static thread_local std::vector<Bfloat16> gathered;
      gathered.resize(kBlockRows * kRow);
      for (int64_t i = 0; i < depth; ++i) {
        const Bfloat16* column = a + i * gemm_.a_col;
        for (int64_t r = 0; r < end - first; ++r) gathered[r * kRow + i] = column[r * a_row];
      }
      a = gathered.data();
      a_row = kRow;
    }
    for (int64_t r = 0; r < end - first; ++r, a += a_row) {
      rows->Convert(r, [&](int64_t j) HWY_ATTR { return LoadPart(a + j, depth - j); });
    }
  }

  NarrowPanel Pack(int64_t panel, int64_t from, int64_t depth, bool with_bias, char* memory) const {
    const int64_t first = panel * columns_, count = std::min(columns_, gemm_.n - first);
    const Bfloat16* b =
        static_cast<const Bfloat16*>(gemm_.b) + from * gemm_.b_row + first * gemm_.b_col;
    const Bfloat16* bias = with_bias && gemm_.bias != nullptr
                               ? static_cast<const Bfloat16*>(gemm_.bias) + first
                               : nullptr;
    NarrowColumns columns;
    for (int64_t at = 0; at < count; at += Width<float>()) columns.Add(at, count - at);
    NarrowPanel to{&kernel_, depth, columns.vectors, memory};
    if (gemm_.b_col == 1) {
      to.Pack(b, gemm_.b_row, columns, nullptr, bias);
      return to;
    }
    if (gemm_.b_row == 1) {
      PackNarrowTransposed(reinterpret_cast<const uint16_t*>(b), count, gemm_.b_col, 0, depth, to);
      to.SetBias(bias, columns);
      return to;
    }
    static thread_local std::vector<Bfloat16> gathered;
    gathered.resize(depth * count);
    for (int64_t i = 0; i < depth; ++i) {
      for (int64_t j = 0; j < count; ++j) {
        gathered[i * count + j] = b[i * gemm_.b_row + j * gemm_.b_col];
      }
    }
    to.Pack(gathered.data(), count, columns, nullptr, bias);
    return to;
  }

  const HasteGemm& gemm_;
  const NarrowKernel& kernel_;
  const int64_t columns_;  // of a panel
  const int64_t panels_;
};

bool Possible() { return FindNarrow(Narrow::kBfloat16, Width<float>()) != nullptr; }

bool RunOf(const HasteGemm& gemm, const HasteExecutor& executor) {
  const NarrowKernel* kernel = FindNarrow(Narrow::kBfloat16, Width<float>());
  if (kernel == nullptr) return false;
  Bfloat16Gemm(gemm, *kernel).Run(executor);
  return true;
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {

bool CpuMultipliesBfloat16() { return HASTE_DISPATCH(Possible)(); }

bool CpuGemmBfloat16(const HasteGemm& gemm, const HasteExecutor& executor) {
  return HASTE_DISPATCH(RunOf)(gemm, executor);
}

}  // namespace haste
#endif  // HWY_ONCE
