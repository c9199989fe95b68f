// MinGRU and MinLSTM (Feng et al., "Were RNNs all we needed?", arXiv 2410.01201, sections 3.1 and
// 3.2): gates see the input alone. a = activation (linear in the paper), r = recurrent_activation,
// σ = sigmoid, p = Zoneout's share.
//
//   MinGRU    z = r(x_z)                               the share of the new
//   MinLSTM   f = σ(x_f)   i = σ(x_i)   z = i / (f + i)
//   both      g = a(x_g)   Z = (1 - p) ∘ z             Zoneout
//             h[t] = (1 - Z) ∘ h[t-1] + Z ∘ g
//
// Backward, given dh at t:
//
//   dZ = dh ∘ (g - h[t-1])     dz = dZ ∘ (1 - p)     dg = dh ∘ Z ∘ a'(g)     dh[t-1] = dh ∘ (1 - Z)
//   MinLSTM   di = dz ∘ z ∘ (1 - z) ∘ (1 - i)        df = -dz ∘ z ∘ (1 - z) ∘ (1 - f)
//
// MinLSTM keeps x_f and x_i in place of f and i, whose quotient is lost where both are small: with
// m = min(x_f, x_i, 0), u = e^m, F = e^(m - x_f) and I = e^(m - x_i), none of which exceeds 1,
//
//   z = (u + F) / ((u + F) + (u + I))      z ∘ (1 - z) ∘ (1 - i) = z ∘ I / ((u + F) + (u + I))
//                                          z ∘ (1 - z) ∘ (1 - f) = (1 - z) ∘ F / (the same)
#if defined(HASTE_LIB_CELLS_MIN_RNN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_MIN_RNN_H_
#else
#define HASTE_LIB_CELLS_MIN_RNN_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

// Derived has Gates, Renewal(gate) → z, and RenewalBackward(act, gate, dz, dx).
template <class Derived>
struct MinRnn : Cell {
  enum State { kHidden, kStates };
  static constexpr const char* kStateNames[kStates] = {"h"};
  static constexpr const char* kSavedNames[] = {"h_in"};
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_NONE;  // no product multiplies a state
  static constexpr HasteActivation kActivation = HASTE_LINEAR;
  static constexpr HasteRecurrence kRecurrence = HASTE_NONE;
  static constexpr bool kZoneoutInGate = true;
  static constexpr bool kLinearScan = true;

  template <class V>
  static HASTE_FN void Affine(const V* share, const V* gate, V* a, V* b) {
    const V renewed = (V(1.0) - share[kHidden]) * Derived::Renewal(gate);
    *a = V(1.0) - renewed;
    *b = renewed * gate[Derived::kCandidate];
  }
  template <class V>
  static HASTE_FN V OutputWeight(const V*) {
    return V(1.0);
  }

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* share, const V* x, const V*,
                               const V* s_prev, V* gate, V* s, V*) {
    V keep(0.0), add(0.0);
    Derived::Gates(act, x, gate);
    Affine(share, gate, &keep, &add);
    s[kHidden] = MulAdd(keep, s_prev[kHidden], add);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* share, const V* gate,
                                const V* s_prev, const V* ds, const V&, V* dx, V* ds_prev) {
    const V g = gate[Derived::kCandidate], dh = ds[kHidden], fresh = V(1.0) - share[kHidden];
    const V renewed = fresh * Derived::Renewal(gate);
    Derived::RenewalBackward(act, gate, dh * (g - s_prev[kHidden]) * fresh, dx);
    dx[Derived::kCandidate] = dh * renewed * Slope(act.candidate, g);
    ds_prev[kHidden] = dh * (V(1.0) - renewed);
  }
};

struct MinGru : MinRnn<MinGru> {
  enum Gate { kUpdate, kCandidate, kGates, kKept = kGates };
  static constexpr const char* kName = "mingru";
  static constexpr const char* kGateNames[kGates] = {"z", "g"};

  template <class V>
  static HASTE_FN void Gates(const Activations& act, const V* x, V* gate) {
    gate[kUpdate] = Activate(act.recurrent, x[kUpdate]);
    gate[kCandidate] = Activate(act.candidate, x[kCandidate]);
  }
  template <class V>
  static HASTE_FN V Renewal(const V* gate) {
    return gate[kUpdate];
  }
  template <class V>
  static HASTE_FN void RenewalBackward(const Activations& act, const V* gate, V dz, V* dx) {
    dx[kUpdate] = dz * Slope(act.recurrent, gate[kUpdate]);
  }
};

struct MinLstm : MinRnn<MinLstm> {
  enum Gate { kForget, kInput, kCandidate, kGates, kKept = kGates };
  static constexpr const char* kName = "minlstm";
  static constexpr const char* kGateNames[kGates] = {"f", "i", "g"};

  template <class V>
  static HASTE_FN void Gates(const Activations& act, const V* x, V* gate) {
    gate[kForget] = x[kForget];
    gate[kInput] = x[kInput];
    gate[kCandidate] = Activate(act.candidate, x[kCandidate]);
  }
  template <class V>
  static HASTE_FN V Renewal(const V* gate) {
    return Quotient<V>(gate).z;
  }
  template <class V>
  static HASTE_FN void RenewalBackward(const Activations&, const V* gate, V dz, V* dx) {
    const Quotient<V> of(gate);
    const V each = dz / of.sum;
    dx[kInput] = each * of.z * of.i;
    dx[kForget] = each * (of.z - V(1.0)) * of.f;
  }

 private:
  template <class V>
  struct Quotient {
    V f, i, sum, z;  // F, I, (u + F) + (u + I)

    HASTE_FN explicit Quotient(const V* gate)
        : f(-gate[kForget]), i(-gate[kInput]), sum(0.0), z(0.0) {
      const V least = StopGradient(-AtLeast(AtLeast(f, i), V(0.0)));
      const V u = ExpNegative(least);
      f = ExpNegative(least + f);
      i = ExpNegative(least + i);
      sum = (u + f) + (u + i);
      z = (u + f) / sum;
    }
  };
};

HASTE_TARGET_END

#endif
