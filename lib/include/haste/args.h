// The structures of c_api.h, which set struct_size themselves, with setters: each sets what its
// name says and returns the structure. c_api.h gives the shapes, and says which may be NULL.
#ifndef HASTE_LIB_HASTE_ARGS_H_
#define HASTE_LIB_HASTE_ARGS_H_

#include "haste/c_api.h"

namespace haste {

// STRUCT& set_FIELD(TYPE value)
#define HASTE_SETTER(STRUCT, TYPE, FIELD) \
  STRUCT& set_##FIELD(TYPE value) {       \
    FIELD = value;                        \
    return *this;                         \
  }
// STRUCT& set_NAME(int index, TYPE value), of one of FIELD: a state, or what HasteCellInfo counts.
#define HASTE_INDEXED_SETTER(STRUCT, TYPE, NAME, FIELD) \
  STRUCT& set_##NAME(int index, TYPE value) {           \
    FIELD[index] = value;                               \
    return *this;                                       \
  }

// What is computed, with the defaults of Keras: tanh, sigmoid, no regularisation, inference.
struct RnnConfig : HasteRnnConfig {
  RnnConfig() : HasteRnnConfig(HASTE_INIT(HasteRnnConfig)) {
    engine = "auto";
    activation = HASTE_TANH;
    recurrent_activation = HASTE_SIGMOID;
    epsilon = 1e-5f;
  }

  HASTE_SETTER(RnnConfig, const char*, engine)
  HASTE_SETTER(RnnConfig, const uint8_t*, reverse)
  RnnConfig& set_activations(HasteActivation of_candidate, HasteActivation of_gates) {
    activation = of_candidate;
    recurrent_activation = of_gates;
    return *this;
  }
  HASTE_SETTER(RnnConfig, bool, training)
  HASTE_SETTER(RnnConfig, bool, zero_output_for_mask)
  HASTE_INDEXED_SETTER(RnnConfig, float, zoneout, zoneout)
  HASTE_SETTER(RnnConfig, float, recurrent_dropout)
  HASTE_SETTER(RnnConfig, float, epsilon)
  HASTE_SETTER(RnnConfig, bool, allow_tf32)
  HASTE_SETTER(RnnConfig, HasteDtype, weights_dtype)
};

// Tensors of a recurrence; those that are not set are absent.
struct ForwardArgs : HasteRnnForwardArgs {
  ForwardArgs() : HasteRnnForwardArgs(HASTE_INIT(HasteRnnForwardArgs)) {}

  HASTE_SETTER(ForwardArgs, const void*, wx)
  HASTE_INDEXED_SETTER(ForwardArgs, const void*, x, x)
  HASTE_SETTER(ForwardArgs, const void*, R)
  HASTE_SETTER(ForwardArgs, const float*, R_scale)
  HASTE_INDEXED_SETTER(ForwardArgs, const void*, extra, extra)
  HASTE_INDEXED_SETTER(ForwardArgs, const void*, initial_state, s0)
  HASTE_SETTER(ForwardArgs, const uint8_t*, mask)
  HASTE_SETTER(ForwardArgs, const int64_t*, seed)
  HASTE_SETTER(ForwardArgs, void*, y)
  HASTE_INDEXED_SETTER(ForwardArgs, void*, final_state, sT)
  HASTE_SETTER(ForwardArgs, HastePackedWeights*, packed)
  // What backward reads; sets `keep` too.
  ForwardArgs& set_gates(void* value) {
    gates = value;
    keep = 1;
    return *this;
  }
  ForwardArgs& set_products(void* value) {
    products = value;
    keep = 1;
    return *this;
  }
  ForwardArgs& set_saved(int index, void* value) {
    saved[index] = value;
    keep = 1;
    return *this;
  }
};

// Tensors of its gradient.
struct BackwardArgs : HasteRnnBackwardArgs {
  BackwardArgs() : HasteRnnBackwardArgs(HASTE_INIT(HasteRnnBackwardArgs)) {}

  HASTE_INDEXED_SETTER(BackwardArgs, const void*, x, x)
  HASTE_SETTER(BackwardArgs, const void*, R)
  HASTE_INDEXED_SETTER(BackwardArgs, const void*, extra, extra)
  HASTE_SETTER(BackwardArgs, const uint8_t*, mask)
  HASTE_SETTER(BackwardArgs, const int64_t*, seed)
  HASTE_SETTER(BackwardArgs, const void*, gates)
  HASTE_SETTER(BackwardArgs, const void*, products)
  HASTE_INDEXED_SETTER(BackwardArgs, const void*, saved, saved)
  HASTE_SETTER(BackwardArgs, const void*, dy)
  HASTE_INDEXED_SETTER(BackwardArgs, const void*, final_state_gradient, dsT)
  HASTE_SETTER(BackwardArgs, void*, dwx)
  HASTE_INDEXED_SETTER(BackwardArgs, void*, dx, dx)
  HASTE_SETTER(BackwardArgs, void*, dq)
  HASTE_SETTER(BackwardArgs, void*, dR)
  HASTE_INDEXED_SETTER(BackwardArgs, void*, dextra, dextra)
  HASTE_INDEXED_SETTER(BackwardArgs, void*, initial_state_gradient, ds0)
};

// The products around a recurrence: x [N, T, C], W [C, K, G, H], b [K, G, H].
struct LayerForwardArgs : HasteLayerForwardArgs {
  LayerForwardArgs() : HasteLayerForwardArgs(HASTE_INIT(HasteLayerForwardArgs)) {}

  HASTE_SETTER(LayerForwardArgs, int64_t, features)
  HASTE_SETTER(LayerForwardArgs, const void*, x)
  HASTE_SETTER(LayerForwardArgs, const void*, W)
  HASTE_SETTER(LayerForwardArgs, const float*, W_scale)
  HASTE_SETTER(LayerForwardArgs, const void*, b)
  HASTE_SETTER(LayerForwardArgs, void*, wx)
  LayerForwardArgs& set_normalization(const void* gamma_of_xw, void* place_of_xw) {
    gamma = gamma_of_xw;
    xw = place_of_xw;
    return *this;
  }
};

// Their gradients; those that are not set are not computed.
struct LayerBackwardArgs : HasteLayerBackwardArgs {
  LayerBackwardArgs() : HasteLayerBackwardArgs(HASTE_INIT(HasteLayerBackwardArgs)) {}

  HASTE_SETTER(LayerBackwardArgs, int64_t, features)
  HASTE_SETTER(LayerBackwardArgs, const void*, x)
  HASTE_SETTER(LayerBackwardArgs, const void*, W)
  HASTE_SETTER(LayerBackwardArgs, void*, dx)
  HASTE_SETTER(LayerBackwardArgs, void*, dW)
  HASTE_SETTER(LayerBackwardArgs, void*, db)
  HASTE_SETTER(LayerBackwardArgs, void*, dR)
  LayerBackwardArgs& set_normalization(const void* gamma_of_xw, const void* xw_of_forward,
                                       void* gradient_of_gamma) {
    gamma = gamma_of_xw;
    xw = xw_of_forward;
    dgamma = gradient_of_gamma;
    return *this;
  }
};

struct WindowsArgs : HasteWindows {
  WindowsArgs() : HasteWindows(HASTE_INIT(HasteWindows)) {}
};
struct WindowsGradArgs : HasteWindowsGrad {
  WindowsGradArgs() : HasteWindowsGrad(HASTE_INIT(HasteWindowsGrad)) {}
};
struct Executor : HasteExecutor {
  Executor() : HasteExecutor(HASTE_INIT(HasteExecutor)) {}
};

#undef HASTE_SETTER
#undef HASTE_INDEXED_SETTER

}  // namespace haste

#endif  // HASTE_LIB_HASTE_ARGS_H_
