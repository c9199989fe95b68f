// Backward through time of a strip. Per-target header; see lib/cpu/engines/scan-inl.h.
#if defined(HASTE_LIB_CPU_ENGINES_SCAN_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_SCAN_BACKWARD_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_SCAN_BACKWARD_INL_H_
#endif

#include "lib/cpu/engines/scan-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class T>
class ScanBackward : public Scan<Cell, T> {
  using Base = Scan<Cell, T>;
  using Base::config_, Base::T_, Base::K, Base::H, Base::W;
  using Base::kGates, Base::kStates, Base::kSaved, Base::kDiagonal;
  using typename Base::C;
  using typename Base::Lanes;
  using typename Base::V;

 public:
  ScanBackward(const HasteRnnConfig& config, int64_t, const HasteRnnBackwardArgs& args,
               Workspace* workspace)
      : Base(config, args.mask, args.seed, workspace), args_(args) {
    if (kDiagonal) partial_ = workspace->Take<C>(config.batch * K * kGates * H);
  }

  void Walk(const Strip& strip) const {
    Carried carried;
    Begin(strip, &carried);
    const bool reverse = this->Reverse(strip.k);
    for (int64_t step = T_ - 1; step >= 0; --step) {
      const int64_t t = reverse ? T_ - 1 - step : step;
      if (this->Live(strip.n, t)) {
        this->WithActivations([&](const Activations& act)
                                  HASTE_INLINED { LiveStep(act, strip, t, !reverse, &carried); });
      } else {
        MaskedStep(strip, t, &carried);
      }
    }
    for (int s = 0; s < kStates; ++s) this->StoreState(strip, carried.ds[s], args_.ds0[s]);
    if constexpr (kDiagonal) {
      for (int g = 0; g < kGates; ++g) {
        C* to = partial_ + ((strip.n * K + strip.k) * kGates + g) * H + strip.unit;
        this->EachVector(strip, [&](int64_t j, int64_t count) HASTE_INLINED {
          StorePart(Load(carried.du[g] + j), to + j, count);
        });
      }
    }
  }

  static constexpr bool kProjects = false;  // only forward does
  // Whether SumRows must add up the rows' gradients of R.
  static constexpr bool kSumsRows = kDiagonal;
  // Columns of them, counted through lanes and gates.
  int64_t columns() const { return K * kGates * H; }
  // Sums columns [begin, end), in the rows' order.
  void SumRows(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end; j += W) {
      V sum;
      for (int64_t n = 0; n < config_.batch; ++n) {
        sum = sum + LoadPart(partial_ + n * columns() + j, end - j);
      }
      StorePart(sum, static_cast<T*>(args_.dR) + j, end - j);
    }
  }

 private:
  struct Carried {
    HWY_ALIGN Lanes ds[kStates];
    HWY_ALIGN Lanes dy;  // of masked steps, which repeat the output of the live step before them
    HWY_ALIGN Lanes scale;
    HWY_ALIGN Lanes u[kDiagonal ? kGates : 1];
    HWY_ALIGN Lanes du[kDiagonal ? kGates : 1];
  };

  void Begin(const Strip& strip, Carried* carried) const {
    for (int s = 0; s < kStates; ++s) this->LoadState(strip, args_.dsT[s], carried->ds[s]);
    this->EachVector(strip, [&](int64_t j, int64_t) HASTE_INLINED {
      Store(V(), carried->dy + j);
      if constexpr (kDiagonal) {
        for (int g = 0; g < kGates; ++g) Store(V(), carried->du[g] + j);
      }
    });
    if constexpr (kDiagonal) this->LoadDiagonal(strip, args_.R, carried->u, carried->scale);
  }

  HWY_INLINE void LiveStep(const Activations& act, const Strip& strip, int64_t t, bool down,
                           Carried* carried) const {
    const int64_t ahead = this->Ahead(strip, t, down);
    constexpr int64_t gate_steps = Cell::kSeparateGates ? 1 : kGates;
    const T* from[kGates];
    T* to[kGates];
    this->GatesAt(strip, t, args_.gates, args_.x, from);
    this->GatesAt(strip, t, args_.dwx, args_.dx, to);
    const T* saved[HASTE_MAX_STATES];
    this->SavedAt(strip, t, args_.saved, saved);
    const T* dy_from = static_cast<const T*>(args_.dy) + this->At(strip, t);
    const bool has_dy = args_.dy != nullptr, masked = this->mask_ != nullptr;
    const bool zoneout = this->zoneout_, dropout = this->dropout_;
    this->EachVector(strip, down, [&](int64_t j, int64_t count) HASTE_INLINED {
      V gate[kGates], prev[kStates], ds[kStates], past[kStates], share[kStates], dx[kGates],
          before[kStates], dy;
      Base::template Prefetch<kGates>(from, ahead * gate_steps, j);
      Base::template Prefetch<kSaved>(saved, ahead, j);
      if (has_dy) Base::template Prefetch<1>(&dy_from, ahead, j);
      for (int g = 0; g < kGates; ++g) gate[g] = LoadPart(from[g] + j, count);
      for (int s = 0, i = 0; s < kStates; ++s) {
        ds[s] = Load(carried->ds[s] + j);
        if (!Cell::kReadsState[s]) continue;
        prev[s] = LoadPart(saved[i++] + j, count);
      }
      if (has_dy) {
        dy = LoadPart(dy_from + j, count);
        if (masked) {
          dy = dy + Load(carried->dy + j);
          Store(V(), carried->dy + j);
        }
      }
      if constexpr (Cell::kOutputsState) ds[0] = ds[0] + dy;
      if (Cell::kZoneoutInGate && zoneout) this->Shares(strip, t, j, share);
      if (!Cell::kZoneoutInGate && zoneout) this->ZoneoutAt(strip, t, j).Backward(ds, past);
      Cell::Backward(act, share, gate, prev, ds, dy, dx, before);
      if constexpr (kDiagonal) {
        for (int g = 0; g < kGates; ++g) {
          before[0] = MulAdd(Load(carried->u[g] + j), dx[g], before[0]);
          Store(MulAdd(prev[0], dx[g], Load(carried->du[g] + j)), carried->du[g] + j);
        }
        if (dropout) before[0] = before[0] * Load(carried->scale + j);
      }
      for (int g = 0; g < kGates; ++g) StorePart(dx[g], to[g] + j, count);
      for (int s = 0; s < kStates; ++s) Store(before[s] + past[s], carried->ds[s] + j);
    });
  }

  // The states did not change. If the output repeats the one before, its gradient is carried to the
  // live step that made it. Masked steps at the start of the walk have no such step: their output
  // was 0.
  void MaskedStep(const Strip& strip, int64_t t, Carried* carried) const {
    T* to[kGates];
    this->GatesAt(strip, t, args_.dwx, args_.dx, to);
    const bool repeats = args_.dy != nullptr && !config_.zero_output_for_mask;
    this->EachVector(strip, [&](int64_t j, int64_t count) HASTE_INLINED {
      for (int g = 0; g < kGates; ++g) StorePart(V(), to[g] + j, count);
      if (!repeats) return;
      const V dy = LoadPart(static_cast<const T*>(args_.dy) + this->At(strip, t) + j, count);
      Store(Load(carried->dy + j) + dy, carried->dy + j);
    });
  }

  const HasteRnnBackwardArgs& args_;
  C* partial_ = nullptr;  // [N, K, G, H] gradients of R, of each row
};

HASTE_TARGET_END

#endif
