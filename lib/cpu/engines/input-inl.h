// The input's part of the gates: read from wx, or computed for a few steps at a time.
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

// The input of one phase of the walk. Its panels are those of R.
template <class Cell, class T, int kFirst, int kCount, int kUnits>
class Input {
  using C = Compute<T>;
  using V = Vec<C>;
  static constexpr int kGates = Cell::kGates;
  static constexpr bool kHasNarrow = std::is_same_v<C, float>;

 public:
  // layer: nullptr if wx is given. kernel: of narrow weights, or nullptr.
  Input(const HasteRnnConfig& config, const void* wx, const HasteLayerForwardArgs* layer,
        const NarrowKernel* kernel, Workspace* workspace, const PackPlace& place)
      : N(config.batch),
        T_(config.time),
        H(config.hidden),
        wx_(static_cast<const T*>(wx)),
        projection_(config, kernel == nullptr ? layer : nullptr, place),
        narrow_(config, layer, kernel, place),
        panels_(narrow_ ? narrow_.panels() : projection_.panels()),
        steps_(narrow_ ? narrow_.Steps(N, T_) : projection_.Steps(N, T_)) {
    if (Forms()) ahead_ = workspace->Take<C>(config.lanes * panels_ * Chunk());
  }

  // Whether x·W + b is computed here. Then call Form, and before it Pack if packs().
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
          narrow_.Multiply(k, panels, rows, step, std::min(steps_, T_ - step),
                           [&](int64_t panel, int64_t s, int64_t n)
                               HWY_ATTR { return At(k, panel, s, n); });
        }
        return At(k, 0, at, 0);
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
                               N * Columns());
        }
      }
    }
    return At(k, 0, at, 0);
  }

  // Fills the gates of x, either from Form's result or from row step_row of wx as [N, T, K].
  template <bool kForms>
  HWY_INLINE void Read(const C* of_step, int64_t n, int64_t step_row, int64_t j, V* x) const {
    if constexpr (kForms) {
      const int64_t unit = static_cast<uint64_t>(j) / Width<C>();
      const C* from =
          of_step + unit / kUnits * Chunk() + n * Columns() + unit % kUnits * kCount * Width<C>();
      for (int g = 0; g < kCount; ++g) {  // of the next row
        __builtin_prefetch(from + N * Columns() + g * Width<C>());
      }
      for (int g = 0; g < kCount; ++g) x[kFirst + g] = Load(from + g * Width<C>());
    } else {
      const T* from = wx_ + (step_row * kGates + kFirst) * H + j;
      for (int g = 0; g < kCount; ++g) x[kFirst + g] = LoadPart(from + g * H, H - j);
    }
  }

  // Elements of a row of a panel in Form's result, and from one panel to the next.
  static int64_t Columns() { return kCount * kUnits * Width<C>(); }
  int64_t Chunk() const { return steps_ * N * Columns(); }

 private:
  C* At(int64_t k, int64_t panel, int64_t s, int64_t n) const {
    return ahead_ + (k * panels_ + panel) * Chunk() + (s * N + n) * Columns();
  }

  const int64_t N, T_, H;
  const T* const wx_;
  Projection<T, kGates, kFirst, kCount, kUnits> projection_;
  NarrowInput<T, kGates, kFirst, kCount, kUnits> narrow_;  // in place of projection_
  const int64_t panels_;                                   // of a lane
  const int64_t steps_;                                    // of a chunk
  C* ahead_ = nullptr;  // [K, panel, step of the chunk, N, unit vector, gate, W]
};

HASTE_TARGET_END

#endif
