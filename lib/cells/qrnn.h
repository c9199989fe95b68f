// QRNN's pooling (Bradbury et al., "Quasi-Recurrent Neural Networks", arXiv 1611.01576, equations 3
// to 5, 7); the convolution is not part of the cell. a = activation, r = recurrent_activation,
// p = Zoneout's share.
//
//   z = a(x_z)   f = r(x_f)   o = r(x_o)   i = r(x_i)        F = p + (1 - p) ∘ f   (Zoneout)
//   f-pooling     h[t] = F ∘ h[t-1] + (1 - F) ∘ z
//   fo-pooling    c[t] = F ∘ c[t-1] + (1 - F) ∘ z            h[t] = o ∘ c[t]
//   ifo-pooling   c[t] = F ∘ c[t-1] + i ∘ z                  h[t] = o ∘ c[t]
//
// Backward, given ds at t (of h, or of c) and dy (of the output):
//
//   dc = ds + dy ∘ o               do = dy ∘ c[t] ∘ r'(o)            dc[t-1] = dc ∘ F
//   dF = dc ∘ (c[t-1] - z), ifo: dc ∘ c[t-1]                         df = dF ∘ (1 - p) ∘ r'(f)
//   dz = dc ∘ (1 - F) ∘ a'(z), ifo: dc ∘ i ∘ a'(z)                   di = dc ∘ z ∘ r'(i)
//
// ForgetMult is pytorch-qrnn's: f and x have no activation, and f is the share of x:
//
//   h[t] = f ∘ x + (1 - f) ∘ h[t-1]
#if defined(HASTE_LIB_CELLS_QRNN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_QRNN_H_
#else
#define HASTE_LIB_CELLS_QRNN_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

// kForms: gates of z, f (2: f-pooling), o (3: fo), i (4: ifo).
template <int kForms>
struct QrnnPooling : Cell {
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_NONE;  // no product multiplies a state
  enum Gate { kCandidate, kForget, kOutput, kInput, kGates = kForms, kKept = kForms };
  enum State { kMemory, kStates };
  static constexpr HasteRecurrence kRecurrence = HASTE_NONE;
  static constexpr bool kZoneoutInGate = true;
  static constexpr bool kOutputsState = kForms == 2;
  static constexpr bool kLinearScan = true;

  template <class V>
  static HASTE_FN void Gates(const Activations& act, const V* x, V* gate) {
    gate[kCandidate] = Activate(act.candidate, x[kCandidate]);
    for (int g = kForget; g < kGates; ++g) gate[g] = Activate(act.recurrent, x[g]);
  }
  // a = F: exactly 1 where Zoneout keeps the state, so that it keeps every bit.
  template <class V>
  static HASTE_FN void Affine(const V* share, const V* gate, V* a, V* b) {
    *a = MulAdd(gate[kForget], V(1.0) - share[kMemory], share[kMemory]);
    if constexpr (kForms == 4) {
      *b = gate[kInput] * gate[kCandidate];
    } else {
      *b = (V(1.0) - *a) * gate[kCandidate];
    }
  }
  template <class V>
  static HASTE_FN V OutputWeight(const V* gate) {
    if constexpr (kOutputsState) return V(1.0);
    return gate[kOutput];
  }

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* share, const V* x, const V*,
                               const V* s_prev, V* gate, V* s, V* y) {
    V keep(0.0), add(0.0);
    Gates(act, x, gate);
    Affine(share, gate, &keep, &add);
    s[kMemory] = MulAdd(keep, s_prev[kMemory], add);
    if constexpr (!kOutputsState) *y = gate[kOutput] * s[kMemory];
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* share, const V* gate,
                                const V* s_prev, const V* ds, const V& dy, V* dx, V* ds_prev) {
    const V z = gate[kCandidate];
    V dc = ds[kMemory], keep(0.0), add(0.0);
    Affine(share, gate, &keep, &add);
    if constexpr (!kOutputsState) {
      dc = MulAdd(dy, gate[kOutput], dc);
      dx[kOutput] = dy * MulAdd(keep, s_prev[kMemory], add) * Slope(act.recurrent, gate[kOutput]);
    }
    V dkeep = dc * s_prev[kMemory], dz = dc * (V(1.0) - keep);
    if constexpr (kForms == 4) {
      dz = dc * gate[kInput];
      dx[kInput] = dc * z * Slope(act.recurrent, gate[kInput]);
    } else {
      dkeep = dkeep - dc * z;
    }
    dx[kCandidate] = dz * Slope(act.candidate, z);
    dx[kForget] = dkeep * (V(1.0) - share[kMemory]) * Slope(act.recurrent, gate[kForget]);
    ds_prev[kMemory] = dc * keep;
  }
};

struct QrnnF : QrnnPooling<2> {
  static constexpr const char* kName = "qrnn_f";
  static constexpr const char* kGateNames[] = {"z", "f"};
  static constexpr const char* kStateNames[] = {"h"};
  static constexpr const char* kSavedNames[] = {"h_in"};
};
struct QrnnFo : QrnnPooling<3> {
  static constexpr const char* kName = "qrnn_fo";
  static constexpr const char* kGateNames[] = {"z", "f", "o"};
  static constexpr const char* kStateNames[] = {"c"};
  static constexpr const char* kSavedNames[] = {"c_in"};
};
struct QrnnIfo : QrnnPooling<4> {
  static constexpr const char* kName = "qrnn_ifo";
  static constexpr const char* kGateNames[] = {"z", "f", "o", "i"};
  static constexpr const char* kStateNames[] = {"c"};
  static constexpr const char* kSavedNames[] = {"c_in"};
};

struct ForgetMult : Cell {
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_NONE;  // no product multiplies a state
  enum Gate { kForget, kInput, kGates, kKept = kGates };
  enum State { kHidden, kStates };
  static constexpr const char* kName = "forget_mult";
  static constexpr const char* kGateNames[kGates] = {"f", "x"};
  static constexpr const char* kStateNames[kStates] = {"h"};
  static constexpr const char* kSavedNames[] = {"h_in"};
  static constexpr HasteRecurrence kRecurrence = HASTE_NONE;
  static constexpr bool kSeparateGates = true;
  static constexpr bool kLinearScan = true;

  template <class V>
  static HASTE_FN void Gates(const Activations&, const V* x, V* gate) {
    gate[kForget] = x[kForget];
    gate[kInput] = x[kInput];
  }
  template <class V>
  static HASTE_FN void Affine(const V*, const V* gate, V* a, V* b) {
    *a = V(1.0) - gate[kForget];
    *b = gate[kForget] * gate[kInput];
  }
  template <class V>
  static HASTE_FN V OutputWeight(const V*) {
    return V(1.0);
  }

  template <class V>
  static HASTE_FN void Forward(const Activations&, const V*, const V* x, const V*, const V* s_prev,
                               V* gate, V* s, V*) {
    gate[kForget] = x[kForget];
    gate[kInput] = x[kInput];
    s[kHidden] = MulAdd(x[kForget], x[kInput] - s_prev[kHidden], s_prev[kHidden]);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations&, const V*, const V* gate, const V* s_prev,
                                const V* ds, const V&, V* dx, V* ds_prev) {
    dx[kForget] = ds[kHidden] * (gate[kInput] - s_prev[kHidden]);
    dx[kInput] = ds[kHidden] * gate[kForget];
    ds_prev[kHidden] = ds[kHidden] * (V(1.0) - gate[kForget]);
  }
};

HASTE_TARGET_END

#endif
