// Zoneout (Krueger et al., arXiv 1606.01305) of the states of one vector of hidden units: each
// state keeps its previous value with its own probability, drawn in training, as an expectation
// otherwise. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_ZONEOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_ZONEOUT_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_ZONEOUT_INL_H_
#endif

#include "haste/c_api.h"
#include "lib/cells/cell.h"
#include "lib/cpu/simd/random-inl.h"

HASTE_TARGET_BEGIN

template <class Cell, class C>
class Zoneout {
  using V = Vec<C>;
  static constexpr int kStates = Cell::kStates;

 public:
  // Of the units from `unit` (counted through all lanes) on, of row n at time t.
  HWY_INLINE Zoneout(const HasteRnnConfig& config, PhiloxKey key, int64_t t, int64_t n,
                     int64_t unit)
      : config_(config) {
    if (!config.training) return;
    const UnitDraws<C> draws(key, t, n, unit, kZoneoutStream);
    for (int s = 0; s < kStates; ++s) {
      keep_[s] = draws.Drawn(ZoneoutWord<Cell>(s), ZoneoutRate<Cell>(config, s));
    }
  }

  // next: in, the states that the cell computed; out, those that leave the step.
  HWY_INLINE void Forward(const V* prev, V* next) const {
    for (int s = 0; s < kStates; ++s) {
      const double rate = ZoneoutRate<Cell>(config_, s);
      if (rate == 0) continue;
      next[s] = config_.training ? IfPositive(keep_[s], prev[s], next[s])
                                 : MulAdd(V(rate), prev[s], V(1 - rate) * next[s]);
    }
  }

  // Splits the gradients: ds keeps the cell's part, `past` gets the part that bypasses the cell.
  HWY_INLINE void Backward(V* ds, V* past) const {
    for (int s = 0; s < kStates; ++s) {
      const double rate = ZoneoutRate<Cell>(config_, s);
      if (rate == 0) continue;
      past[s] = config_.training ? IfPositive(keep_[s], ds[s], V()) : V(rate) * ds[s];
      ds[s] = config_.training ? IfPositive(keep_[s], V(), ds[s]) : V(1 - rate) * ds[s];
    }
  }

 private:
  const HasteRnnConfig& config_;
  V keep_[kStates];  // 1: keeps the previous value
};

HASTE_TARGET_END

#endif
