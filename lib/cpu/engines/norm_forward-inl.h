// Forward through time of a cell that normalises h·R; lib/cpu/engines/norm_walk-inl.h. Per-target
// header.
#if defined(HASTE_LIB_CPU_ENGINES_NORM_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_NORM_FORWARD_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_NORM_FORWARD_INL_H_
#endif

#include "lib/cpu/engines/cell_vector-inl.h"
#include "lib/cpu/engines/norm_walk-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class T>
class NormForwardWalk : public NormWalk<Cell, T, NormForwardWalk<Cell, T>> {
  using Base = NormWalk<Cell, T, NormForwardWalk>;
  using Base::config_, Base::act_, Base::At, Base::Param, Base::StepRow;
  using Base::kGates, Base::kStates, Base::kKept, Base::kNormed;
  using Base::N, Base::T_, Base::K, Base::H, Base::W, Base::Hp, Base::rows_;
  using typename Base::C;
  using typename Base::V;
  // Of the cell, with narrow weights, which double does not have.
  using NarrowVec = std::conditional_t<std::is_same_v<C, float>, ApproximateVec, V>;
  // Rows [Hp] of scratch for each row of the batch: h·R, then the kept tensors. A cell that
  // normalises a state also has its new states there, except h.
  static constexpr int kFresh = kKept;
  static constexpr int kScratch = kNormed > 0 ? kFresh + kStates - 1 : kGates;

 public:
  static constexpr bool kProjects = false;  // wx must be given
  static constexpr bool kProductFirst = true;
  static constexpr bool kFinishes = false;

  NormForwardWalk(const HasteRnnConfig& config, int64_t rows_per_task,
                  const HasteRnnForwardArgs& args, Workspace* workspace,
                  const HasteLayerForwardArgs*, const PackPlace& place)
      : Base(config, rows_per_task, args.extra, args.mask, args.seed, Columns(config),
             config.hidden, NarrowOf<T>(config), workspace, place),
        args_(args),
        packs_(!place.filled && this->PacksR(args, place)) {
    for (int s = 0; s < kStates; ++s) state_[s] = rows_.Take(workspace, Hp);
    // Where h enters the product: h itself unless there is dropout.
    operand_ = this->dropout_ ? rows_.Take(workspace, Hp) : state_[0];
    scratch_ = rows_.Take(workspace, kScratch * Hp);
  }

  bool packs() const { return packs_; }
  // A panel's vectors are gathered from a row [G, Hp] of h·R.
  void Pack(int, int64_t k, int64_t panel) {
    if constexpr (std::is_same_v<C, float>) {
      if (this->kernel_ != nullptr) return PackNarrowPanel(k, panel);
    }
    const T* r = static_cast<const T*>(args_.R) + k * H * kGates * H;
    C* to = this->Panel(k, panel, H);
    const int64_t vectors = this->PanelVectors(panel);
    for (int64_t i = 0; i < H; ++i, r += kGates * H) {
      for (int64_t u = 0; u < vectors; ++u, to += W) {
        const int64_t column = (panel * Base::kPanel + u) * W;
        const int64_t g = column / Hp, j = column % Hp;
        Store(LoadPart(r + g * H + j, H - j), to);
      }
    }
  }

  void Begin(int64_t k, Range rows) {
    this->PrepareDropout(k, rows);
    for (int s = 0; s < kStates; ++s) this->LoadState(args_.s0[s], k, rows, state_[s]);
    this->LoadOperand(state_[0], k, rows, operand_);
  }

  const C* Operand(int64_t k, int64_t n) const { return operand_ + At(k, n); }
  int64_t Stride() const { return Hp; }
  void Multiply(int64_t k, int64_t panel, Range rows, const NarrowRows* narrow) {
    C* to = Scratch(k, rows.begin);
    Base::Multiply(Operand(k, rows.begin), H, Hp, rows.end - rows.begin, k, panel, narrow,
                   [&](int64_t row, int64_t column, V product)
                       HWY_ATTR { Store(product, to + row * kScratch * Hp + column); });
  }

  bool StartsFromZeros() const { return Base::StartsFromZeros(args_); }
  // The products of rows of zeros.
  void StoreZeros(int64_t k, Range panels, Range rows) {
    const int64_t first = panels.begin * Base::kPanel * W;
    const int64_t last = panels.end - 1, end = (last * Base::kPanel + this->PanelVectors(last)) * W;
    for (int64_t n = rows.begin; n < rows.end; ++n) {
      std::fill(Scratch(k, n) + first, Scratch(k, n) + end, C(0));
    }
  }

  void Rows(int64_t step, int64_t k, Range rows) {
    const int64_t t = this->Time(k, step);
    for (int64_t n = rows.begin; n < rows.end; ++n) {
      if (!this->Live(n, t)) {
        MaskedRow(step, t, k, n);
      } else if (std::is_same_v<C, float> && this->kernel_ != nullptr) {
        LiveRow<NarrowVec>(step, t, k, n);
      } else {
        LiveRow<CellVec<T>>(step, t, k, n);
      }
    }
  }

  void End(int64_t k, Range rows) {
    for (int s = 0; s < kStates; ++s) this->StoreState(state_[s], k, rows, args_.sT[s]);
  }

 private:
  static int64_t Columns(const HasteRnnConfig& config) {
    return kGates * ((config.hidden + Width<C>() - 1) / Width<C>());
  }
  void PackNarrowPanel(int64_t k, int64_t panel) const {
    NarrowColumns columns;
    for (int64_t v = 0; v < this->PanelVectors(panel); ++v) {
      const int64_t column = (panel * Base::kPanel + v) * W;
      columns.Add(column / Hp * H + column % Hp, H - column % Hp);
    }
    const bool int8 = this->kernel_->type == Narrow::kInt8;
    const int64_t bytes = int8 ? 1 : sizeof(T);
    this->NarrowPanelOf(k, panel).Pack(
        static_cast<const char*>(args_.R) + k * H * kGates * H * bytes, kGates * H, columns,
        int8 ? args_.R_scale + k * kGates * H : nullptr, static_cast<const T*>(nullptr));
  }
  C* Scratch(int64_t k, int64_t n) const { return scratch_ + rows_.At(k, n, kScratch * Hp); }

  // E: the vector in which the cell is computed.
  template <class E>
  void LiveRow(int64_t step, int64_t t, int64_t k, int64_t n) {
    C* scratch = Scratch(k, n);
    const int64_t step_row = StepRow(t, k, n), ahead = this->RowAhead(k, n, t);
    const Moments<C> moments = this->template ScratchMoments<kGates>(scratch);
    for (int64_t j = 0; j < H; j += W) {
      const int64_t at = At(k, n) + j;
      AskAhead(ahead, j);
      V raw[kGates], q[kGates], x[kGates], prev[kStates], kept[kKept], next[kStates];
      const T* wx = static_cast<const T*>(args_.wx) + step_row * kGates * H + j;
      for (int g = 0; g < kGates; ++g) {
        x[g] = LoadPart(wx + g * H, H - j);
        raw[g] = Load(scratch + g * Hp + j);
        const V offset = Cell::kRecurrentBias ? Param(k, Base::kBias + g, j) : V();
        q[g] = MulAdd(moments.Normed(raw[g]), Param(k, Base::kGamma + g, j), offset);
      }
      for (int s = 0; s < kStates; ++s) prev[s] = Load(state_[s] + at);
      ForwardIn<E, Cell>(act_, x, q, prev, kept, next);
      if (args_.keep) Keep(step_row, j, raw, prev, Load(operand_ + at), kept);
      if constexpr (kNormed > 0) {
        for (int i = 0; i < kKept; ++i) Store(kept[i], scratch + i * Hp + j);
        for (int s = 1; s < kStates; ++s) Store(next[s], scratch + (kFresh + s - 1) * Hp + j);
      } else {
        Leave(t, k, n, j, next);
      }
    }
    if constexpr (kNormed > 0) Output<E>(t, k, n);
  }

  // Normalises the state, and computes h from it.
  template <class E>
  void Output(int64_t t, int64_t k, int64_t n) {
    const C* scratch = Scratch(k, n);
    const Moments<C> moments =
        this->template ScratchMoments<1>(scratch + (kFresh + kNormed - 1) * Hp);
    for (int64_t j = 0; j < H; j += W) {
      V kept[kKept], next[kStates];
      for (int i = 0; i < kKept; ++i) kept[i] = Load(scratch + i * Hp + j);
      for (int s = 1; s < kStates; ++s) next[s] = Load(scratch + (kFresh + s - 1) * Hp + j);
      const V normed = MulAdd(moments.Normed(next[kNormed]), Param(k, Base::kStateGamma, j),
                              Param(k, Base::kStateBeta, j));
      next[0] = OutputIn<E, Cell>(act_, kept, normed);
      Leave(t, k, n, j, next);
    }
  }

  // Writes the states that leave the step.
  HWY_INLINE void Leave(int64_t t, int64_t k, int64_t n, int64_t j, V* next) {
    const int64_t at = At(k, n) + j;
    if (this->zoneout_) {
      V prev[kStates];
      for (int s = 0; s < kStates; ++s) prev[s] = Load(state_[s] + at);
      this->ZoneoutOf(t, k, n, j).Forward(prev, next);
    }
    StorePart(next[0], static_cast<T*>(args_.y) + StepRow(t, k, n) * H + j, H - j);
    for (int s = 0; s < kStates; ++s) Store(next[s], state_[s] + at);
    if (this->dropout_) Store(this->Scaled(next[0], at), operand_ + at);
  }

  void MaskedRow(int64_t step, int64_t t, int64_t k, int64_t n) {
    const int64_t step_row = StepRow(t, k, n);
    const bool repeats = this->Repeats(k, n, step);
    for (int64_t j = 0; j < H; j += W) {
      const int64_t at = At(k, n) + j;
      V prev[kStates];
      const V none[kKept];
      for (int s = 0; s < kStates; ++s) prev[s] = Load(state_[s] + at);
      if (args_.keep) Keep(step_row, j, none, prev, Load(operand_ + at), none);
      StorePart(repeats ? Load(state_[0] + at) : V(), static_cast<T*>(args_.y) + step_row * H + j,
                H - j);
    }
  }

  // Writes the reserve.
  HWY_INLINE void Keep(int64_t step_row, int64_t j, const V* products, const V* prev, V h_in,
                       const V* kept) const {
    this->StoreGates(args_.products, step_row, j, products);
    this->StoreReserve(args_, step_row, j, prev, h_in, kept);
  }

  HWY_INLINE void AskAhead(int64_t row, int64_t j) const {
    const int64_t gates = row * kGates * H + j;
    Base::Ahead(args_.wx, gates, kGates, H);
    Base::Ahead(args_.y, row * H + j);
    if (!args_.keep) return;
    if (args_.gates != args_.wx) Base::Ahead(args_.gates, gates, kGates, H);
    Base::Ahead(args_.products, gates, kGates, H);
    for (int i = 0; i < SavedTensors<Cell>(); ++i) Base::Ahead(args_.saved[i], row * H + j);
  }

  const HasteRnnForwardArgs& args_;
  const bool packs_;
  C* state_[kStates];  // [K, N, Hp]
  C* operand_;         // [K, N, Hp] h as it enters the product
  C* scratch_;         // [K, N, kScratch, Hp]
};

HASTE_TARGET_END

#endif
