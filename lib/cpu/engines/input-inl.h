// The input's part of the gates: read from wx, or computed for a few steps at a time, or by each
// tile.
// Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_INPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_INPUT_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_INPUT_INL_H_
#endif

#include <type_traits>

#include "lib/cpu/engines/narrow_input-inl.h"
#include "lib/cpu/engines/walk-inl.h"
#include "lib/cpu/product/projection-inl.h"

HASTE_TARGET_BEGIN

// Where a step's elements find what x adds to the gates: in wx, in Form's result, or in the sums of
// h·R, which have started from it.
enum class InputFrom { kWx, kFormed, kSums };

// The input of one phase of the walk. Its panels are those of R.
template <class Cell, class T, int kFirst, int kCount, int kUnits>
class Input {
  using C = Compute<T>;
  using V = Vec<C>;
  static constexpr int kGates = Cell::kGates;
  static constexpr bool kHasNarrow = std::is_same_v<C, float>;

 public:
  // layer: nullptr if wx is given. kernel: of narrow weights, or nullptr.
  Input(const HasteRnnConfig& config, const TaskRows<C>& rows, const void* wx,
        const HasteLayerForwardArgs* layer, const NarrowKernel* kernel, Workspace* workspace,
        const PackPlace& place)
      : rows_(rows),
        T_(config.time),
        H(config.hidden),
        wx_(static_cast<const T*>(wx)),
        projection_(config, kernel == nullptr ? layer : nullptr, place),
        narrow_(config, layer, kernel, place),
        panels_(narrow_ ? narrow_.panels() : projection_.panels()),
        steps_(narrow_ ? narrow_.Steps(config.batch, T_) : projection_.Steps(config.batch, T_)) {
    if (Forms()) ahead_ = rows_.Take(workspace, RowSize());
  }

  // Whether x·W + b is computed here. Then call Form, unless
  // StartsFromProduct, and before it Pack if packs().
  bool Forms() const { return narrow_ || projection_; }
  bool packs() const { return narrow_ ? narrow_.packs() : projection_.packs(); }
  void Pack(int64_t k, int64_t panel) {
    if constexpr (kHasNarrow) {
      if (narrow_) return narrow_.Pack(k, panel);
    }
    projection_.Pack(k, panel);
  }

  // Call before a step, for its panels and rows. Read takes the result.
  HWY_NOINLINE const C* Form(int64_t step, int64_t k, Range panels, Range rows) const {
    const int64_t at = step % steps_;
    if constexpr (kHasNarrow) {
      if (narrow_) {
        if (at == 0) {
          narrow_.Multiply(k, panels, rows, rows_.rows(), step, std::min(steps_, T_ - step),
                           [&](int64_t panel, int64_t s, int64_t n)
                               HWY_ATTR { return At(k, panel, s, n); });
        }
        return OfStep(k, at, rows);
      }
    }
    if (!projection_.packed()) {
      projection_.MultiplyInPlace(k, panels.begin, panels.end, step,
                                  [&](int64_t panel) HWY_ATTR { return At(k, panel, at, 0); });
    } else if (at == 0) {
      const int64_t count = std::min(steps_, T_ - step);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        for (int64_t n = rows.begin; n < rows.end; ++n) {
          projection_.Multiply(k, panel, n, step, count, n + 1 < rows.end, At(k, panel, 0, n),
                               StepSize());
        }
      }
    }
    return OfStep(k, at, rows);
  }

  // Fills the gates of x, either from Form's result or from row step_row of wx as [N, T, K].
  template <bool kForms>
  HWY_INLINE void Read(const C* of_step, int64_t n, int64_t step_row, int64_t j, V* x) const {
    if constexpr (kForms) {
      const int64_t unit = static_cast<uint64_t>(j) / Width<C>();
      const C* from =
          of_step + unit / kUnits * Chunk() + n * Columns() + unit % kUnits * kCount * Width<C>();
      for (int g = 0; g < kCount; ++g) {  // of the next step
        __builtin_prefetch(from + StepSize() + g * Width<C>());
      }
      for (int g = 0; g < kCount; ++g) x[kFirst + g] = Load(from + g * Width<C>());
    } else {
      const T* from = wx_ + (step_row * kGates + kFirst) * H + j;
      for (int g = 0; g < kCount; ++g) x[kFirst + g] = LoadPart(from + g * H, H - j);
    }
  }

  // The sums of a tile start from what Read gives, for its rows from n on and its units from j on.
  // row, ahead: from one row of the batch, or step, to the next, in rows of wx.
  template <bool kForms, int kRows, int kVecs>
  HWY_INLINE void StartFromRead(const C* of_step, int64_t n, int64_t step_row, int64_t row,
                                int64_t ahead, int64_t j, V (&sums)[kRows][kVecs]) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int u = 0; u < kVecs / kCount; ++u) {
        V x[kGates];
        const int64_t at = step_row + r * row, first = j + u * Width<C>();
        Read<kForms>(of_step, n + r, at, first, x);
        if (!kForms) Ask(at + ahead, first);
#pragma GCC unroll 4
        for (int g = 0; g < kCount; ++g) sums[r][u * kCount + g] = x[kFirst + g];
      }
    }
  }

  // Prefetches what Read gives of a row of wx.
  HWY_INLINE void Ask(int64_t step_row, int64_t j) const {
    const T* const from = wx_ + (step_row * kGates + kFirst) * H + j;
    for (int g = 0; g < kCount; ++g) __builtin_prefetch(from + g * H, 1);
  }

  // The last of several vectors of units in a panel may not be there in a panel of R.
  static constexpr bool kMayMultiply = kUnits == 1;
  // Whether sums start from StartFromProduct in steps of so many rows, without Form and Read.
  // Nothing is then stored and loaded again. But each step reads W, so it pays if rows are many for
  // the bytes that a step reads. Both ways give the same bits.
  bool StartsFromProduct(Range rows) const {
    constexpr int64_t kLeastRows = kManyRegisters ? 4 : 6, kBytesOfRow = 96 << 10;
    const int64_t count = rows.end - rows.begin, depth = H + projection_.features();
    const int64_t bytes = depth * panels_ * Columns() * static_cast<int64_t>(sizeof(C));
    return projection_.packed() && count >= kLeastRows && bytes <= count * kBytesOfRow;
  }
  // The sums of a tile start from x·W + b, multiplied here, for its rows from n on and its units
  // from j on.
  template <int kRows, int kVecs>
  HWY_INLINE void StartFromProduct(int64_t k, int64_t step, int64_t n, int64_t j,
                                   V (&sums)[kRows][kVecs]) const {
    projection_.StartTile(k, static_cast<uint64_t>(j) / (kUnits * Width<C>()), n, step, sums);
  }

  // Elements of a row of a panel in Form's result; and from one step, or panel, to the next.
  static int64_t Columns() { return kCount * kUnits * Width<C>(); }
  int64_t StepSize() const { return rows_.rows() * Columns(); }
  int64_t Chunk() const { return steps_ * StepSize(); }

 private:
  // Elements of a row of the batch, of all panels and steps.
  int64_t RowSize() const { return panels_ * steps_ * Columns(); }
  C* At(int64_t k, int64_t panel, int64_t s, int64_t n) const {
    const int64_t first = rows_.First(n);
    return ahead_ + rows_.At(k, first, RowSize()) + panel * Chunk() + s * StepSize() +
           (n - first) * Columns();
  }
  // Row 0 of the batch in the first panel, if all rows were those of a task.
  const C* OfStep(int64_t k, int64_t s, Range rows) const {
    return At(k, 0, s, rows.begin) - rows.begin * Columns();
  }

  const TaskRows<C> rows_;
  const int64_t T_, H;
  const T* const wx_;
  Projection<T, kGates, kFirst, kCount, kUnits> projection_;
  NarrowInput<T, kGates, kFirst, kCount, kUnits> narrow_;  // in place of projection_
  const int64_t panels_;                                   // of a lane
  const int64_t steps_;                                    // of a chunk
  C* ahead_ = nullptr;  // [K, task, panel, step of the chunk, row, unit vector, gate, W]
};

HASTE_TARGET_END

#endif
