// LSTM (Hochreiter & Schmidhuber, 1997, with the forget gate of Gers et al., 2000).
//
//   q = h[t-1] · R                       a = activation, r = recurrent_activation
//   i = r(x_i + q_i)                     input gate
//   f = r(x_f + q_f)                     forget gate
//   g = a(x_g + q_g)                     candidate
//   o = r(x_o + q_o)                     output gate
//   c[t] = f ∘ c[t-1] + i ∘ g
//   h[t] = o ∘ a(c[t])
//
// Backward, given dh and dc at t, with a'(y) the derivative written in the activation's value:
//
//   dc' = dc + dh ∘ o ∘ a'(a(c[t]))
//   do  = dh ∘ a(c[t]) ∘ r'(o)     dg = dc' ∘ i ∘ a'(g)
//   df  = dc' ∘ c[t-1] ∘ r'(f)     di = dc' ∘ g ∘ r'(i)
//   dc[t-1] = dc' ∘ f              dh[t-1] = (di, df, dg, do) · Rᵀ  (the engine's product)
//
// c[t] is computed again from the gates and c[t-1]: nothing else is kept.
#if defined(HASTE_LIB_CELLS_LSTM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_LSTM_H_
#else
#define HASTE_LIB_CELLS_LSTM_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

struct Lstm : Cell {
  enum Gate { kInput, kForget, kCandidate, kOutput, kGates, kKept = kGates };  // Keras's i, f, c, o
  enum State { kHidden, kCell, kStates };
  static constexpr bool kAddsProduct = true;
  static constexpr const char* kName = "lstm";
  static constexpr const char* kGateNames[kGates] = {"i", "f", "g", "o"};
  static constexpr const char* kStateNames[kStates] = {"h", "c"};
  static constexpr const char* kSavedNames[] = {"h_in", "c_in"};
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_PRODUCT;

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* x, const V* q, const V* s_prev,
                               V* gate, V* s) {
    Gates(act, x, q, gate);
    s[kCell] = NewCell(gate, s_prev);
    s[kHidden] = gate[kOutput] * Activate(act.candidate, OrderAfter(gate[kOutput], s[kCell]));
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* gate, const V* s_prev, const V* ds,
                                V* dx, V* ds_prev) {
    const V out = Activate(act.candidate, NewCell(gate, s_prev));
    const V dc = ds[kCell] + ds[kHidden] * gate[kOutput] * Slope(act.candidate, out);
    dx[kOutput] = ds[kHidden] * out * Slope(act.recurrent, gate[kOutput]);
    BackwardOfCell(act, gate, s_prev, dc, dx, ds_prev);
  }

 protected:  // for the layer-normalised LSTM
  template <class V>
  static HASTE_FN void Gates(const Activations& act, const V* x, const V* q, V* gate) {
    gate[kInput] = Activate(act.recurrent, x[kInput] + q[kInput]);
    gate[kForget] = Activate(act.recurrent, x[kForget] + q[kForget]);
    gate[kCandidate] = Activate(act.candidate, x[kCandidate] + q[kCandidate]);
    gate[kOutput] = Activate(act.recurrent, x[kOutput] + q[kOutput]);
  }
  template <class V>
  static HASTE_FN V NewCell(const V* gate, const V* s_prev) {
    return MulAdd(gate[kForget], s_prev[kCell], gate[kInput] * gate[kCandidate]);
  }
  // Computes the gradients that follow from dc'.
  template <class V>
  static HASTE_FN void BackwardOfCell(const Activations& act, const V* gate, const V* s_prev, V dc,
                                      V* dx, V* ds_prev) {
    dx[kInput] = dc * gate[kCandidate] * Slope(act.recurrent, gate[kInput]);
    dx[kForget] = dc * s_prev[kCell] * Slope(act.recurrent, gate[kForget]);
    dx[kCandidate] = dc * gate[kInput] * Slope(act.candidate, gate[kCandidate]);
    ds_prev[kCell] = dc * gate[kForget];
    ds_prev[kHidden] = V(0.0);
  }
};

HASTE_TARGET_END

#endif
