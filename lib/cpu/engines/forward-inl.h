// Forward through time. Per-target header; lib/cpu/engines/walk-inl.h says how R lies.
#if defined(HASTE_LIB_CPU_ENGINES_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_FORWARD_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_FORWARD_INL_H_
#endif

#include "lib/cpu/engines/cell_vector-inl.h"
#include "lib/cpu/engines/input-inl.h"
#include "lib/cpu/engines/narrow_weights-inl.h"
#include "lib/cpu/engines/plain_step-inl.h"
#include "lib/cpu/engines/row_in_place.h"
#include "lib/cpu/engines/walk-inl.h"
#include "lib/cpu/product/pack-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class T>
class ForwardWalk : public Walk<Cell, T> {
  using Base = Walk<Cell, T>;
  using Base::config_, Base::act_, Base::panels_, Base::Row;
  using Base::N, Base::T_, Base::K, Base::H, Base::W, Base::Hp;
  using typename Base::C;
  using typename Base::V;

 public:
  using Base::FirstGate, Base::EndGate, Base::GatesOf;
  using Base::kGates, Base::kStates, Base::kKept, Base::kPhases;
  // Whether Finish is called after all steps.
  static constexpr bool kFinishes = false;
  // Whether the walk can compute x·W + b itself. Of 16 bits only with a kernel of narrow weights;
  // FormsInput of lib/api/layer.h knows.
  static constexpr bool kProjects = true;

  // layer: x, W and b in place of args.wx, or nullptr.
  ForwardWalk(const HasteRnnConfig& config, const HasteRnnForwardArgs& args, Workspace* workspace,
              const HasteLayerForwardArgs* layer, const PackPlace& place)
      : Base(config, args.mask, args.seed, workspace),
        args_(args),
        kernel_(NarrowOf<T>(config)),
        packed_before_(place.kept || (kernel_ != nullptr ? NarrowWeights::PackBefore(N, T_)
                                                         : !InPlaceOf().Takes(args.R))),
        packs_(packed_before_ && !place.filled),
        first_input_(config, args.wx, kPhases > 1 ? layer : nullptr, kernel_, workspace, place),
        input_(config, args.wx, layer, kernel_, workspace, place),
        plain_(kPhases == 1 && this->IsPlain() && !args.keep) {
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
    h_[0] = workspace->Take<C>(K * N * Hp);
    h_[1] = workspace->Take<C>(K * N * Hp);
    // Where h enters the product: h itself unless dropout makes a difference.
    operand_[0] = this->dropout_ ? workspace->Take<C>(K * N * Hp) : h_[0];
    operand_[1] = this->dropout_ ? workspace->Take<C>(K * N * Hp) : h_[1];
    for (int s = 1; s < kStates; ++s) state_[s] = workspace->Take<C>(K * N * Hp);
    if (kPhases > 1) {
      for (int g = 0; g <= Cell::kResetGates; ++g) reset_[g] = workspace->Take<C>(K * N * Hp);
    }
  }

  int64_t steps() const { return T_ * kPhases; }

  // Whether Pack is to be called.
  bool packs() const { return packs_ || input_.packs(); }

  void Pack(int phase, int64_t k, int64_t panel) {
    if (phase + 1 < kPhases) first_input_.Pack(k, panel);
    if (phase + 1 == kPhases) input_.Pack(k, panel);
    if (!packs_) return;
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
    for (int64_t i = 0; i < H; ++i, r += kGates * H) {
      // The rows lie too far apart for the hardware's prefetcher.
      const T* ahead = r + std::min<int64_t>(16, H - 1 - i) * kGates * H + first;
      for (int g = 0; g < gates; ++g) __builtin_prefetch(ahead + g * H);
      to = PackGates(r, H, gates, first, end, to);
    }
  }

  void Begin(int64_t k, Range rows) {
    this->PrepareDropout(k, rows);
    for (int s = 0; s < kStates; ++s) {
      this->LoadState(args_.s0[s], k, rows, s == 0 ? h_[0] : state_[s]);
    }
    this->LoadOperand(h_[0], k, rows, operand_[0]);
  }

  // The phases of a step have consecutive numbers.
  void Step(int64_t phase, int64_t k, Range panels, Range rows) {
    if (input_.Forms()) return StepWith<true>(phase, k, panels, rows);
    StepWith<false>(phase, k, panels, rows);
  }

  void End(int64_t k, Range rows) {
    for (int s = 0; s < kStates; ++s) {
      this->StoreState(s == 0 ? h_[T_ & 1] : state_[s], k, rows, args_.sT[s]);
    }
  }

 private:
  static constexpr bool kHasNarrow = std::is_same_v<C, float>;
  // Vectors of hidden units a panel: enough that a row of accumulators is about four vectors.
  static constexpr int UnitsOf(int phase) { return GatesOf(phase) >= 3 ? 1 : 4 / GatesOf(phase); }
  template <int kPhase>
  using InputOf = Input<Cell, T, FirstGate(kPhase), GatesOf(kPhase), UnitsOf(kPhase)>;
  // Panels of more than that come from the third-level cache, or from memory, in each step.
  static constexpr int64_t kSecondLevelBytes = 1 << 20;
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

  // Phase's product, of narrow weights: of kNarrow, if that is known. A few rows wait for weights
  // from the second-level cache. So every other step goes backwards: it begins with what the step
  // before has left in the first-level cache, and a Zen 5 reads the rest faster too.
  template <int kPhase, int kNarrow, bool kOneRow = false, class Use>
  HWY_INLINE void NarrowPhase(int64_t step, const C* a, int64_t k, Range panels, Range rows,
                              const Use& cell) {
    constexpr int64_t kFewRows = 4;
    const int64_t count = rows.end - rows.begin;
    const NarrowRows operand = narrow_[kPhase].Rows(count, a, Hp);
    narrow_[kPhase].template Multiply<GatesOf(kPhase), UnitsOf(kPhase), kNarrow, kOneRow>(
        NarrowR(kPhase, k), k * panels_[kPhase], panels.begin, panels.end, operand,
        [&](int64_t row, int64_t j, const V* q) HASTE_INLINED { cell(rows.begin + row, j, q); },
        /*backwards=*/step % 2 != 0 && count <= kFewRows);
  }

  template <bool kForms, class E>
  HWY_INLINE auto PlainStepOf(int64_t step, int64_t t, int64_t k, const C* formed) const {
    const int64_t row = this->StepRow(t, k, 0), at = Row(k, 0);
    PlainStep<Cell, T, E, kForms, UnitsOf(0)> plain{};
    plain.before = h_[step & 1] + at;
    plain.after = h_[(step + 1) & 1] + at;
    for (int s = 1; s < kStates; ++s) plain.state[s] = state_[s] + at;
    plain.y = static_cast<T*>(args_.y) + row * H;
    plain.wx = static_cast<const T*>(args_.wx) + row * kGates * H;
    plain.formed = formed;
    plain.H = H;
    plain.Hp = Hp;
    plain.row = T_ * K;
    plain.ahead = this->RowAhead(k, 0, t) - row;
    plain.formed_panel = input_.Chunk();
    plain.formed_step = N * input_.Columns();
    return plain;
  }
  template <bool kForms, int kNarrow, bool kOneRow>
  HWY_NOINLINE void PlainNarrow(int64_t step, const C* a, int64_t k, Range panels, Range rows,
                                const C* formed) {
    const auto plain = PlainStepOf<kForms, ApproximateVec>(step, this->Time(k, step), k, formed);
    NarrowPhase<0, kNarrow, kOneRow>(step, a, k, panels, rows, plain);
  }

  template <bool kForms, int kNarrow>
  HWY_INLINE void PlainNarrow(int64_t step, const C* a, int64_t k, Range panels, Range rows,
                              const C* formed) {
    if (rows.end - rows.begin == 1 && packed_before_) {
      return PlainNarrow<kForms, kNarrow, true>(step, a, k, panels, rows, formed);
    }
    PlainNarrow<kForms, kNarrow, false>(step, a, k, panels, rows, formed);
  }

  // kForms: x·W + b is computed here. A template argument, because a branch in Element costs up to
  // 10 %.
  template <bool kForms>
  void StepWith(int64_t phase, int64_t k, Range panels, Range rows) {
    if constexpr (kPhases > 1) {
      if (phase % kPhases == 0) return Phase<0, kForms>(phase / kPhases, k, panels, rows);
    }
    Phase<kPhases - 1, kForms>(phase / kPhases, k, panels, rows);
  }

  template <int kPhase, bool kForms>
  HWY_INLINE void Phase(int64_t step, int64_t k, Range panels, Range rows) {
    const C* a =
        (kPhase == 0 ? operand_[step & 1] : reset_[Cell::kResetGates]) + Row(k, rows.begin);
    const int64_t t = this->Time(k, step);
    const C* formed = nullptr;
    if constexpr (kForms && kPhase + 1 < kPhases) {
      formed = first_input_.Form(step, k, panels, rows);
    } else if constexpr (kForms) {
      formed = input_.Form(step, k, panels, rows);
    }
    if constexpr (kHasNarrow) {
      if (kernel_ != nullptr) {
        if constexpr (kPhases == 1) {
          if (plain_ && kernel_->type == Narrow::kInt8) {
            return PlainNarrow<kForms, kInt8Sums>(step, a, k, panels, rows, formed);
          }
          if constexpr (std::is_same_v<T, Bfloat16>) {
            if (plain_) return PlainNarrow<kForms, kFloatSums>(step, a, k, panels, rows, formed);
          }
        }
        return NarrowPhase<kPhase, kAnySums>(
            step, a, k, panels, rows, [&](int64_t n, int64_t j, const V* q) HWY_ATTR {
              UnitsOfRow<kPhase, kForms, ApproximateVec>(step, t, k, n, j, q, formed);
            });
      }
    }
    // Of 16 bits, only narrow weights are multiplied here with x too.
    if constexpr (!kForms || std::is_same_v<T, C>) {
      if constexpr (kPhases == 1) {
        if (plain_) {
          const auto plain = PlainStepOf<kForms, CellVec<T>>(step, t, k, formed);
          return FloatPhase<kPhase>(step, a, k, panels, rows,
                                    [&plain](int64_t n, int64_t j, const V* q)
                                        HWY_ATTR { plain.Apart(n, j, q); });
        }
      }
      FloatPhase<kPhase>(step, a, k, panels, rows, [&](int64_t n, int64_t j, const V* q) HWY_ATTR {
        UnitsOfRow<kPhase, kForms, CellVec<T>>(step, t, k, n, j, q, formed);
      });
    }
  }

  // What a phase does with the products q. E: the vector in which the cell is computed.
  template <int kPhase, bool kForms, class E>
  HWY_INLINE void UnitsOfRow(int64_t step, int64_t t, int64_t k, int64_t n, int64_t j, const V* q,
                             const C* formed) {
    if constexpr (kPhase + 1 < kPhases) {
      Reset<kForms, E>(step, t, k, n, j, q, formed);
    } else {
      Element<kForms, E>(step, t, k, n, j, q, formed);
    }
  }

  // Phase's product, of floats.
  template <int kPhase, class Use>
  HWY_INLINE void FloatPhase(int64_t step, const C* a, int64_t k, Range panels, Range rows,
                             const Use& cell) const {
    constexpr int kUnits = UnitsOf(kPhase), kPanelGates = GatesOf(kPhase);
    if (!packed_before_) {
      const int64_t first = panels.begin * kUnits * W, end = std::min(H, panels.end * kUnits * W);
      return InPlace<kPhase, std::min(8, kMostSums / kPanelGates)>(step, a, k, {first, end}, cell);
    }
    const int64_t apart = Panel(kPhase, k, 1) - Panel(kPhase, k, 0);
    const int64_t bytes = apart * static_cast<int64_t>(sizeof(C));
    const bool exceeds_cache = (panels.end - panels.begin) * bytes > kSecondLevelBytes;
    const int64_t lines = exceeds_cache ? bytes / 64 / (rows.end - rows.begin) : 0;
    const auto multiply = [&](int64_t panel, auto together) HWY_ATTR {
      const int64_t first = panel * kUnits * W;
      const int64_t units = std::min<int64_t>(kUnits, (H - first + W - 1) / W);
      const C* const next = Panel(kPhase, k, panel + (step % 2 == 0 ? 1 : -1));
      this->template Product<kPanelGates, kUnits, Cell::kRecurrentBias, together>(
          units, a, Hp, rows.end - rows.begin, Panel(kPhase, k, panel), H,
          [&](int u, int64_t row, const V* q)
              HWY_ATTR { cell(rows.begin + row, first + u * W, q); },
          NextPanel{reinterpret_cast<const char*>(next), lines}, apart);
    };
    Base::EachPanels(step, panels, H / (kUnits * W), rows.end - rows.begin, multiply);
  }

  // cell(0, j, products) for the units [begin, end), kUnits vectors of them at a time. Every other
  // step goes backwards, as EachPanels does.
  template <int kPhase, int kUnits, class Use>
  HWY_INLINE void InPlace(int64_t step, const C* a, int64_t k, Range units, const Use& cell) const {
    constexpr int kPanelGates = GatesOf(kPhase);
    const T* r = static_cast<const T*>(args_.R) + (k * H * kGates + FirstGate(kPhase)) * H;
    const T* bias = static_cast<const T*>(args_.extra[0]) + (k * kGates + FirstGate(kPhase)) * H;
    const int64_t count = (units.end - units.begin) / (kUnits * W);
    const Range rest{units.begin + count * kUnits * W, units.end};
    const bool backwards = step % 2 != 0;
    if constexpr (kUnits > 1) {
      if (backwards) InPlace<kPhase, kUnits / 2>(step, a, k, rest, cell);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t j = units.begin + (backwards ? count - 1 - i : i) * kUnits * W;
      V sums[kUnits][kPanelGates];
      if constexpr (Cell::kRecurrentBias) {
#pragma GCC unroll 8
        for (int u = 0; u < kUnits; ++u) {
          const T* start = bias + j + u * W;
          for (int g = 0; g < kPanelGates; ++g) sums[u][g] = Storage<T>::Load(start + g * H);
        }
      }
      RowProduct(a, H, r + j, kGates * H, H, sums);
#pragma GCC unroll 8
      for (int u = 0; u < kUnits; ++u) cell(0, j + u * W, sums[u]);
    }
    if constexpr (kUnits > 1) {
      if (!backwards) InPlace<kPhase, kUnits / 2>(step, a, k, rest, cell);
    }
  }

  // First phase of two: gates 0 … kResetGates - 1, and the operand of the second product.
  template <bool kForms, class E>
  HWY_INLINE void Reset(int64_t step, int64_t t, int64_t k, int64_t n, int64_t j, const V* q,
                        const C* formed) {
    constexpr int kGatesNow = EndGate(0);
    const int64_t at = Row(k, n) + j;
    const int64_t ahead = this->RowAhead(k, n, t);
    if (!kForms) Base::Ahead(args_.wx, ahead * kGates * H + j, kGatesNow, H);
    V kept[kKept];
    if (this->Live(n, t)) {
      V x[kGates], entering[kStates];
      first_input_.template Read<kForms>(formed, n, this->StepRow(t, k, n), j, x);
      entering[0] = Load(operand_[step & 1] + at);
      for (int s = 1; s < kStates; ++s) entering[s] = Load(state_[s] + at);
      ForwardResetIn<E, Cell>(act_, x, q, entering, kept);
    }
    for (int g = 0; g < kGatesNow; ++g) Store(kept[g], reset_[g] + at);
    Store(kept[Cell::kOperand], reset_[kGatesNow] + at);
  }

  // One row of one vector of hidden units, from j on; q: its products with R.
  template <bool kForms, class E>
  HWY_INLINE void Element(int64_t step, int64_t t, int64_t k, int64_t n, int64_t j, const V* q,
                          const C* formed) {
    constexpr int kFirst = FirstGate(kPhases - 1);
    const int64_t at = Row(k, n) + j;
    const int64_t step_row = this->StepRow(t, k, n);
    const int64_t ahead = this->RowAhead(k, n, t);
    const int64_t wx_ahead = (ahead * kGates + kFirst) * H + j;
    if (!kForms) Base::Ahead(args_.wx, wx_ahead, kGates - kFirst, H);
    Base::Ahead(args_.y, ahead * H + j);
    V prev[kStates], next[kStates], kept[kKept];
    prev[0] = Load(h_[step & 1] + at);
    for (int s = 1; s < kStates; ++s) prev[s] = Load(state_[s] + at);
    if constexpr (kPhases > 1) {
      for (int g = 0; g < kFirst; ++g) kept[g] = Load(reset_[g] + at);
      kept[Cell::kOperand] = Load(reset_[kFirst] + at);
    }
    V y;
    if (this->Live(n, t)) {
      V x[kGates];
      input_.template Read<kForms>(formed, n, step_row, j, x);
      if constexpr (kPhases > 1) {
        V all_q[kGates];
        for (int g = kFirst; g < kGates; ++g) all_q[g] = q[g - kFirst];
        ForwardIn<E, Cell>(act_, x, all_q, prev, kept, next);
      } else {
        ForwardIn<E, Cell>(act_, x, q, prev, kept, next);
      }
      if (this->zoneout_) this->ZoneoutOf(t, k, n, j).Forward(prev, next);
      y = next[0];
    } else {
      for (int s = 0; s < kStates; ++s) next[s] = prev[s];
      if (this->Repeats(k, n, step)) y = prev[0];
    }
    const V h_in = this->dropout_ ? Load(operand_[step & 1] + at) : prev[0];
    if (args_.keep) Keep(step_row, ahead, j, prev, h_in, kept);
    StorePart(y, static_cast<T*>(args_.y) + step_row * H + j, H - j);
    const int after = (step + 1) & 1;
    Store(next[0], h_[after] + at);
    if (this->dropout_) Store(this->Scaled(next[0], at), operand_[after] + at);
    for (int s = 1; s < kStates; ++s) Store(next[s], state_[s] + at);
  }

  HWY_INLINE void Keep(int64_t step_row, int64_t ahead, int64_t j, const V* prev, V h_in,
                       const V* kept) {
    if (args_.gates != args_.wx) Base::Ahead(args_.gates, ahead * kGates * H + j, kGates, H);
    for (int i = 0; i < SavedTensors<Cell>(); ++i) Base::Ahead(args_.saved[i], ahead * H + j);
    this->StoreReserve(args_, step_row, j, prev, h_in, kept);
  }

  const HasteRnnForwardArgs& args_;
  const NarrowKernel* const kernel_;  // of narrow weights, or nullptr
  const bool packed_before_;          // R lies in panels before the walk begins
  const bool packs_;                  // they are still to be packed
  InputOf<0> first_input_;            // what x adds to the gates of the first of two phases
  InputOf<kPhases - 1> input_;
  const bool plain_;                      // PlainStep does what Element would
  NarrowWeights narrow_[kPhases];         // in place of packed_
  C* packed_[kPhases] = {};               // [K, panel, bias and H, unit vector, gate, W]
  C* h_[2];                               // [K, N, Hp] by parity of the step
  C* operand_[2];                         // the same, as it enters the product
  C* state_[kStates] = {};                // [K, N, Hp] the other states
  C* reset_[Cell::kResetGates + 1] = {};  // [K, N, Hp] gates of the first phase, then its operand
};

HASTE_TARGET_END

#endif
