// haste_gemm with an int8 b: rows of a are quantised (lib/cpu/product/narrow-inl.h). b is packed
// where it is multiplied if that is once, else before, into the workspace.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/gemm_int8.cc"
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

// A task's part of c.
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockPanels = 16;
// With fewer multiply-adds a thread, waking it costs more than it saves.
constexpr double kWakeMacs = 800e3;

template <class T>
class Int8Gemm {
 public:
  // packed: memory for all panels, or nullptr: each is packed where it is multiplied.
  Int8Gemm(const HasteGemm& gemm, void* packed)
      : gemm_(gemm),
        kernel_(*FindNarrow(Narrow::kInt8, Width<float>())),
        columns_(kMaxVectors * Width<float>()),
        panels_(CeilDiv(gemm.n, columns_)),
        panel_bytes_(NarrowPanel::Bytes(kernel_, gemm.k, kMaxVectors)),
        packed_(static_cast<char*>(packed)) {}

  static size_t PackedBytes(const HasteGemm& gemm) {
    const Int8Gemm product(gemm, nullptr);
    return gemm.m <= kNarrowRows ? 0 : product.panels_ * product.panel_bytes_;
  }

  void Run(const HasteExecutor& executor) const {
    HasteExecutor team = executor;
    const double macs = static_cast<double>(gemm_.m) * gemm_.n * gemm_.k;
    team.threads = static_cast<int>(std::min<double>(TeamThreads(executor), macs / kWakeMacs + 1));
    if (packed_ == nullptr) {
      const int64_t slices = std::min<int64_t>(team.threads, panels_);
      ParallelFor(team, slices, [&](int64_t slice) {
        Block(0, gemm_.m, panels_ * slice / slices, panels_ * (slice + 1) / slices);
      });
      return;
    }
    ParallelFor(team, panels_, [&](int64_t panel) { Pack(panel, packed_ + panel * panel_bytes_); });
    const int64_t across = CeilDiv(panels_, kBlockPanels), down = CeilDiv(gemm_.m, kBlockRows);
    ParallelFor(team, across * down, [&](int64_t task) {
      const int64_t row = task / across * kBlockRows, panel = task % across * kBlockPanels;
      Block(row, std::min(gemm_.m, row + kBlockRows), panel,
            std::min(panels_, panel + kBlockPanels));
    });
  }

 private:
  // c of the rows [first, end) and the panels [panel, panel_end).
  void Block(int64_t first, int64_t end, int64_t panel, int64_t panel_end) const {
    NarrowRows rows(kernel_, end - first, gemm_.k, packed_ == nullptr ? panel_bytes_ : 0);
    for (int64_t row = first; row < end; ++row) {
      const T* from = static_cast<const T*>(gemm_.a) + row * gemm_.a_row;
      if (gemm_.a_col == 1) {
        rows.Convert(row - first,
                     [&](int64_t j) HWY_ATTR { return LoadPart(from + j, gemm_.k - j); });
      } else {
        rows.Convert(row - first, [&](int64_t j) HWY_ATTR {
          T part[HWY_MAX_BYTES / sizeof(float)];
          const int64_t count = std::min(Width<float>(), gemm_.k - j);
          for (int64_t i = 0; i < count; ++i) part[i] = from[(j + i) * gemm_.a_col];
          return LoadPart(part, count);
        });
      }
    }
    if (rows.TakesRow() && gemm_.b_col == 1 && columns_ == kRowColumns) {
      for (; panel < panel_end && (panel + 1) * columns_ <= gemm_.n; ++panel) {
        MultiplyRow(rows, first, panel * columns_);
      }
    }
    for (; panel < panel_end; ++panel) {
      const NarrowPanel b = packed_ == nullptr ? Pack(panel, rows.spare())
                                               : PanelIn(panel, packed_ + panel * panel_bytes_);
      rows.Multiply(b, [&](int64_t row, const NarrowRows::Sums& sums) HWY_ATTR {
        T* to = static_cast<T*>(gemm_.c) + (first + row) * gemm_.c_row + panel * columns_;
        for (int v = 0; v < b.vectors; ++v) {
          const int64_t at = v * Width<float>();
          StorePart(sums[v] + Load(b.bias() + at), to + at, gemm_.n - panel * columns_ - at);
        }
      });
    }
  }

  // A single row: b is read in place.
  void MultiplyRow(const NarrowRows& rows, int64_t row, int64_t column) const {
    T* const to = static_cast<T*>(gemm_.c) + row * gemm_.c_row + column;
    rows.MultiplyRow(static_cast<const int8_t*>(gemm_.b) + column, gemm_.b_row,
                     gemm_.b_scale + column, [&](int v, const NarrowRows::Sums& sums) HWY_ATTR {
                       const int64_t at = v * Width<float>();
                       Vec<float> sum = sums[v];
                       if (gemm_.bias != nullptr) {
                         const T* bias = static_cast<const T*>(gemm_.bias) + column;
                         sum = sum + Storage<T>::Load(bias + at);
                       }
                       Storage<T>::Store(sum, to + at);
                     });
  }

  NarrowPanel PanelIn(int64_t panel, char* memory) const {
    const int64_t left = gemm_.n - panel * columns_;
    const int64_t vectors = std::min<int64_t>(kMaxVectors, CeilDiv(left, Width<float>()));
    return {&kernel_, gemm_.k, static_cast<int>(vectors), memory};
  }

  NarrowPanel Pack(int64_t panel, char* memory) const {
    NarrowPanel to = PanelIn(panel, memory);
    const int64_t first = panel * columns_, count = std::min(columns_, gemm_.n - first);
    NarrowColumns columns;
    for (int v = 0; v < to.vectors; ++v) {
      columns.Add(v * Width<float>(), count - v * Width<float>());
    }
    const float* scale = gemm_.b_scale + first;
    const T* bias = gemm_.bias == nullptr ? nullptr : static_cast<const T*>(gemm_.bias) + first;
    const int8_t* b = static_cast<const int8_t*>(gemm_.b) + first * gemm_.b_col;
    if (gemm_.b_col == 1) {
      to.Pack(b, gemm_.b_row, columns, scale, bias);
      return to;
    }
    std::vector<int8_t> gathered(gemm_.k * count);
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < gemm_.k; ++i) {
        gathered[i * count + j] = b[i * gemm_.b_row + j * gemm_.b_col];
      }
    }
    to.Pack(gathered.data(), count, columns, scale, bias);
    return to;
  }

  const HasteGemm& gemm_;
  const NarrowKernel& kernel_;
  const int64_t columns_;  // of a panel
  const int64_t panels_, panel_bytes_;
  char* const packed_;
};

template <class Do>
void WithStorage(int32_t dtype, const Do& run) {
  switch (dtype) {
    case HASTE_FLOAT32: return run(float());
    case HASTE_FLOAT16: return run(Half());
    default: return run(Bfloat16());
  }
}

size_t BytesOf(const HasteGemm& gemm) { return Int8Gemm<float>::PackedBytes(gemm); }

void RunOf(const HasteGemm& gemm, void* workspace, const HasteExecutor& executor) {
  WithStorage(gemm.dtype, [&](auto of) {
    Int8Gemm<decltype(of)>(gemm, BytesOf(gemm) == 0 ? nullptr : workspace).Run(executor);
  });
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {

size_t CpuGemmInt8Workspace(const HasteGemm& gemm) { return HASTE_DISPATCH(BytesOf)(gemm); }

void CpuGemmInt8(const HasteGemm& gemm, void* workspace, const HasteExecutor& executor) {
  HASTE_DISPATCH(RunOf)(gemm, workspace, executor);
}

}  // namespace haste
#endif  // HWY_ONCE
