// What forward multiplies with R: its panels, and the products of a phase. Per-target header;
// lib/cpu/engines/walk-inl.h says how R lies.
#if defined(HASTE_LIB_CPU_ENGINES_FORWARD_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_FORWARD_PRODUCT_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_FORWARD_PRODUCT_INL_H_
#endif

#include "lib/cpu/engines/narrow_weights-inl.h"
#include "lib/cpu/engines/row_in_place.h"
#include "lib/cpu/engines/walk-inl.h"
#include "lib/cpu/product/pack-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class T>
class ForwardProduct : public Walk<Cell, T> {
  using Base = Walk<Cell, T>;
  using Base::panels_;

 public:
  using Base::FirstGate, Base::GatesOf;
  using Base::kGates, Base::kPhases;
  using typename Base::C;
  using typename Base::V;

 protected:
  using Base::N, Base::T_, Base::K, Base::H, Base::W, Base::Hp;

  static constexpr bool kHasNarrow = std::is_same_v<C, float>;
  // Vectors of hidden units a panel: enough that a row of accumulators is about four vectors.
  static constexpr int UnitsOf(int phase) { return GatesOf(phase) >= 3 ? 1 : 4 / GatesOf(phase); }

  ForwardProduct(const HasteRnnConfig& config, int64_t rows_per_task,
                 const HasteRnnForwardArgs& args, Workspace* workspace, const PackPlace& place)
      : Base(config, rows_per_task, args.mask, args.seed, workspace),
        args_(args),
        kernel_(NarrowOf<T>(config)),
        packed_before_(place.kept || (kernel_ != nullptr ? NarrowWeights::PackBefore(N, T_)
                                                         : !InPlaceOf().Takes(args.R))),
        packed_rows_(this->PacksR(args, place) ? H : 0),
        packs_(packed_before_ && !place.filled &&
               (packed_rows_ > 0 || (Cell::kRecurrentBias && kernel_ == nullptr))) {
    for (int p = 0; p < kPhases; ++p) {
      panels_[p] = (H + UnitsOf(p) * W - 1) / (UnitsOf(p) * W);
      if (kernel_ != nullptr) {
        const int vectors = UnitsOf(p) * GatesOf(p);
        narrow_[p] =
            NarrowWeights(kernel_, H, K * panels_[p], vectors, packed_before_, place.memory);
      } else if (place.kept || InPlaceOf().may_pack()) {
        packed_[p] = place.memory->Take<C>(K * PanelDepth(H) * GatesOf(p) * Hp);
      }
    }
  }

  // Packs a panel of R.
  void PackR(int phase, int64_t k, int64_t panel) {
    if constexpr (kHasNarrow) {
      if (kernel_ != nullptr) {
        if (panel % NarrowWeights::kTogether != 0) return;
        const int64_t some = std::min(NarrowWeights::kTogether, panels_[phase] - panel);
        return narrow_[phase].Pack(NarrowR(phase, k), k * panels_[phase], panel, some);
      }
    }
    const int gates = GatesOf(phase), most = UnitsOf(phase);
    const T* r = static_cast<const T*>(args_.R) + (k * H * kGates + FirstGate(phase)) * H;
    C* to = Panel(phase, k, panel);
    const int64_t first = panel * most * W, end = std::min(Hp, first + most * W);
    if constexpr (Cell::kRecurrentBias) {
      const T* bias = static_cast<const T*>(args_.extra[0]) + (k * kGates + FirstGate(phase)) * H;
      to = PackGates(bias, H, gates, first, end, to);
    }
    for (int64_t i = 0; i < packed_rows_; ++i, r += kGates * H) {
      // The rows lie too far apart for the hardware's prefetcher.
      const T* ahead = r + std::min<int64_t>(16, H - 1 - i) * kGates * H + first;
      for (int g = 0; g < gates; ++g) __builtin_prefetch(ahead + g * H);
      to = PackGates(r, H, gates, first, end, to);
    }
  }

  // Phase's product, of narrow weights: of kNarrow, if that is known. A few rows wait for weights
  // from the second-level cache. So every other step goes backwards: it begins with what the step
  // before has left in the first-level cache, and a Zen 5 reads the rest faster too.
  template <int kPhase, int kNarrow, bool kOneRow = false, class Use>
  HWY_INLINE void NarrowPhase(int64_t step, const C* a, int64_t k, Range panels, Range rows,
                              const Use& cell) {
    constexpr int64_t kFewRows = 4;
    const int64_t count = rows.end - rows.begin;
    if (Depth(step) == 0) return NarrowBiases<kPhase>(k, panels, rows, cell);
    FetchShared(kPhase, panels, a, count);
    const NarrowRows operand = narrow_[kPhase].Rows(count, a, Hp);
    narrow_[kPhase].template Multiply<GatesOf(kPhase), UnitsOf(kPhase), kNarrow, kOneRow>(
        NarrowR(kPhase, k), k * panels_[kPhase], panels.begin, panels.end, operand,
        [&](int64_t row, int64_t j, const V* q) HASTE_INLINED { cell(rows.begin + row, j, q); },
        /*backwards=*/step % 2 != 0 && count <= kFewRows);
  }

  // Phase's product, of floats. start(row, j, sums): see PanelProduct; sums are of the units from j
  // on, for each vector of them one of each gate.
  template <int kPhase, class Start, class Use>
  HWY_INLINE void FloatPhase(int64_t step, const C* a, int64_t k, Range panels, Range rows,
                             const Start& start, const Use& cell) const {
    constexpr int kUnits = UnitsOf(kPhase), kPanelGates = GatesOf(kPhase);
    FetchShared(kPhase, panels, a, rows.end - rows.begin);
    if (!packed_before_) {
      const int64_t first = panels.begin * kUnits * W, end = std::min(H, panels.end * kUnits * W);
      return InPlace<kPhase, std::min(8, kMostSums / kPanelGates)>(step, a, k, {first, end}, start,
                                                                   cell);
    }
    const int64_t apart = Panel(kPhase, k, 1) - Panel(kPhase, k, 0);
    const auto multiply = [&](int64_t panel, auto together) HWY_ATTR {
      const int64_t first = panel * kUnits * W;
      const int64_t units = std::min<int64_t>(kUnits, (H - first + W - 1) / W);
      this->template Product<kPanelGates, kUnits, Cell::kRecurrentBias, together>(
          units, a, Hp, rows.end - rows.begin, Panel(kPhase, k, panel), Depth(step),
          [&](int u, int64_t row, auto q)
              HWY_ATTR -> decltype(cell(row, row, q)) { cell(rows.begin + row, first + u * W, q); },
          NoPrefetch(), apart, StartOfTile(start, rows.begin, first));
    };
    Base::template EachPanels<kPanelGates * kUnits>(step, panels, H / (kUnits * W),
                                                    rows.end - rows.begin, multiply);
  }

  const HasteRnnForwardArgs& args_;
  const NarrowKernel* const kernel_;  // of narrow weights, or nullptr
  const bool packed_before_;          // R lies in panels before the walk begins
  const int64_t packed_rows_;         // of R there
  const bool packs_;                  // they are still to be packed

 private:
  // Rows of R that a step multiplies.
  int64_t Depth(int64_t step) const { return step == 0 && Base::StartsFromZeros(args_) ? 0 : H; }

  // NarrowPhase of rows of zeros.
  template <int kPhase, class Use>
  HWY_INLINE void NarrowBiases(int64_t k, Range panels, Range rows, const Use& cell) const {
    constexpr int kPanelGates = GatesOf(kPhase);
    const int64_t units = UnitsOf(kPhase) * W, end = std::min(H, panels.end * units);
    const T* bias = NarrowR(kPhase, k).biases;
    for (int64_t j = panels.begin * units; j < end; j += W) {
      V q[kPanelGates];
      for (int g = 0; bias != nullptr && g < kPanelGates; ++g) {
        q[g] = LoadPart(bias + g * H + j, H - j);
      }
      for (int64_t n = rows.begin; n < rows.end; ++n) cell(n, j, q);
    }
  }

  // Where threads share the units of a step, other cores have computed a part of what R multiplies.
  // A product reads it line by line, and would wait for each. So the first-level cache is asked for
  // all of it at once, if it has room.
  HWY_INLINE void FetchShared(int phase, Range panels, const C* a, int64_t rows) const {
    constexpr int64_t kElements = (16 << 10) / sizeof(C), kLine = 64 / sizeof(C);
    if (panels.end - panels.begin == panels_[phase] || rows * Hp > kElements) return;
    for (const C* line = a; line < a + rows * Hp; line += kLine) __builtin_prefetch(line);
  }

  static HWY_INLINE FromPanel StartOfTile(FromPanel start, int64_t, int64_t) { return start; }
  template <class Start>
  static HWY_INLINE auto StartOfTile(const Start& start, int64_t row, int64_t j) {
    return [&start, row, j](int64_t r, auto& sums) HASTE_INLINED { start(row + r, j, sums); };
  }

  // Rows of a panel: with a recurrent bias, the sums start from it.
  static constexpr int64_t PanelDepth(int64_t hidden) { return hidden + Cell::kRecurrentBias; }

  RowInPlace InPlaceOf() const {
    const int64_t size = sizeof(T);
    return RowInPlace(N, T_, H % W == 0, H * kGates * H * size, W * size);
  }

  C* Panel(int phase, int64_t k, int64_t panel) const {
    return packed_[phase] + PanelDepth(H) * GatesOf(phase) * (k * Hp + panel * UnitsOf(phase) * W);
  }

  // R of a phase.
  NarrowGates<T> NarrowR(int phase, int64_t k) const {
    const bool int8 = kernel_->type == Narrow::kInt8;
    const int64_t gate = FirstGate(phase) * H, lane = k * kGates * H;
    const int64_t bytes = int8 ? 1 : sizeof(T);
    return {static_cast<const char*>(args_.R) + (lane * H + gate) * bytes,
            kGates * H,
            GatesOf(phase),
            UnitsOf(phase),
            H,
            int8 ? args_.R_scale + lane + gate : nullptr,
            Cell::kRecurrentBias ? static_cast<const T*>(args_.extra[0]) + lane + gate : nullptr};
  }

  // cell(0, j, products) for the units [begin, end), kUnits vectors of them at a time. Every other
  // step goes backwards, as EachPanels does.
  template <int kPhase, int kUnits, class Start, class Use>
  HWY_INLINE void InPlace(int64_t step, const C* a, int64_t k, Range units, const Start& start,
                          const Use& cell) const {
    constexpr int kPanelGates = GatesOf(kPhase);
    const T* r = static_cast<const T*>(args_.R) + (k * H * kGates + FirstGate(kPhase)) * H;
    const T* bias = static_cast<const T*>(args_.extra[0]) + (k * kGates + FirstGate(kPhase)) * H;
    const int64_t count = (units.end - units.begin) / (kUnits * W);
    const Range rest{units.begin + count * kUnits * W, units.end};
    const bool backwards = step % 2 != 0;
    if constexpr (kUnits > 1) {
      if (backwards) InPlace<kPhase, kUnits / 2>(step, a, k, rest, start, cell);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t j = units.begin + (backwards ? count - 1 - i : i) * kUnits * W;
      V sums[kUnits][kPanelGates];
      if constexpr (Cell::kRecurrentBias) {
#pragma GCC unroll 8
        for (int u = 0; u < kUnits; ++u) {
          const T* from = bias + j + u * W;
          for (int g = 0; g < kPanelGates; ++g) sums[u][g] = Storage<T>::Load(from + g * H);
        }
      }
      if constexpr (!std::is_same_v<Start, FromPanel>) {
        V all[1][kUnits * kPanelGates];
        start(0, j, all);
#pragma GCC unroll 8
        for (int u = 0; u < kUnits; ++u) {
#pragma GCC unroll 4
          for (int g = 0; g < kPanelGates; ++g) sums[u][g] = all[0][u * kPanelGates + g];
        }
      }
      RowProduct(a, Depth(step), r + j, kGates * H, H, sums);
#pragma GCC unroll 8
      for (int u = 0; u < kUnits; ++u) cell(0, j + u * W, sums[u]);
    }
    if constexpr (kUnits > 1) {
      if (!backwards) InPlace<kPhase, kUnits / 2>(step, a, k, rest, start, cell);
    }
  }

  NarrowWeights narrow_[kPhases];  // in place of packed_
  C* packed_[kPhases] = {};        // [K, panel, bias and H, unit vector, gate, W]
};

HASTE_TARGET_END

#endif
