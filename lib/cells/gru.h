// GRU, reset after the product (Cho et al., arXiv 1406.1078v1; cuDNN's and Keras's default).
//
//   q = h[t-1] · R + b_r                 a = activation, r = recurrent_activation
//   z = r(x_z + q_z)                     update gate
//   r = r(x_r + q_r)                     reset gate
//   g = a(x_g + r ∘ q_g)                 candidate
//   h[t] = z ∘ h[t-1] + (1 - z) ∘ g
//
// Backward, given dh at t:
//
//   dg = dh ∘ (1 - z) ∘ a'(g)      dz = dh ∘ (h[t-1] - g) ∘ r'(z)      dr = dg ∘ q_g ∘ r'(r)
//   dx = (dz, dr, dg)              dq = (dz, dr, dg ∘ r)
//   dh[t-1] = dh ∘ z + dq · Rᵀ (the engine's product)
#if defined(HASTE_LIB_CELLS_GRU_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_GRU_H_
#else
#define HASTE_LIB_CELLS_GRU_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

struct Gru : Cell {
  enum Gate { kUpdate, kReset, kCandidate, kGates };  // Keras's order: z, r, h
  enum Kept { kCandidateProduct = kGates, kKept };
  enum State { kHidden, kStates };
  static constexpr const char* kName = "gru";
  static constexpr const char* kGateNames[kGates] = {"z", "r", "g"};
  static constexpr const char* kStateNames[kStates] = {"h"};
  static constexpr const char* kSavedNames[] = {"h_in", "q_g", "h_prev"};
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_MEAN;
  static constexpr bool kSplitsGradient = true;
  static constexpr bool kRecurrentBias = true;

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* x, const V* q, const V* s_prev,
                               V* kept, V* s) {
    const V z = kept[kUpdate] = Activate(act.recurrent, x[kUpdate] + q[kUpdate]);
    const V r = kept[kReset] = Activate(act.recurrent, x[kReset] + q[kReset]);
    kept[kCandidateProduct] = q[kCandidate];
    const V g = kept[kCandidate] = Activate(act.candidate, MulAdd(r, q[kCandidate], x[kCandidate]));
    s[kHidden] = MulAdd(z, s_prev[kHidden] - g, g);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* kept, const V* s_prev, const V* ds,
                                V* dx, V* dq, V* ds_prev) {
    const V z = kept[kUpdate], r = kept[kReset], g = kept[kCandidate], dh = ds[kHidden];
    const V dg = dh * (V(1.0) - z) * Slope(act.candidate, g);
    dq[kUpdate] = dx[kUpdate] = dh * (s_prev[kHidden] - g) * Slope(act.recurrent, z);
    dq[kReset] = dx[kReset] = dg * kept[kCandidateProduct] * Slope(act.recurrent, r);
    dx[kCandidate] = dg;
    dq[kCandidate] = dg * r;
    ds_prev[kHidden] = dh * z;
  }
};

HASTE_TARGET_END

#endif
