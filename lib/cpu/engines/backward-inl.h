// Backward through time. Per-target header; lib/cpu/engines/walk-inl.h says how R lies.
#if defined(HASTE_LIB_CPU_ENGINES_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_BACKWARD_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_BACKWARD_INL_H_
#endif

#include "lib/cpu/engines/narrow_weights-inl.h"
#include "lib/cpu/engines/walk-inl.h"
#include "lib/cpu/product/pack-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class T>
class BackwardWalk : public Walk<Cell, T> {
  using Base = Walk<Cell, T>;
  using Base::config_, Base::act_, Base::panels_, Base::Row;
  using Base::N, Base::T_, Base::K, Base::H, Base::W, Base::Hp, Base::rows_;
  using typename Base::C;
  using typename Base::V;
  static constexpr int kUnits = 4;

 public:
  using Base::FirstGate, Base::EndGate, Base::GatesOf;
  using Base::kGates, Base::kStates, Base::kKept, Base::kPhases;
  // Whether Finish is called after all steps, finishes() times for each lane: for each panel.
  static constexpr bool kFinishes = Cell::kRecurrentBias;

  BackwardWalk(const HasteRnnConfig& config, int64_t rows_per_task,
               const HasteRnnBackwardArgs& args, Workspace* workspace)
      : Base(config, rows_per_task, args.mask, args.seed, workspace),
        args_(args),
        kernel_(NarrowOf<T>(config)) {
    for (int p = 0; p < kPhases; ++p) {
      panels_[p] = (H + kUnits * W - 1) / (kUnits * W);
      if (kernel_ != nullptr) {
        narrow_[p] =
            NarrowWeights(kernel_, GatesOf(p) * H, K * panels_[p], kUnits, true, workspace);
      } else {
        packed_[p] = workspace->Take<C>(K * GatesOf(p) * H * Hp);
      }
    }
    dq_[0] = rows_.Take(workspace, kGates * H);
    dq_[1] = rows_.Take(workspace, kGates * H);
    for (int s = 0; s < kStates; ++s) dstate_[s] = rows_.Take(workspace, Hp);
    if (Cell::kRecurrentBias) dbias_ = rows_.Take(workspace, kGates * Hp);
  }

  // One step more than the walk: the last one multiplies, and writes the initial states' gradients.
  int64_t steps() const { return T_ * kPhases + 1; }

  void Pack(int phase, int64_t k, int64_t panel) {
    const int64_t depth = GatesOf(phase) * H, stride = kGates * H, first = panel * kUnits * W;
    if constexpr (kHasNarrow) {
      if (kernel_ != nullptr) {
        const auto* r = static_cast<const uint16_t*>(args_.R);
        return PackNarrowTransposed(r + k * H * stride + FirstGate(phase) * H, H, stride, first,
                                    depth, NarrowPanelOf(phase, k, panel));
      }
    }
    PackTransposed<T>(static_cast<const T*>(args_.R) + k * H * stride + FirstGate(phase) * H, H,
                      stride, first, depth, std::min<int64_t>(kUnits * W, Hp - first),
                      packed_[phase] + depth * (k * Hp + first));
  }

  void Begin(int64_t k, Range rows) {
    this->PrepareDropout(k, rows);
    for (int s = 0; s < kStates; ++s) this->LoadState(args_.dsT[s], k, rows, dstate_[s]);
    if (Cell::kRecurrentBias) {
      std::fill_n(Bias(k, rows.begin, 0), (rows.end - rows.begin) * kGates * Hp, C(0));
    }
  }

  // Step 0 is the last step of the walk. The phases of a step have consecutive numbers.
  void Step(int64_t phase, int64_t k, Range panels, Range rows) {
    if constexpr (kHasNarrow) {
      if (kernel_ != nullptr) {
        if constexpr (kPhases > 1) {
          if (phase % kPhases == 1) return NarrowPhase<1>(phase / kPhases, k, panels, rows);
        }
        return NarrowPhase<0>(phase / kPhases, k, panels, rows);
      }
    }
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      if (kPhases > 1 && phase % kPhases == 1) {
        if constexpr (kPhases > 1) Phase<1>(phase / kPhases, k, panel, rows);
      } else {
        Phase<0>(phase / kPhases, k, panel, rows);
      }
    }
  }

  void End(int64_t, Range) {}
  int64_t finishes() const { return panels_[0]; }

  // The bias's gradient, for the units of a panel. The order of the sum is fixed: time within a
  // row, then rows.
  void Finish(int64_t k, int64_t panel) {
    T* to = static_cast<T*>(args_.dextra[0]) + k * kGates * H;
    const int64_t first = panel * kUnits * W;
    for (int64_t j = first; j < std::min<int64_t>(H, first + kUnits * W); j += W) {
      for (int g = 0; g < kGates; ++g) {
        V sum;
        for (int64_t n = 0; n < N; ++n) sum = sum + Load(Bias(k, n, g) + j);
        StorePart(sum, to + g * H + j, H - j);
      }
    }
  }

 private:
  static constexpr bool kHasNarrow = std::is_same_v<T, Bfloat16>;

  NarrowPanel NarrowPanelOf(int phase, int64_t k, int64_t panel) const {
    const int64_t units = std::min<int64_t>(kUnits, (H - panel * kUnits * W + W - 1) / W);
    return narrow_[phase].Panel(k * panels_[phase] + panel, static_cast<int>(units));
  }
  // Phase, of all panels, by products of bfloat16.
  template <int kPhase>
  HWY_INLINE void NarrowPhase(int64_t step, int64_t k, Range panels, Range rows) {
    const int64_t count = rows.end - rows.begin;
    const C* a = Operand(kPhase == 0 ? step + 1 : step, k, rows.begin) + FirstGate(kPhase) * H;
    const bool none = kPhase == 0 && step == 0;
    const NarrowRows operand = narrow_[kPhase].Rows(none ? 0 : count, a, kGates * H);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const NarrowPanel weights = NarrowPanelOf(kPhase, k, panel);
      const auto use = [&](int64_t row, int u, V product) HWY_ATTR {
        const int64_t j = (panel * kUnits + u) * W;
        if constexpr (kPhase == 0) {
          Element(step, k, rows.begin + row, j, product);
        } else {
          Reset(step, k, rows.begin + row, j, product);
        }
      };
      if (none) {
        for (int64_t row = 0; row < count; ++row) {
          for (int u = 0; u < weights.vectors; ++u) use(row, u, V());
        }
        continue;
      }
      operand.Multiply(weights, [&](int64_t row, const NarrowRows::Sums& sums) HWY_ATTR {
        for (int u = 0; u < weights.vectors; ++u) use(row, u, sums[u]);
      });
    }
  }

  C* Bias(int64_t k, int64_t n, int g) const {
    return dbias_ + rows_.At(k, n, kGates * Hp) + g * Hp;
  }
  C* Operand(int64_t step, int64_t k, int64_t n) const {
    return dq_[step & 1] + rows_.At(k, n, kGates * H);
  }

  // Prefetches the elements of the call's tensors that a phase reads and writes for a panel's
  // units.
  struct Prefetch {
    template <int kRows>
    using TileLines = Lines<T, kUnits, 3 * kGates + SavedTensors<Cell>() + 1, kRows>;
    const BackwardWalk& walk;
    int64_t step, k, first_row, j;

    template <class AnyLines>
    HWY_INLINE void operator()(int64_t row, AnyLines* lines) const {
      if (step == walk.T_) return;
      const HasteRnnBackwardArgs& args = walk.args_;
      const int64_t H = walk.H, t = walk.Time(k, walk.T_ - 1 - step);
      const int64_t step_row = walk.StepRow(t, k, first_row + row);
      const int64_t at = step_row * H + j, gates_at = step_row * kGates * H + j;
      lines->Add(args.gates, gates_at, kGates, H);
      if (args.dwx != args.gates) lines->Add(args.dwx, gates_at, kGates, H);
      if constexpr (Cell::kSplitsGradient) lines->Add(args.dq, gates_at, kGates, H);
      for (int i = 0; i < SavedTensors<Cell>(); ++i) lines->Add(args.saved[i], at);
      if (args.dy != nullptr) lines->Add(args.dy, at);
    }
  };

  // Phase 0 multiplies the previous step's result, phase 1 that of phase 0.
  template <int kPhase>
  HWY_INLINE void Phase(int64_t step, int64_t k, int64_t panel, Range rows) {
    const int64_t first = panel * kUnits * W;
    const int64_t units = std::min<int64_t>(kUnits, (H - first + W - 1) / W);
    const int64_t depth = GatesOf(kPhase) * H;
    const C* weights = packed_[kPhase] + depth * (k * Hp + panel * kUnits * W);
    const C* a = Operand(kPhase == 0 ? step + 1 : step, k, rows.begin) + FirstGate(kPhase) * H;
    this->template Product<1, kUnits>(
        units, a, kGates * H, rows.end - rows.begin, weights, kPhase == 0 && step == 0 ? 0 : depth,
        [&](int u, int64_t row, const V* product) HWY_ATTR {
          if constexpr (kPhase == 0) {
            Element(step, k, rows.begin + row, first + u * W, *product);
          } else {
            Reset(step, k, rows.begin + row, first + u * W, *product);
          }
        },
        Prefetch{*this, step, k, rows.begin, first});
  }

  HWY_INLINE void Element(int64_t step, int64_t k, int64_t n, int64_t j, V product) {
    const int64_t at = Row(k, n) + j;
    const int64_t count = H - j;
    V ds[kStates];
    for (int s = 0; s < kStates; ++s) ds[s] = Load(dstate_[s] + at);
    ds[0] = ds[0] + this->Scaled(product, at);
    if (step == T_) {
      for (int s = 0; s < kStates; ++s) {
        T* to = static_cast<T*>(args_.ds0[s]);
        if (to != nullptr) StorePart(ds[s], to + (n * K + k) * H + j, count);
      }
      return;
    }
    const int64_t forward_step = T_ - 1 - step;
    const int64_t t = this->Time(k, forward_step);
    const int64_t step_row = this->StepRow(t, k, n);
    const bool live = this->Live(n, t);
    if (args_.dy != nullptr && (live || this->Repeats(k, n, forward_step))) {
      ds[0] = ds[0] + LoadPart(static_cast<const T*>(args_.dy) + step_row * H + j, count);
    }
    V dx[kGates], dq[kGates];
    if (live) LiveElement(t, n, k, j, step_row, ds, dx, dq);
    for (int s = 0; s < kStates; ++s) Store(ds[s], dstate_[s] + at);
    C* operand = Operand(step, k, n) + j;
    for (int g = 0; g < kGates; ++g) StorePart(dq[g], operand + g * H, count);
    if constexpr (kPhases == 1) {  // with two phases, the second reads the gates again
      this->StoreGates(args_.dwx, step_row, j, dx);
      if constexpr (Cell::kSplitsGradient) this->StoreGates(args_.dq, step_row, j, dq);
    }
    if constexpr (Cell::kRecurrentBias) {
      for (int g = 0; g < kGates; ++g) {
        C* sum = Bias(k, n, g) + j;
        Store(Load(sum) + dq[g], sum);
      }
    }
  }

  // Second phase of two: computes what depends on the gradient of the second product's operand.
  HWY_INLINE void Reset(int64_t step, int64_t k, int64_t n, int64_t j, V d_operand) {
    const int64_t at = Row(k, n) + j;
    const int64_t t = this->Time(k, T_ - 1 - step);
    const int64_t step_row = this->StepRow(t, k, n);
    C* operand = Operand(step, k, n) + j;
    V dx[kGates];
    for (int g = 0; g < kGates; ++g) dx[g] = LoadPart(operand + g * H, H - j);
    if (this->Live(n, t)) {
      V kept[kKept], prev[kStates], more[kStates];
      this->LoadReserve(args_, step_row, j, kept, prev);
      prev[0] = this->Scaled(prev[0], at);
      Cell::BackwardReset(act_, kept, prev, d_operand, dx, more);
      more[0] = this->Scaled(more[0], at);
      for (int s = 0; s < kStates; ++s) Store(Load(dstate_[s] + at) + more[s], dstate_[s] + at);
      for (int g = 0; g < EndGate(0); ++g) StorePart(dx[g], operand + g * H, H - j);
    }
    this->StoreGates(args_.dwx, step_row, j, dx);
  }

  // ds: gradients of the states that leave the step; on return, of the states that enter it.
  HWY_INLINE void LiveElement(int64_t t, int64_t n, int64_t k, int64_t j, int64_t step_row, V* ds,
                              V* dx, V* dq) {
    V kept[kKept], prev[kStates], past[kStates], before[kStates];
    this->LoadReserve(args_, step_row, j, kept, prev);
    if (this->zoneout_) this->ZoneoutOf(t, k, n, j).Backward(ds, past);
    CellBackward<Cell>(act_, kept, prev, ds, dx, dq, before);
    for (int s = 0; s < kStates; ++s) ds[s] = before[s] + past[s];
  }

  const HasteRnnBackwardArgs& args_;
  const NarrowKernel* const kernel_;  // of narrow weights, or nullptr
  NarrowWeights narrow_[kPhases];     // in place of packed_
  C* packed_[kPhases] = {};           // [K, panel, gate and H, unit]
  C* dq_[2];                          // [K, N, G, H] of h·R, by parity of the step
  C* dstate_[kStates];                // [K, N, Hp]
  C* dbias_ = nullptr;                // [K, N, G, Hp] sums over time
};

HASTE_TARGET_END

#endif
