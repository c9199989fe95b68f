// Forward through time of a strip. Per-target header; see lib/cpu/engines/scan-inl.h.
#if defined(HASTE_LIB_CPU_ENGINES_SCAN_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_SCAN_FORWARD_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_SCAN_FORWARD_INL_H_
#endif

#include <memory>

#include "lib/cpu/engines/cell_vector-inl.h"
#include "lib/cpu/engines/scan-inl.h"
#include "lib/cpu/product/projection-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class T>
class ScanForward : public Scan<Cell, T> {
  using Base = Scan<Cell, T>;
  using Base::config_, Base::T_, Base::K, Base::H;
  using Base::kGates, Base::kStates, Base::kDiagonal;
  using typename Base::C;
  using typename Base::Lanes;
  using typename Base::V;

  using Input = Projection<T, kGates, 0, kGates, 1>;

 public:
  static constexpr bool kSumsRows = false;
  // Whether the walk can compute x·W + b itself.
  static constexpr bool kProjects = Input::kPossible && !Cell::kSeparateGates;

  // layer: x, W and b in place of args.wx, or nullptr.
  ScanForward(const HasteRnnConfig& config, int64_t, const HasteRnnForwardArgs& args,
              Workspace* workspace, const HasteLayerForwardArgs* layer, const PackPlace& place)
      : Base(config, args.mask, args.seed, workspace),
        args_(args),
        input_(config, layer, place),
        steps_(Input::Steps(kRowsAhead, config.time)) {}

  // Before Walk, for each lane and panel.
  int64_t panels() const { return input_.packs() ? input_.panels() : 0; }
  void Pack(int64_t k, int64_t panel) { input_.Pack(k, panel); }

  void Walk(const Strip& strip) const {
    if constexpr (kProjects) {
      if (input_) return WalkWith<true>(strip);
    }
    WalkWith<false>(strip);
  }

 private:
  // kForms: x·W + b is computed here.
  template <bool kForms>
  void WalkWith(const Strip& strip) const {
    Carried carried;
    Begin(strip, &carried);
    const bool reverse = this->Reverse(strip.k);
    bool begun = false;  // whether there was a live step
    const std::unique_ptr<Line[]> ahead(kForms ? new Line[steps_ * RowAhead(strip) / kLine + 1]
                                               : nullptr);
    const C* formed = nullptr;
    for (int64_t step = 0; step < T_; ++step) {
      const int64_t t = reverse ? T_ - 1 - step : step;
      if constexpr (kForms) formed = FormInput(strip, step, ahead[0].lanes);
      if (this->Live(strip.n, t)) {
        begun = true;
        this->WithActivations([&](const Activations& act) HASTE_INLINED {
          LiveStep<kForms>(act, strip, t, reverse, formed, &carried);
        });
      } else {
        MaskedStep(strip, t, begun && !config_.zero_output_for_mask, &carried);
      }
    }
    for (int s = 0; s < kStates; ++s) this->StoreState(strip, carried.state[s], args_.sT[s]);
  }

  struct Carried {
    HWY_ALIGN Lanes state[kStates];
    HWY_ALIGN Lanes y;  // the previous output, if it is not state 0
    HWY_ALIGN Lanes scale;
    HWY_ALIGN Lanes u[kDiagonal ? kGates : 1];
  };

  void Begin(const Strip& strip, Carried* carried) const {
    for (int s = 0; s < kStates; ++s) this->LoadState(strip, args_.s0[s], carried->state[s]);
    if constexpr (kDiagonal) this->LoadDiagonal(strip, args_.R, carried->u, carried->scale);
  }

  // Memory for the input's part of the gates. Vectors do not cross cache lines.
  static constexpr int64_t kLine = 64 / sizeof(C);
  struct alignas(64) Line {
    C lanes[kLine];
  };
  // Elements of that memory a step.
  static int64_t RowAhead(const Strip& strip) {
    return (strip.units + Width<C>() - 1) / Width<C>() * kGates * Width<C>();
  }

  // The input's part of the gates of a strip, in `ahead` as [unit vector, steps_, gate, W]; returns
  // that of `step`. Every steps_-th step computes it for steps_ steps.
  const C* FormInput(const Strip& strip, int64_t step, C* ahead) const {
    const int64_t row = kGates * Width<C>(), at = step % steps_;
    if (at == 0) {
      const int64_t count = std::min(steps_, T_ - step), first = strip.unit / Width<C>();
      for (int64_t v = 0; v < RowAhead(strip) / row; ++v) {
        input_.Multiply(strip.k, first + v, strip.n, step, count, /*follows=*/false,
                        ahead + v * steps_ * row, row);
      }
    }
    return ahead + at * row;
  }

  // State s as it enters a step: h with dropout.
  static HWY_INLINE V Entering(const Carried& carried, int s, int64_t j, bool dropout) {
    const V v = Load(carried.state[s] + j);
    return kDiagonal && s == 0 && dropout ? v * Load(carried.scale + j) : v;
  }

  // A strip's reserve at time t.
  struct Reserve {
    T* gate[kGates];
    T* saved[HASTE_MAX_STATES];
  };
  Reserve ReserveAt(const Strip& strip, int64_t t) const {
    Reserve to = {};
    if (!args_.keep) return to;
    if constexpr (!Cell::kSeparateGates) {
      this->GatesAt(strip, t, args_.gates, static_cast<void* const*>(nullptr), to.gate);
    }
    this->SavedAt(strip, t, args_.saved, to.saved);
    return to;
  }
  static HWY_INLINE void Keep(const V* gate, const V* before, int64_t j, int64_t count,
                              const Reserve& to) {
    if constexpr (!Cell::kSeparateGates) {
      for (int g = 0; g < kGates; ++g) StorePart(gate[g], to.gate[g] + j, count);
    }
    for (int s = 0, i = 0; s < kStates; ++s) {
      if (Cell::kReadsState[s]) StorePart(before[s], to.saved[i++] + j, count);
    }
  }

  template <bool kForms>
  HWY_INLINE void LiveStep(const Activations& act, const Strip& strip, int64_t t, bool down,
                           const C* formed, Carried* carried) const {
    const int64_t row = kGates * steps_;  // of `formed`, over a vector's lanes
    const int64_t ahead = this->Ahead(strip, t, down) * (Cell::kSeparateGates ? 1 : kGates);
    const T* from[kGates];
    if constexpr (!kForms) this->GatesAt(strip, t, args_.wx, args_.x, from);
    const Reserve to = ReserveAt(strip, t);
    T* y = static_cast<T*>(args_.y) + this->At(strip, t);
    const bool keep = args_.keep != 0, zoneout = this->zoneout_, dropout = this->dropout_;
    this->EachVector(strip, down, [&](int64_t j, int64_t count) HASTE_INLINED {
      V x[kGates], q[kGates], before[kStates], gate[kGates], next[kStates], share[kStates], out;
      if constexpr (kForms) {
        for (int g = 0; g < kGates; ++g) x[g] = Load(formed + j * row + g * Width<C>());
      } else {
        Base::template Prefetch<kGates>(from, ahead, j);
        for (int g = 0; g < kGates; ++g) x[g] = LoadPart(from[g] + j, count);
      }
      for (int s = 0; s < kStates; ++s) before[s] = Entering(*carried, s, j, dropout);
      if constexpr (kDiagonal) {
        for (int g = 0; g < kGates; ++g) q[g] = Load(carried->u[g] + j) * before[0];
      }
      if (Cell::kZoneoutInGate && zoneout) this->Shares(strip, t, j, share);
      PoolingForwardIn<CellVec<T>, Cell>(act, share, x, q, before, gate, next, &out);
      if (!Cell::kZoneoutInGate && zoneout) {
        V prev[kStates];
        for (int s = 0; s < kStates; ++s) prev[s] = Load(carried->state[s] + j);
        this->ZoneoutAt(strip, t, j).Forward(prev, next);
      }
      for (int s = 0; s < kStates; ++s) Store(next[s], carried->state[s] + j);
      if constexpr (Cell::kOutputsState) {
        out = next[0];
      } else {
        Store(out, carried->y + j);
      }
      StorePart(out, y + j, count);
      if (keep) Keep(gate, before, j, count, to);
    });
  }

  void MaskedStep(const Strip& strip, int64_t t, bool repeats, Carried* carried) const {
    const Reserve to = ReserveAt(strip, t);
    T* y = static_cast<T*>(args_.y) + this->At(strip, t);
    this->EachVector(strip, [&](int64_t j, int64_t count) HASTE_INLINED {
      V out, gate[kGates], before[kStates];
      if (repeats) out = Load((Cell::kOutputsState ? carried->state[0] : carried->y) + j);
      StorePart(out, y + j, count);
      if (!args_.keep) return;
      for (int s = 0; s < kStates; ++s) before[s] = Entering(*carried, s, j, this->dropout_);
      Keep(gate, before, j, count, to);
    });
  }

  static constexpr int64_t kRowsAhead = 4;  // a quarter of the most steps: a strip is wide

  const HasteRnnForwardArgs& args_;
  Input input_;
  const int64_t steps_;  // that are formed at once
};

HASTE_TARGET_END

#endif
