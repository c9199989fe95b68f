// Activations and their derivatives. Derivatives are functions of the activation's value, so
// backward needs only the gates.
#if defined(HASTE_LIB_CELLS_ACTIVATION_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_ACTIVATION_H_
#else
#define HASTE_LIB_CELLS_ACTIVATION_H_
#endif

#include "haste/c_api.h"
#include "lib/base/math.h"
#include "lib/base/per_target.h"

HASTE_TARGET_BEGIN

// The activations of a call: the same for all elements, so branches are predicted.
struct Activations {
  int32_t candidate;  // HasteActivation: `activation` of Keras
  int32_t recurrent;  // HasteActivation: `recurrent_activation`
  // For cells with kTiedZoneout, if Zoneout is an expectation with rate p: log p and log(1 - p).
  // Otherwise 0.
  double log_zoneout = 0, log_renewal = 0;
};

template <class V>
HASTE_FN V Activate(int32_t kind, V x) {
  switch (kind) {
    case HASTE_TANH: return Tanh(x);
    case HASTE_SIGMOID: return Sigmoid(x);
    case HASTE_RELU: return IfPositive(-x, V(0.0), x);  // NaN stays NaN
    case HASTE_HARD_SIGMOID: {
      const V y = MulAdd(x, V(1.0 / 6.0), V(0.5));
      return IfPositive(-y, V(0.0), IfPositive(y - V(1.0), V(1.0), y));
    }
    default: return x;
  }
}

// The derivative of the activation where its value is y.
template <class V>
HASTE_FN V Slope(int32_t kind, V y) {
  switch (kind) {
    case HASTE_TANH: return V(1.0) - y * y;
    case HASTE_SIGMOID: return y * (V(1.0) - y);
    case HASTE_RELU: return IfPositive(y, V(1.0), V(0.0));
    case HASTE_HARD_SIGMOID:
      return IfPositive(y, IfPositive(V(1.0) - y, V(1.0 / 6.0), V(0.0)), V(0.0));
    default: return V(1.0);
  }
}

HASTE_TARGET_END

#endif
