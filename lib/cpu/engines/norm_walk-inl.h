// The walk through time of a cell that normalises h·R. Per-target header.
//
// A row must be complete before it can be normalised. So a step has two phases: the product of all
// rows with all panels of R, then the rows, one after the other, each in the first-level cache. A
// phase reads nothing that it writes itself, so nothing is double-buffered.
#if defined(HASTE_LIB_CPU_ENGINES_NORM_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_NORM_WALK_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_NORM_WALK_INL_H_
#endif

#include <type_traits>

#include "lib/cpu/engines/narrow_weights-inl.h"
#include "lib/cpu/engines/walk-inl.h"
#include "lib/cpu/simd/moments-inl.h"

HASTE_TARGET_BEGIN

// Derived: the walk of a direction. It has Multiply(lane, panel, rows, narrow rows or nullptr),
// Rows(step, lane, rows), and kProductFirst, which says in what order a step has them;
// Operand(lane, row) and Stride(), which say where the operand's rows are.
template <class Cell, class T, class Derived>
class NormWalk : public Walk<Cell, T> {
  using Base = Walk<Cell, T>;

 protected:
  using Base::config_, Base::N, Base::T_, Base::K, Base::H, Base::W, Base::Hp, Base::rows_;
  using Base::kGates, Base::kStates, Base::kKept, Base::panels_;
  using typename Base::C;
  using typename Base::V;

  static constexpr int kPanel = 4;  // vectors of a product's result side by side
  static constexpr int kNormed = Cell::kNormalizesState;
  // Rows [Hp] of the parameters of a lane, in the order of the extras.
  static constexpr int kGamma = 0;
  static constexpr int kStateGamma = kGates;
  static constexpr int kStateBeta = kGates + 1;
  static constexpr int kBias = kNormed > 0 ? kStateBeta + 1 : kGates;
  static constexpr int kParams = kBias + (Cell::kRecurrentBias ? kGates : 0);

  NormWalk(const HasteRnnConfig& config, int64_t rows_per_task, const void* const* extra,
           const uint8_t* mask, const int64_t* seed, int64_t columns, int64_t depth,
           const NarrowKernel* kernel, Workspace* workspace, const PackPlace& place)
      : Base(config, rows_per_task, mask, seed, workspace),
        kernel_(kernel),
        extra_(extra),
        columns_(columns),
        params_(workspace->Take<C>(K * kParams * Hp)) {
    panels_[0] = (columns_ + kPanel - 1) / kPanel;
    if (kernel_ != nullptr) {
      narrow_ = NarrowWeights(kernel_, depth, K * panels_[0], kPanel, true, place.memory);
    } else {
      packed_ = place.memory->Take<C>(K * kGates * H * Hp);
    }
  }

 public:
  // The two phases of a step have consecutive numbers.
  int64_t steps() const { return 2 * T_; }
  // Panels, or rows of the batch.
  int64_t parts(int64_t phase) const { return Multiplies(phase) ? panels_[0] : N; }

  void Step(int64_t phase, int64_t k, Range parts, Range rows) {
    Derived& walk = static_cast<Derived&>(*this);
    if (!Multiplies(phase)) {
      walk.Rows(phase / 2, k, {std::max(parts.begin, rows.begin), std::min(parts.end, rows.end)});
      return;
    }
    if constexpr (Derived::kProductFirst) {
      if (phase == 0 && walk.StartsFromZeros()) return walk.StoreZeros(k, parts, rows);
    }
    const auto multiply = [&](const NarrowRows* narrow) {
      for (int64_t panel = parts.begin; panel < parts.end; ++panel) {
        walk.Multiply(k, panel, rows, narrow);
      }
    };
    if constexpr (std::is_same_v<C, float>) {
      if (kernel_ != nullptr) {
        const NarrowRows narrow =
            narrow_.Rows(rows.end - rows.begin, walk.Operand(k, rows.begin), walk.Stride());
        return multiply(&narrow);
      }
    }
    multiply(nullptr);
  }

  void Prepare() {
    Base::Prepare();
    for (int64_t k = 0; k < K; ++k) {
      for (int row = 0; row < kParams; ++row) {
        const T* from = Row(extra_, k, row);
        C* to = params_ + (k * kParams + row) * Hp;
        for (int64_t j = 0; j < H; j += W) Store(LoadPart(from + j, H - j), to + j);
      }
    }
  }

 protected:
  static constexpr bool Multiplies(int64_t phase) {
    return (phase % 2 == 0) == Derived::kProductFirst;
  }

  // Row `row` of lane k in the extras, or in their gradients.
  template <class Pointer>
  auto Row(Pointer* extra, int64_t k, int row) const {
    using E = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const T, T>;
    constexpr int kBiasAt = kNormed > 0 ? 3 : 1;
    if (row < kStateGamma) return static_cast<E*>(extra[0]) + (k * kGates + row) * H;
    if (row < kBias) return static_cast<E*>(extra[1 + row - kStateGamma]) + k * H;
    return static_cast<E*>(extra[kBiasAt]) + (k * kGates + row - kBias) * H;
  }
  V Param(int64_t k, int row, int64_t j) const {
    return Load(params_ + (k * kParams + row) * Hp + j);
  }
  // Offset of a row in scratch of [K, N, Hp].
  int64_t At(int64_t k, int64_t n) const { return Base::Row(k, n); }

  C* Panel(int64_t k, int64_t panel, int64_t depth) const {
    return packed_ + depth * (k * columns_ + panel * kPanel) * W;
  }
  int64_t PanelVectors(int64_t panel) const {
    return std::min<int64_t>(kPanel, columns_ - panel * kPanel);
  }
  NarrowPanel NarrowPanelOf(int64_t k, int64_t panel) const {
    return narrow_.Panel(k * panels_[0] + panel, static_cast<int>(PanelVectors(panel)));
  }
  // Calls use(row, column, product) for each vector of the product of a [rows, depth] with a panel.
  // narrow: a's rows converted, or nullptr.
  template <class Use>
  HWY_INLINE void Multiply(const C* a, int64_t depth, int64_t stride, int64_t rows, int64_t k,
                           int64_t panel, const NarrowRows* narrow, const Use& use) const {
    if constexpr (std::is_same_v<C, float>) {
      if (narrow != nullptr) {
        const NarrowPanel weights = NarrowPanelOf(k, panel);
        return narrow->Multiply(weights, [&](int64_t row, const NarrowRows::Sums& sums) HWY_ATTR {
          for (int v = 0; v < weights.vectors; ++v) use(row, (panel * kPanel + v) * W, sums[v]);
        });
      }
    }
    this->template Product<1, kPanel>(PanelVectors(panel), a, stride, rows, Panel(k, panel, depth),
                                      depth, [&](int u, int64_t row, const V* product) HWY_ATTR {
                                        use(row, (panel * kPanel + u) * W, *product);
                                      });
  }

  // Moments of a row [parts, H] in a tensor of T.
  HWY_INLINE Moments<C> RowMomentsOf(const T* row) const {
    return RowMoments<C>(kGates, H, config_.epsilon, [&](int g, int64_t j) HWY_ATTR {
      return LoadPart(row + g * H + j, H - j);
    });
  }
  // Moments of rows [parts, Hp] in scratch.
  template <int kParts>
  HWY_INLINE Moments<C> ScratchMoments(const C* row) const {
    return RowMoments<C>(kParts, H, config_.epsilon,
                         [&](int p, int64_t j) HWY_ATTR { return Load(row + p * Hp + j); });
  }

  const NarrowKernel* const kernel_;  // of narrow weights, or nullptr
  const void* const* const extra_;
  const int64_t columns_;  // of a product's result, in vectors
  C* const params_;        // [K, kParams, Hp]
  C* packed_ = nullptr;    // [K, panel, depth, vector, W]
  NarrowWeights narrow_;   // in its place
};

HASTE_TARGET_END

#endif
