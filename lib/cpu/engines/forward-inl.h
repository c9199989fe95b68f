// Forward through time: the cells, from what forward_product-inl.h gives. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_FORWARD_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_FORWARD_INL_H_
#endif

#include "lib/cpu/engines/cell_vector-inl.h"
#include "lib/cpu/engines/forward_product-inl.h"
#include "lib/cpu/engines/input-inl.h"
#include "lib/cpu/engines/plain_step-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class T>
class ForwardWalk : public ForwardProduct<Cell, T> {
  using Base = ForwardProduct<Cell, T>;
  using Base::act_, Base::Row, Base::UnitsOf;
  using Base::args_, Base::kernel_, Base::packed_before_, Base::packs_, Base::kHasNarrow;
  using Base::N, Base::T_, Base::K, Base::H, Base::Hp, Base::rows_;
  using typename Base::C;
  using typename Base::V;

 public:
  using Base::FirstGate, Base::EndGate, Base::GatesOf;
  using Base::kGates, Base::kStates, Base::kKept, Base::kPhases;
  static_assert(!(Cell::kAddsProduct && (Cell::kRecurrentBias || Cell::kNormalizes)),
                "sums start from x·W + b alone");
  // Whether Finish is called after all steps.
  static constexpr bool kFinishes = false;
  // Whether the walk can compute x·W + b itself. Of 16 bits only with a kernel of narrow weights;
  // FormsInput of lib/api/layer.h knows.
  static constexpr bool kProjects = true;

  // layer: x, W and b in place of args.wx, or nullptr.
  ForwardWalk(const HasteRnnConfig& config, int64_t rows_per_task, const HasteRnnForwardArgs& args,
              Workspace* workspace, const HasteLayerForwardArgs* layer, const PackPlace& place)
      : Base(config, rows_per_task, args, workspace, place),
        first_input_(config, rows_, args.wx, kPhases > 1 ? layer : nullptr, kernel_, workspace,
                     place),
        input_(config, rows_, args.wx, layer, kernel_, workspace, place),
        plain_(kPhases == 1 && this->IsPlain() && !args.keep) {
    h_[0] = rows_.Take(workspace, Hp);
    h_[1] = rows_.Take(workspace, Hp);
    // Where h enters the product: h itself unless dropout makes a difference.
    operand_[0] = this->dropout_ ? rows_.Take(workspace, Hp) : h_[0];
    operand_[1] = this->dropout_ ? rows_.Take(workspace, Hp) : h_[1];
    for (int s = 1; s < kStates; ++s) state_[s] = rows_.Take(workspace, Hp);
    if (kPhases > 1) {
      for (int g = 0; g <= Cell::kResetGates; ++g) reset_[g] = rows_.Take(workspace, Hp);
    }
  }

  int64_t steps() const { return T_ * kPhases; }

  // Whether Pack is to be called.
  bool packs() const { return packs_ || input_.packs(); }

  void Pack(int phase, int64_t k, int64_t panel) {
    if (phase + 1 < kPhases) first_input_.Pack(k, panel);
    if (phase + 1 == kPhases) input_.Pack(k, panel);
    if (packs_) this->PackR(phase, k, panel);
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
  template <int kPhase>
  using InputOf = Input<Cell, T, FirstGate(kPhase), GatesOf(kPhase), UnitsOf(kPhase)>;
  template <int kPhase>
  HWY_INLINE const InputOf<kPhase>& InputAt() const {
    if constexpr (kPhase + 1 < kPhases) {
      return first_input_;
    } else {
      return input_;
    }
  }

  template <InputFrom kFrom, class E>
  HWY_INLINE auto PlainStepOf(int64_t step, int64_t t, int64_t k, Range rows,
                              const C* formed) const {
    const int64_t row = this->StepRow(t, k, 0), at = Row(k, rows.begin) - rows.begin * Hp;
    PlainStep<Cell, T, E, kFrom, UnitsOf(0)> plain{};
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
    plain.formed_step = input_.StepSize();
    return plain;
  }
  template <bool kForms, int kNarrow, bool kOneRow>
  HWY_NOINLINE void PlainNarrow(int64_t step, const C* a, int64_t k, Range panels, Range rows,
                                const C* formed) {
    constexpr InputFrom kFrom = kForms ? InputFrom::kFormed : InputFrom::kWx;
    const auto plain =
        PlainStepOf<kFrom, ApproximateVec>(step, this->Time(k, step), k, rows, formed);
    this->template NarrowPhase<0, kNarrow, kOneRow>(step, a, k, panels, rows, plain);
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
    const auto& input = InputAt<kPhase>();
    const C* formed = nullptr;
    if constexpr (kForms) {
      if constexpr (Cell::kAddsProduct && InputOf<kPhase>::kMayMultiply && std::is_same_v<T, C>) {
        if (kernel_ == nullptr && input.StartsFromProduct(rows)) {
          return Floats<kPhase, InputFrom::kSums>(step, a, k, panels, rows, formed,
                                                  [&](int64_t n, int64_t j, auto& sums) HWY_ATTR {
                                                    input.StartFromProduct(k, step, n, j, sums);
                                                  });
        }
      }
      formed = input.Form(step, k, panels, rows);
    }
    constexpr InputFrom kFrom = kForms ? InputFrom::kFormed : InputFrom::kWx;
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
        const int64_t t = this->Time(k, step);
        return this->template NarrowPhase<kPhase, kAnySums>(
            step, a, k, panels, rows, [&](int64_t n, int64_t j, const V* q) HWY_ATTR {
              UnitsOfRow<kPhase, kFrom, ApproximateVec>(step, t, k, n, j, q, formed);
            });
      }
    }
    // Of 16 bits, only narrow weights are multiplied here with x too.
    if constexpr (!kForms || std::is_same_v<T, C>) {
      if constexpr (Cell::kAddsProduct) {
        const int64_t first = this->StepRow(this->Time(k, step), k, 0);
        const int64_t ahead = this->RowAhead(k, 0, this->Time(k, step)) - first;
        Floats<kPhase, InputFrom::kSums>(
            step, a, k, panels, rows, formed, [&](int64_t n, int64_t j, auto& sums) HWY_ATTR {
              const int64_t row = T_ * K;
              input.template StartFromRead<kForms>(formed, n, first + n * row, row, ahead, j, sums);
            });
      } else {
        Floats<kPhase, kFrom>(step, a, k, panels, rows, formed, FromPanel());
      }
    }
  }

  // A phase with R in floats. start: of FloatPhase.
  template <int kPhase, InputFrom kFrom, class Start>
  HWY_INLINE void Floats(int64_t step, const C* a, int64_t k, Range panels, Range rows,
                         const C* formed, const Start& start) {
    const int64_t t = this->Time(k, step);
    if constexpr (kPhases == 1) {
      if (plain_) {
        const auto plain = PlainStepOf<kFrom, CellVec<T>>(step, t, k, rows, formed);
        return this->template FloatPhase<kPhase>(step, a, k, panels, rows, start,
                                                 [&plain](int64_t n, int64_t j, auto q)
                                                     HWY_ATTR { plain.Apart(n, j, q); });
      }
    }
    this->template FloatPhase<kPhase>(
        step, a, k, panels, rows, start, [&](int64_t n, int64_t j, const V* q) HWY_ATTR {
          UnitsOfRow<kPhase, kFrom, CellVec<T>>(step, t, k, n, j, q, formed);
        });
  }

  // What a phase does with the products q. E: the vector in which the cell is computed.
  template <int kPhase, InputFrom kFrom, class E>
  HWY_INLINE void UnitsOfRow(int64_t step, int64_t t, int64_t k, int64_t n, int64_t j, const V* q,
                             const C* formed) {
    if constexpr (kPhase + 1 < kPhases) {
      Reset<kFrom, E>(step, t, k, n, j, q, formed);
    } else {
      Element<kFrom, E>(step, t, k, n, j, q, formed);
    }
  }

  // The gates of a phase as a cell reads them: x, and of_r, the products with R.
  template <int kPhase, InputFrom kFrom>
  HWY_INLINE void InputOfUnits(int64_t t, int64_t k, int64_t n, int64_t j, const V* q,
                               const C* formed, V* x, V* of_r) const {
    constexpr int kFirst = FirstGate(kPhase);
    for (int g = 0; g < GatesOf(kPhase); ++g) {
      if constexpr (kFrom == InputFrom::kSums) {
        x[kFirst + g] = q[g];
        of_r[kFirst + g] = V(-0.0);  // the sum of anything and this is just that
      } else {
        of_r[kFirst + g] = q[g];
      }
    }
    if constexpr (kFrom != InputFrom::kSums) {
      constexpr bool kForms = kFrom == InputFrom::kFormed;
      InputAt<kPhase>().template Read<kForms>(formed, n, this->StepRow(t, k, n), j, x);
      if (!kForms) InputAt<kPhase>().Ask(this->RowAhead(k, n, t), j);
    }
  }

  // First phase of two: gates 0 … kResetGates - 1, and the operand of the second product.
  template <InputFrom kFrom, class E>
  HWY_INLINE void Reset(int64_t step, int64_t t, int64_t k, int64_t n, int64_t j, const V* q,
                        const C* formed) {
    constexpr int kGatesNow = EndGate(0);
    const int64_t at = Row(k, n) + j;
    V kept[kKept];
    if (this->Live(n, t)) {
      V x[kGates], of_r[kGates], entering[kStates];
      InputOfUnits<0, kFrom>(t, k, n, j, q, formed, x, of_r);
      entering[0] = Load(operand_[step & 1] + at);
      for (int s = 1; s < kStates; ++s) entering[s] = Load(state_[s] + at);
      ForwardResetIn<E, Cell>(act_, x, of_r, entering, kept);
    }
    for (int g = 0; g < kGatesNow; ++g) Store(kept[g], reset_[g] + at);
    Store(kept[Cell::kOperand], reset_[kGatesNow] + at);
  }

  // One row of one vector of hidden units, from j on; q: its products with R.
  template <InputFrom kFrom, class E>
  HWY_INLINE void Element(int64_t step, int64_t t, int64_t k, int64_t n, int64_t j, const V* q,
                          const C* formed) {
    constexpr int kFirst = FirstGate(kPhases - 1);
    const int64_t at = Row(k, n) + j;
    const int64_t step_row = this->StepRow(t, k, n);
    const int64_t ahead = this->RowAhead(k, n, t);
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
      V x[kGates], of_r[kGates];
      InputOfUnits<kPhases - 1, kFrom>(t, k, n, j, q, formed, x, of_r);
      ForwardIn<E, Cell>(act_, x, of_r, prev, kept, next);
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

  InputOf<0> first_input_;  // what x adds to the gates of the first of two phases
  InputOf<kPhases - 1> input_;
  const bool plain_;                      // PlainStep does what Element would
  C* h_[2];                               // [K, N, Hp] by parity of the step
  C* operand_[2];                         // the same, as it enters the product
  C* state_[kStates] = {};                // [K, N, Hp] the other states
  C* reset_[Cell::kResetGates + 1] = {};  // [K, N, Hp] gates of the first phase, then its operand
};

HASTE_TARGET_END

#endif
