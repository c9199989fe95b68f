// Light GRU (Ravanelli, Brakel, Omologo & Bengio, "Light gated recurrent units for speech
// recognition", IEEE TETCI 2(2), 2018, equations 7 to 9).
//
//   q = h[t-1] · R                       a = activation (ReLU), r = recurrent_activation
//   z = r(x_z + q_z)                     update gate
//   g = a(x_g + q_g)                     candidate
//   h[t] = z ∘ h[t-1] + (1 - z) ∘ g
//
// The paper normalises x·W, outside the recurrence.
//
// Backward, given dh at t:
//
//   dz = dh ∘ (h[t-1] - g) ∘ r'(z)       dg = dh ∘ (1 - z) ∘ a'(g)
//   dh[t-1] = dh ∘ z + (dz, dg) · Rᵀ (the engine's product)
#if defined(HASTE_LIB_CELLS_LIGRU_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_LIGRU_H_
#else
#define HASTE_LIB_CELLS_LIGRU_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

struct LiGru : Cell {
  enum Gate { kUpdate, kCandidate, kGates, kKept = kGates };
  enum State { kHidden, kStates };
  static constexpr bool kAddsProduct = true;
  static constexpr const char* kName = "ligru";
  static constexpr const char* kGateNames[kGates] = {"z", "g"};
  static constexpr const char* kStateNames[kStates] = {"h"};
  static constexpr const char* kSavedNames[] = {"h_in", "h_prev"};
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_MEAN;
  static constexpr HasteActivation kActivation = HASTE_RELU;

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* x, const V* q, const V* s_prev,
                               V* gate, V* s) {
    const V z = gate[kUpdate] = Activate(act.recurrent, x[kUpdate] + q[kUpdate]);
    const V g = gate[kCandidate] = Activate(act.candidate, x[kCandidate] + q[kCandidate]);
    s[kHidden] = MulAdd(z, s_prev[kHidden] - g, g);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* gate, const V* s_prev, const V* ds,
                                V* dx, V* ds_prev) {
    const V z = gate[kUpdate], g = gate[kCandidate], dh = ds[kHidden];
    dx[kUpdate] = dh * (s_prev[kHidden] - g) * Slope(act.recurrent, z);
    dx[kCandidate] = dh * (V(1.0) - z) * Slope(act.candidate, g);
    ds_prev[kHidden] = dh * z;
  }
};

HASTE_TARGET_END

#endif
