// GRU, reset before the product (Cho et al., arXiv 1406.1078v3; Keras's reset_after=False).
//
//   q = h[t-1] · R for z and r           a = activation, r = recurrent_activation
//   z = r(x_z + q_z)                     update gate
//   r = r(x_r + q_r)                     reset gate
//   q_g = (r ∘ h[t-1]) · R_g
//   g = a(x_g + q_g)                     candidate
//   h[t] = z ∘ h[t-1] + (1 - z) ∘ g
//
// Backward, given dh at t:
//
//   dg = dh ∘ (1 - z) ∘ a'(g)      dz = dh ∘ (h[t-1] - g) ∘ r'(z)
//   p = dg · R_gᵀ                  dr = p ∘ h[t-1] ∘ r'(r)
//   dh[t-1] = dh ∘ z + p ∘ r + (dz, dr) · Rᵀ (the engine's product)
#if defined(HASTE_LIB_CELLS_GRU_RESET_BEFORE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_GRU_RESET_BEFORE_H_
#else
#define HASTE_LIB_CELLS_GRU_RESET_BEFORE_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

struct GruResetBefore : Cell {
  enum Gate { kUpdate, kReset, kCandidate, kGates };  // Keras's order: z, r, h
  enum Kept { kOperand = kGates, kKept };
  enum State { kHidden, kStates };
  static constexpr bool kAddsProduct = true;
  static constexpr const char* kName = "gru_reset_before";
  static constexpr const char* kGateNames[kGates] = {"z", "r", "g"};
  static constexpr const char* kStateNames[kStates] = {"h"};
  static constexpr const char* kSavedNames[] = {"h_in", "rh_in", "h_prev"};
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_MEAN;
  static constexpr int kResetGates = 2;

  template <class V>
  static HASTE_FN void ForwardReset(const Activations& act, const V* x, const V* q, const V* s_prev,
                                    V* kept) {
    kept[kUpdate] = Activate(act.recurrent, x[kUpdate] + q[kUpdate]);
    kept[kReset] = Activate(act.recurrent, x[kReset] + q[kReset]);
    kept[kOperand] = kept[kReset] * s_prev[kHidden];
  }

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* x, const V* q, const V* s_prev,
                               V* kept, V* s) {
    const V g = kept[kCandidate] = Activate(act.candidate, x[kCandidate] + q[kCandidate]);
    s[kHidden] = MulAdd(kept[kUpdate], s_prev[kHidden] - g, g);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* kept, const V* s_prev, const V* ds,
                                V* dx, V* ds_prev) {
    const V z = kept[kUpdate], g = kept[kCandidate], dh = ds[kHidden];
    dx[kUpdate] = dh * (s_prev[kHidden] - g) * Slope(act.recurrent, z);
    dx[kCandidate] = dh * (V(1.0) - z) * Slope(act.candidate, g);
    ds_prev[kHidden] = dh * z;
  }

  template <class V>
  static HASTE_FN void BackwardReset(const Activations& act, const V* kept, const V* s_prev,
                                     V d_operand, V* dx, V* ds_prev) {
    const V r = kept[kReset];
    dx[kReset] = d_operand * s_prev[kHidden] * Slope(act.recurrent, r);
    ds_prev[kHidden] = MulAdd(d_operand, r, ds_prev[kHidden]);
  }
};

HASTE_TARGET_END

#endif
