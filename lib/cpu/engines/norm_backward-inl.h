// Backward through time of a cell that normalises h·R; lib/cpu/engines/norm_walk-inl.h. Per-target
// header.
//
// The moments of a row are computed again from h·R and from the gates: storing and reading them
// would cost as much.
#if defined(HASTE_LIB_CPU_ENGINES_NORM_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_NORM_BACKWARD_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_NORM_BACKWARD_INL_H_
#endif

#include "lib/cpu/engines/norm_walk-inl.h"
#include "lib/cpu/product/pack-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class T>
class NormBackwardWalk : public NormWalk<Cell, T, NormBackwardWalk<Cell, T>> {
  using Base = NormWalk<Cell, T, NormBackwardWalk>;
  using Base::config_, Base::act_, Base::At, Base::Param, Base::StepRow;
  using Base::kGates, Base::kStates, Base::kKept, Base::kNormed, Base::kParams;
  using Base::N, Base::T_, Base::K, Base::H, Base::W, Base::Hp, Base::rows_;
  using typename Base::C;
  using typename Base::V;
  // Rows [Hp] of scratch while a row of the batch is walked: gradients of the gates, then of the
  // normalised h·R; the normalised state, then its gradient; gradients that bypass the cell
  // (Zoneout).
  static constexpr int kFresh = kGates;
  static constexpr int kPast = kFresh + (kNormed > 0 ? 1 : 0);
  static constexpr int kScratch = kPast + kStates;

 public:
  static constexpr bool kProductFirst = false;
  static constexpr bool kFinishes = true;

  NormBackwardWalk(const HasteRnnConfig& config, int64_t rows_per_task,
                   const HasteRnnBackwardArgs& args, Workspace* workspace)
      : Base(config, rows_per_task, args.extra, args.mask, args.seed,
             (config.hidden + Width<C>() - 1) / Width<C>(), kGates * config.hidden,
             NarrowOf<T>(config), workspace, {workspace}),
        args_(args) {
    for (int s = 0; s < kStates; ++s) dstate_[s] = rows_.Take(workspace, Hp);
    dq_ = rows_.Take(workspace, kGates * H);
    dparams_ = rows_.Take(workspace, kParams * Hp);
    scratch_ = rows_.Take(workspace, kScratch * Hp);
  }

  void Pack(int, int64_t k, int64_t panel) {
    const int64_t depth = kGates * H;
    if constexpr (std::is_same_v<T, Bfloat16>) {
      if (this->kernel_ != nullptr) {
        return PackNarrowTransposed(static_cast<const uint16_t*>(args_.R) + k * H * depth, H, depth,
                                    panel * Base::kPanel * W, depth, this->NarrowPanelOf(k, panel));
      }
    }
    PackTransposed(static_cast<const T*>(args_.R) + k * H * depth, H, depth,
                   panel * Base::kPanel * W, depth, this->PanelVectors(panel) * W,
                   this->Panel(k, panel, depth));
  }

  void Begin(int64_t k, Range rows) {
    this->PrepareDropout(k, rows);
    std::fill_n(Gradient(k, rows.begin, 0), (rows.end - rows.begin) * kParams * Hp, C(0));
    for (int s = 0; s < kStates; ++s) this->LoadState(args_.dsT[s], k, rows, dstate_[s]);
  }

  // Step 0 is the last of the walk. All rows use the scratch of the first.
  void Rows(int64_t step, int64_t k, Range rows) {
    C* scratch = scratch_ + rows_.At(k, rows.begin, kScratch * Hp);
    const int64_t forward_step = T_ - 1 - step, t = this->Time(k, forward_step);
    for (int64_t n = rows.begin; n < rows.end; ++n) {
      if (this->Live(n, t)) {
        LiveRow(t, k, n, scratch);
      } else {
        MaskedRow(t, k, n, this->Repeats(k, n, forward_step));
      }
    }
  }

  C* Operand(int64_t k, int64_t n) const { return dq_ + rows_.At(k, n, kGates * H); }
  int64_t Stride() const { return kGates * H; }
  void Multiply(int64_t k, int64_t panel, Range rows, const NarrowRows* narrow) {
    C* dh = dstate_[0] + At(k, rows.begin);
    Base::Multiply(Operand(k, rows.begin), kGates * H, kGates * H, rows.end - rows.begin, k, panel,
                   narrow, [&](int64_t row, int64_t column, V product) HWY_ATTR {
                     C* to = dh + row * Hp + column;
                     // Written out, not left to a compiler that fuses in one tile and not another.
                     const int64_t at = At(k, rows.begin + row) + column;
                     const V sum = this->dropout_
                                       ? MulAdd(product, Load(this->scale_ + at), Load(to))
                                       : product + Load(to);
                     Store(sum, to);
                   });
  }

  void End(int64_t k, Range rows) {
    for (int s = 0; s < kStates; ++s) this->StoreState(dstate_[s], k, rows, args_.ds0[s]);
  }

  // The gradient of one row of a lane's parameters. The order of the sum is fixed: time within a
  // row of the batch, then rows.
  int64_t finishes() const { return kParams; }
  void Finish(int64_t k, int64_t of) {
    const int row = static_cast<int>(of);
    T* to = this->Row(args_.dextra, k, row);
    for (int64_t j = 0; j < H; j += W) {
      V sum;
      for (int64_t n = 0; n < N; ++n) sum = sum + Load(Gradient(k, n, row) + j);
      StorePart(sum, to + j, H - j);
    }
  }

 private:
  C* Gradient(int64_t k, int64_t n, int row) const {
    return dparams_ + rows_.At(k, n, kParams * Hp) + row * Hp;
  }
  const T* Products(int64_t step_row) const {
    return static_cast<const T*>(args_.products) + step_row * kGates * H;
  }

  void LiveRow(int64_t t, int64_t k, int64_t n, C* scratch) {
    const int64_t step_row = StepRow(t, k, n), ahead = this->RowAhead(k, n, t, /*backward=*/true);
    V state_d, state_products;
    const Moments<C> moments = this->RowMomentsOf(Products(step_row));
    const Moments<C> state = StateMoments(step_row, scratch + kFresh * Hp);
    if constexpr (kNormed > 0) {
      OutputBackward(t, k, n, state, scratch, &state_d, &state_products);
    }
    V sum_d, sum_products, felt;
    for (int64_t j = 0; j < H; j += W) {
      AskAhead(ahead, j);
      V kept[kKept], prev[kStates], ds[kStates], past[kStates], before[kStates];
      V dx[kGates], dq[kGates];
      this->LoadReserve(args_, step_row, j, kept, prev);
      felt = felt + Abs(this->Scaled(prev[0], At(k, n) + j));
      if constexpr (kNormed > 0) {
        for (int s = 0; s < kStates; ++s) {
          ds[s] = Load(dstate_[s] + At(k, n) + j);
          if (this->zoneout_) past[s] = Load(scratch + (kPast + s) * Hp + j);
        }
        for (int g = 0; g < kGates; ++g) dx[g] = Load(scratch + g * Hp + j);
        const V normed = state.Normed(Cell::NewState(kept, prev));
        const V d = Load(scratch + kFresh * Hp + j);
        ds[kNormed] = ds[kNormed] + state.Backward(d, normed, state_d, state_products);
      } else {
        Enter(t, k, n, j, ds, past);
      }
      CellBackward<Cell>(act_, kept, prev, ds, dx, dq, before);
      for (int s = 0; s < kStates; ++s) Store(before[s] + past[s], dstate_[s] + At(k, n) + j);
      this->StoreGates(args_.dwx, step_row, j, dx);
      for (int g = 0; g < kGates; ++g) {
        if (Cell::kRecurrentBias) Add(dq[g], Gradient(k, n, Base::kBias + g) + j);
        const V normed = moments.Normed(LoadPart(Products(step_row) + g * H + j, H - j));
        Add(dq[g] * normed, Gradient(k, n, Base::kGamma + g) + j);
        const V d = KeepFirst(dq[g] * Param(k, Base::kGamma + g, j), H - j);
        sum_d = sum_d + d;
        sum_products = MulAdd(d, normed, sum_products);
        Store(d, scratch + g * Hp + j);
      }
    }
    const C share = C(1) / (static_cast<C>(kGates) * static_cast<C>(H));
    ProductGradient(step_row, k, n, moments, V(SumOfLanes(sum_d) * share),
                    V(SumOfLanes(sum_products) * share), SumOfLanes(felt) != 0, scratch);
  }

  // Computes the state that is normalised again, if there is one, and its moments.
  HWY_INLINE Moments<C> StateMoments(int64_t step_row, C* fresh) const {
    if constexpr (kNormed > 0) {
      for (int64_t j = 0; j < H; j += W) {
        V kept[kKept], prev[kStates];
        this->LoadReserve(args_, step_row, j, kept, prev);
        Store(Cell::NewState(kept, prev), fresh + j);
      }
      return this->template ScratchMoments<1>(fresh);
    } else {
      return {V(), V()};
    }
  }

  // From the gradient of h to that of the normalised state and of the gates of Output. dstate_ gets
  // the cell's part of the states' gradients, scratch the part that bypasses the cell (Zoneout).
  HWY_INLINE void OutputBackward(int64_t t, int64_t k, int64_t n, const Moments<C>& moments,
                                 C* scratch, V* mean_d, V* mean_products) {
    const int64_t step_row = StepRow(t, k, n);
    C* fresh = scratch + kFresh * Hp;
    V sum_d, sum_products;
    for (int64_t j = 0; j < H; j += W) {
      V kept[kKept], prev[kStates], ds[kStates], past[kStates], dx[kGates];
      this->LoadReserve(args_, step_row, j, kept, prev);
      Enter(t, k, n, j, ds, past);
      for (int s = 0; s < kStates; ++s) {
        Store(ds[s], dstate_[s] + At(k, n) + j);
        if (this->zoneout_) Store(past[s], scratch + (kPast + s) * Hp + j);
      }
      const V normed = moments.Normed(Load(fresh + j)), gamma = Param(k, Base::kStateGamma, j);
      const V d = Cell::OutputBackward(
          act_, kept, MulAdd(normed, gamma, Param(k, Base::kStateBeta, j)), ds[0], dx);
      for (int g = 0; g < kGates; ++g) Store(dx[g], scratch + g * Hp + j);
      Add(d * normed, Gradient(k, n, Base::kStateGamma) + j);
      Add(d, Gradient(k, n, Base::kStateBeta) + j);
      const V scaled = KeepFirst(d * gamma, H - j);
      sum_d = sum_d + scaled;
      sum_products = MulAdd(scaled, normed, sum_products);
      Store(scaled, fresh + j);
    }
    *mean_d = V(SumOfLanes(sum_d) / static_cast<C>(H));
    *mean_products = V(SumOfLanes(sum_products) / static_cast<C>(H));
  }

  // From the gradient of the normalised h·R, in scratch, to that of h·R. Only dR = Σ h ⊗ dq reads
  // the stored dq. A row with h = 0 adds nothing to dR, but its variance is 0, and the slope
  // 1 / sqrt(ε) may put dq out of the range of 16 bits. So dq is stored as 0 unless `felt`: h is
  // not 0.
  HWY_INLINE void ProductGradient(int64_t step_row, int64_t k, int64_t n, const Moments<C>& moments,
                                  V mean_d, V mean_products, bool felt, const C* scratch) {
    T* dq = static_cast<T*>(args_.dq) + step_row * kGates * H;
    for (int g = 0; g < kGates; ++g) {
      for (int64_t j = 0; j < H; j += W) {
        const V normed = moments.Normed(LoadPart(Products(step_row) + g * H + j, H - j));
        const V d = moments.Backward(Load(scratch + g * Hp + j), normed, mean_d, mean_products);
        StorePart(d, Operand(k, n) + g * H + j, H - j);
        StorePart(felt ? d : V(), dq + g * H + j, H - j);
      }
    }
  }

  // Gradients of the states that leave the step: the cell's part (ds) and the part that bypasses
  // the cell (past).
  HWY_INLINE void Enter(int64_t t, int64_t k, int64_t n, int64_t j, V* ds, V* past) const {
    for (int s = 0; s < kStates; ++s) ds[s] = Load(dstate_[s] + At(k, n) + j);
    if (args_.dy != nullptr) {
      ds[0] = ds[0] + LoadPart(static_cast<const T*>(args_.dy) + StepRow(t, k, n) * H + j, H - j);
    }
    if (this->zoneout_) this->ZoneoutOf(t, k, n, j).Backward(ds, past);
  }

  void MaskedRow(int64_t t, int64_t k, int64_t n, bool repeats) {
    const int64_t step_row = StepRow(t, k, n);
    const V none[kGates];
    for (int64_t j = 0; j < H; j += W) {
      if (args_.dy != nullptr && repeats) {
        Add(LoadPart(static_cast<const T*>(args_.dy) + step_row * H + j, H - j),
            dstate_[0] + At(k, n) + j);
      }
      this->StoreGates(args_.dwx, step_row, j, none);
      this->StoreGates(args_.dq, step_row, j, none);
    }
    std::fill_n(Operand(k, n), kGates * H, C(0));
  }

  static HWY_INLINE void Add(V v, C* to) { Store(Load(to) + v, to); }

  HWY_INLINE void AskAhead(int64_t row, int64_t j) const {
    const int64_t gates = row * kGates * H + j;
    Base::Ahead(args_.gates, gates, kGates, H);
    Base::Ahead(args_.products, gates, kGates, H);
    if (args_.dwx != args_.gates) Base::Ahead(args_.dwx, gates, kGates, H);
    if (args_.dq != args_.products) Base::Ahead(args_.dq, gates, kGates, H);
    for (int i = 0; i < SavedTensors<Cell>(); ++i) Base::Ahead(args_.saved[i], row * H + j);
    if (args_.dy != nullptr) Base::Ahead(args_.dy, row * H + j);
  }

  const HasteRnnBackwardArgs& args_;
  C* dstate_[kStates];  // [K, N, Hp]
  C* dq_;               // [K, N, G, H] gradient of h·R
  C* dparams_;          // [K, N, kParams, Hp] sums over time
  C* scratch_;          // [K, N, kScratch, Hp]
};

HASTE_TARGET_END

#endif
