// Elman's simple recurrent network (Elman, "Finding structure in time", Cognitive Science, 1990).
//
//   h[t] = a(x + h[t-1] · R)             a = activation
//
// Backward, given dh at t:   dx = dh ∘ a'(h[t]),   dh[t-1] = dx · Rᵀ (the engine's product)
#if defined(HASTE_LIB_CELLS_ELMAN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_ELMAN_H_
#else
#define HASTE_LIB_CELLS_ELMAN_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

struct Elman : Cell {
  enum Gate { kCandidate, kGates, kKept = kGates };
  enum State { kHidden, kStates };
  static constexpr bool kAddsProduct = true;
  static constexpr const char* kName = "elman";
  static constexpr const char* kGateNames[kGates] = {"g"};
  static constexpr const char* kStateNames[kStates] = {"h"};
  static constexpr const char* kSavedNames[] = {"h_in"};
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_ACTIVATION;

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* x, const V* q, const V*, V* gate,
                               V* s) {
    s[kHidden] = gate[kCandidate] = Activate(act.candidate, x[kCandidate] + q[kCandidate]);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* gate, const V*, const V* ds, V* dx,
                                V* ds_prev) {
    dx[kCandidate] = ds[kHidden] * Slope(act.candidate, gate[kCandidate]);
    ds_prev[kHidden] = V(0.0);
  }
};

HASTE_TARGET_END

#endif
