// The structures of c_api.h, which set struct_size themselves, with setters: each sets what its
// name says and returns the structure. c_api.h gives the shapes, and says which may be NULL.
#ifndef HASTE_LIB_HASTE_ARGS_H_
#define HASTE_LIB_HASTE_ARGS_H_

#include "haste/c_api.h"

namespace haste {

// What is computed, with the defaults of Keras: tanh, sigmoid, no regularisation, inference.
struct RnnConfig : HasteRnnConfig {
  RnnConfig() : HasteRnnConfig(HASTE_INIT(HasteRnnConfig)) {
    engine = "auto";
    activation = HASTE_TANH;
    recurrent_activation = HASTE_SIGMOID;
    epsilon = 1e-5f;
  }

  RnnConfig& set_engine(const char* value) {
    engine = value;
    return *this;
  }
  RnnConfig& set_reverse(const uint8_t* value) {
    reverse = value;
    return *this;
  }
  RnnConfig& set_activations(HasteActivation of_candidate, HasteActivation of_gates) {
    activation = of_candidate;
    recurrent_activation = of_gates;
    return *this;
  }
  RnnConfig& set_training(bool value) {
    training = value;
    return *this;
  }
  RnnConfig& set_zero_output_for_mask(bool value) {
    zero_output_for_mask = value;
    return *this;
  }
  RnnConfig& set_zoneout(int state, float rate) {
    zoneout[state] = rate;
    return *this;
  }
  RnnConfig& set_recurrent_dropout(float rate) {
    recurrent_dropout = rate;
    return *this;
  }
  RnnConfig& set_epsilon(float value) {
    epsilon = value;
    return *this;
  }
  RnnConfig& set_allow_tf32(bool value) {
    allow_tf32 = value;
    return *this;
  }
};

// Tensors of a recurrence; those that are not set are absent. `index` is that of HasteCellInfo.
struct ForwardArgs : HasteRnnForwardArgs {
  ForwardArgs() : HasteRnnForwardArgs(HASTE_INIT(HasteRnnForwardArgs)) {}

  ForwardArgs& set_wx(const void* value) {
    wx = value;
    return *this;
  }
  ForwardArgs& set_x(int gate, const void* value) {
    x[gate] = value;
    return *this;
  }
  ForwardArgs& set_R(const void* value) {
    R = value;
    return *this;
  }
  ForwardArgs& set_extra(int index, const void* value) {
    extra[index] = value;
    return *this;
  }
  ForwardArgs& set_initial_state(int state, const void* value) {
    s0[state] = value;
    return *this;
  }
  ForwardArgs& set_mask(const uint8_t* value) {
    mask = value;
    return *this;
  }
  ForwardArgs& set_seed(const int64_t* value) {
    seed = value;
    return *this;
  }
  ForwardArgs& set_y(void* value) {
    y = value;
    return *this;
  }
  ForwardArgs& set_final_state(int state, void* value) {
    sT[state] = value;
    return *this;
  }
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

  BackwardArgs& set_x(int gate, const void* value) {
    x[gate] = value;
    return *this;
  }
  BackwardArgs& set_R(const void* value) {
    R = value;
    return *this;
  }
  BackwardArgs& set_extra(int index, const void* value) {
    extra[index] = value;
    return *this;
  }
  BackwardArgs& set_mask(const uint8_t* value) {
    mask = value;
    return *this;
  }
  BackwardArgs& set_seed(const int64_t* value) {
    seed = value;
    return *this;
  }
  BackwardArgs& set_gates(const void* value) {
    gates = value;
    return *this;
  }
  BackwardArgs& set_products(const void* value) {
    products = value;
    return *this;
  }
  BackwardArgs& set_saved(int index, const void* value) {
    saved[index] = value;
    return *this;
  }
  BackwardArgs& set_dy(const void* value) {
    dy = value;
    return *this;
  }
  BackwardArgs& set_final_state_gradient(int state, const void* value) {
    dsT[state] = value;
    return *this;
  }
  BackwardArgs& set_dwx(void* value) {
    dwx = value;
    return *this;
  }
  BackwardArgs& set_dx(int gate, void* value) {
    dx[gate] = value;
    return *this;
  }
  BackwardArgs& set_dq(void* value) {
    dq = value;
    return *this;
  }
  BackwardArgs& set_dR(void* value) {
    dR = value;
    return *this;
  }
  BackwardArgs& set_dextra(int index, void* value) {
    dextra[index] = value;
    return *this;
  }
  BackwardArgs& set_initial_state_gradient(int state, void* value) {
    ds0[state] = value;
    return *this;
  }
};

// The products around a recurrence: x [N, T, C], W [C, K, G, H], b [K, G, H].
struct LayerForwardArgs : HasteLayerForwardArgs {
  LayerForwardArgs() : HasteLayerForwardArgs(HASTE_INIT(HasteLayerForwardArgs)) {}

  LayerForwardArgs& set_features(int64_t value) {
    features = value;
    return *this;
  }
  LayerForwardArgs& set_x(const void* value) {
    x = value;
    return *this;
  }
  LayerForwardArgs& set_W(const void* value) {
    W = value;
    return *this;
  }
  LayerForwardArgs& set_b(const void* value) {
    b = value;
    return *this;
  }
  LayerForwardArgs& set_wx(void* value) {
    wx = value;
    return *this;
  }
  LayerForwardArgs& set_normalization(const void* gamma_of_xw, void* place_of_xw) {
    gamma = gamma_of_xw;
    xw = place_of_xw;
    return *this;
  }
};

// Their gradients; those that are not set are not computed.
struct LayerBackwardArgs : HasteLayerBackwardArgs {
  LayerBackwardArgs() : HasteLayerBackwardArgs(HASTE_INIT(HasteLayerBackwardArgs)) {}

  LayerBackwardArgs& set_features(int64_t value) {
    features = value;
    return *this;
  }
  LayerBackwardArgs& set_x(const void* value) {
    x = value;
    return *this;
  }
  LayerBackwardArgs& set_W(const void* value) {
    W = value;
    return *this;
  }
  LayerBackwardArgs& set_dx(void* value) {
    dx = value;
    return *this;
  }
  LayerBackwardArgs& set_dW(void* value) {
    dW = value;
    return *this;
  }
  LayerBackwardArgs& set_db(void* value) {
    db = value;
    return *this;
  }
  LayerBackwardArgs& set_dR(void* value) {
    dR = value;
    return *this;
  }
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

}  // namespace haste

#endif  // HASTE_LIB_HASTE_ARGS_H_
