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

#include "lib/cells/activation.h"
#include "lib/per_target.h"

HASTE_TARGET_BEGIN

struct Lstm {
  enum Gate { kInput, kForget, kCandidate, kOutput, kGates };  // Keras's order: i, f, c, o
  enum State { kHidden, kCell, kStates };
  static constexpr const char* kName = "lstm";
  static constexpr const char* kStateNames[kStates] = {"h", "c"};

  // x, q: [kGates] input and recurrent pre-activations. s_prev: [kStates] entering the step.
  // gate: [kGates] after activation, kept for Backward. s: [kStates] leaving the step.
  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* x, const V* q, const V* s_prev,
                               V* gate, V* s) {
    gate[kInput] = Activate(act.recurrent, x[kInput] + q[kInput]);
    gate[kForget] = Activate(act.recurrent, x[kForget] + q[kForget]);
    gate[kCandidate] = Activate(act.candidate, x[kCandidate] + q[kCandidate]);
    gate[kOutput] = Activate(act.recurrent, x[kOutput] + q[kOutput]);
    s[kCell] = NewCell(gate, s_prev);
    s[kHidden] = gate[kOutput] * Activate(act.candidate, s[kCell]);
  }

  // ds: [kStates] gradients of the states leaving the step. dpre: [kGates] gradients of x + q.
  // ds_prev: [kStates] gradients of the states entering it; h's is the engine's product, so 0 here.
  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* gate, const V* s_prev, const V* ds,
                                V* dpre, V* ds_prev) {
    const V out = Activate(act.candidate, NewCell(gate, s_prev));
    const V dc = ds[kCell] + ds[kHidden] * gate[kOutput] * Slope(act.candidate, out);
    dpre[kInput] = dc * gate[kCandidate] * Slope(act.recurrent, gate[kInput]);
    dpre[kForget] = dc * s_prev[kCell] * Slope(act.recurrent, gate[kForget]);
    dpre[kCandidate] = dc * gate[kInput] * Slope(act.candidate, gate[kCandidate]);
    dpre[kOutput] = ds[kHidden] * out * Slope(act.recurrent, gate[kOutput]);
    ds_prev[kCell] = dc * gate[kForget];
    ds_prev[kHidden] = V(0.0);
  }

 private:
  template <class V>
  static HASTE_FN V NewCell(const V* gate, const V* s_prev) {
    return MulAdd(gate[kForget], s_prev[kCell], gate[kInput] * gate[kCandidate]);
  }
};

HASTE_TARGET_END

#endif
