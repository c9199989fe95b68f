// IndRNN (Li et al., "Independently Recurrent Neural Network", arXiv 1803.04831).
//
//   h[t] = a(x + u ∘ h[t-1])             a = activation
//
// Backward, given dh at t:   dx = dh ∘ a'(h[t]),   dh[t-1] = u ∘ dx (the engine's)
#if defined(HASTE_LIB_CELLS_INDRNN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_INDRNN_H_
#else
#define HASTE_LIB_CELLS_INDRNN_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

struct IndRnn : Cell {
  enum Gate { kCandidate, kGates, kKept = kGates };
  enum State { kHidden, kStates };
  static constexpr const char* kName = "indrnn";
  static constexpr const char* kGateNames[kGates] = {"g"};
  static constexpr const char* kStateNames[kStates] = {"h"};
  static constexpr const char* kSavedNames[] = {"h_in"};
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_ACTIVATION;
  static constexpr HasteActivation kActivation = HASTE_RELU;
  static constexpr HasteRecurrence kRecurrence = HASTE_DIAGONAL;

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V*, const V* x, const V* q, const V*,
                               V* gate, V* s, V*) {
    s[kHidden] = gate[kCandidate] = Activate(act.candidate, x[kCandidate] + q[kCandidate]);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V*, const V* gate, const V*,
                                const V* ds, const V&, V* dx, V* ds_prev) {
    dx[kCandidate] = ds[kHidden] * Slope(act.candidate, gate[kCandidate]);
    ds_prev[kHidden] = V(0.0);
  }
};

HASTE_TARGET_END

#endif
