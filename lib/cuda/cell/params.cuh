// Parameters of every kernel that walks time, and questions about one element: is the step live,
// and what do Zoneout and dropout do to it?
#pragma once

#include "lib/base/philox.h"
#include "lib/cells/cells.h"
#include "lib/cuda/ptx/vector_access.cuh"

namespace haste {

// Passed by value as a kernel parameter. Sizes are named as in haste/c_api.h.
template <class T>
struct RecurrenceParams {
  using Storage = T;
  using C = Compute<T>;
  int64_t N, T_, K, H;
  Activations act;
  bool training, zoneout, zero_output_for_mask;
  float zoneout_rate[HASTE_MAX_STATES];
  float dropout_rate;         // 0 when nothing is dropped
  const uint8_t* mask;        // [N, T] or null
  const int64_t* seed;        // [2], read only where something is drawn
  const int64_t* first_live;  // [2, N]: first live step of a forward, of a reverse walk; with mask
};

// Further parameters of engines that keep states in memory between steps. All of it is workspace.
template <class T>
struct WalkParams : RecurrenceParams<T> {
  using C = Compute<T>;
  const uint8_t* reverse;        // [K]
  int64_t* recorded_at;          // the step that recorded launches count from (WalkStep)
  C* carried[HASTE_MAX_STATES];  // [N, K, H] states, or their gradients
  // [N, K, H], for cells whose steps have two products (kResetGates): results of the first product
  // for the reset gates and, in forward, the operand made with them.
  C* made[HASTE_MAX_GATES];
};

// An engine's parameters of a direction, with the call's own.
template <class P, class A>
struct WithArgs : P {
  A args;
};

// Fills these from the call. first_live is left to the engine.
template <class Cell, class T, class Args>
void FillRecurrence(const HasteRnnConfig& config, const Args& args, RecurrenceParams<T>* p) {
  p->N = config.batch;
  p->T_ = config.time;
  p->K = config.lanes;
  p->H = config.hidden;
  p->act = CellActivations<Cell>(config);
  p->training = config.training != 0;
  p->zero_output_for_mask = config.zero_output_for_mask != 0;
  p->dropout_rate = p->training ? config.recurrent_dropout : 0.0f;
  p->zoneout = AnyZoneout<Cell>(config);
  for (int s = 0; s < Cell::kStates; ++s) p->zoneout_rate[s] = ZoneoutRate<Cell>(config, s);
  p->mask = args.mask;
  p->seed = args.seed;
}

// Sets the bits of those of `lanes` lanes from `first` on that walk in reverse. bits: all 0.
inline void FillDirections(const HasteRnnConfig& config, int64_t first, int64_t lanes,
                           uint32_t* bits) {
  for (int64_t k = 0; config.reverse != nullptr && k < lanes; ++k) {
    if (config.reverse[first + k]) bits[k / 32] |= 1u << (k % 32);
  }
}

// One element of [N, K, H].
struct Element {
  int64_t n, k, j;
  bool exists;
  int64_t at;  // in [N, K, H]

  Element() = default;
  template <class T>
  HASTE_DEVICE Element(const RecurrenceParams<T>& p, int64_t n, int64_t k, int64_t j, bool exists)
      : n(n), k(k), j(j), exists(exists), at((n * p.K + k) * p.H + j) {}
};

// Which step a launch runs. first: null, or where in memory the step is that `step` counts from:
// launches that are recorded once are replayed for many steps.
struct WalkStep {
  const int64_t* first;
  int64_t step;

  HASTE_DEVICE int64_t Get() const { return first == nullptr ? step : *first + step; }
  WalkStep After(int64_t steps) const { return {first, step + steps}; }
};

// Time index of a step of the walk.
template <class T>
HASTE_DEVICE int64_t TimeOf(const RecurrenceParams<T>& p, bool reverse, int64_t step) {
  return reverse ? p.T_ - 1 - step : step;
}

template <class T>
HASTE_DEVICE bool IsLive(const RecurrenceParams<T>& p, int64_t n, int64_t t) {
  return p.mask == nullptr || p.mask[n * p.T_ + t] != 0;
}

// At a masked step: does y repeat the previous output (otherwise it is 0)?
template <class T>
HASTE_DEVICE bool Repeats(const RecurrenceParams<T>& p, bool reverse, int64_t n, int64_t step) {
  return !p.zero_output_for_mask && step >= p.first_live[(reverse ? p.N : 0) + n];
}

// What h is multiplied by where it enters the product.
template <class T>
HASTE_DEVICE Compute<T> DropScale(const RecurrenceParams<T>& p, const Element& e) {
  if (p.dropout_rate == 0.0f) return 1;
  return DropoutScale(MakePhiloxKey(p.seed), static_cast<uint32_t>(e.n),
                      static_cast<uint32_t>(e.k * p.H + e.j), p.dropout_rate);
}

// share[s]: 1 where Zoneout keeps state s, else 0.
template <class Cell, class T>
HASTE_DEVICE void DrawZoneout(const RecurrenceParams<T>& p, const Element& e, int64_t t,
                              PhiloxKey key, Compute<T> (&share)[Cell::kStates]) {
  uint32_t word[4];
  Philox(key, static_cast<uint32_t>(t), static_cast<uint32_t>(e.n),
         static_cast<uint32_t>(e.k * p.H + e.j), kZoneoutStream, word);
  HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
    share[s] = Draw(word[ZoneoutWord<Cell>(s)], p.zoneout_rate[s]) ? 1 : 0;
  }
}
// share[s]: the share of state s that Zoneout takes from the previous state; 0 or 1 where drawn.
template <class Cell, class T>
HASTE_DEVICE void ZoneoutShares(const RecurrenceParams<T>& p, const Element& e, int64_t t,
                                Compute<T> (&share)[Cell::kStates]) {
  if (p.training) return DrawZoneout<Cell>(p, e, t, MakePhiloxKey(p.seed), share);
  HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) share[s] = p.zoneout_rate[s];
}

}  // namespace haste
