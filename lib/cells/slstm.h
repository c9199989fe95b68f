// sLSTM (Beck et al., "xLSTM", arXiv 2405.04517, equations 8 to 18): exponential gates, a
// normaliser n, and a stabiliser m that keeps the exponentials in range.
//
//   q = h[t-1] · R                       a = activation, σ = sigmoid
//   i~ = x_i + q_i                       input gate, exponential
//   f~ = x_f + q_f                       forget gate: log f = f~ (recurrent_activation exponential)
//                                        or log σ(f~) (sigmoid)
//   z = a(x_z + q_z)     o = σ(x_o + q_o)
//   m[t] = max(log f + m[t-1], i~)
//   i = exp(i~ - m[t])   f = exp(log f + m[t-1] - m[t])
//   c[t] = f ∘ c[t-1] + i ∘ z
//   n[t] = f ∘ n[t-1] + i
//   h[t] = o ∘ c[t] / n[t]
//
// An empty state (n[t-1] = 0, as at the start) has no weight: m[t] = i~ and f = 0. So the larger of
// i and f is 1, and n[t] >= 1 from the first step on.
//
// As an expectation, Zoneout of rate p mixes unscaled states: c∘exp(m) of t-1 with weight p and of
// t with weight 1 - p, in the scale p∘exp(m[t-1]) + (1-p)∘exp(m[t]); n likewise. So the two states
// have the shares σ(lead) and σ(-lead), lead = m[t-1] + log p - m[t] - log(1-p), and the result for
// n is between n[t-1] and n[t]. The reserve then keeps log f + m[t-1] - i~ and lead in place of i
// and f.
//
// Backward, given dh, dc, dn at t. Scaling c and n by e^m leaves h as it is, so m is a constant:
//
//   dc' = dc + dh ∘ o / n          dn' = dn - dh ∘ o ∘ c / n²        do = dh ∘ c / n ∘ σ'(o)
//   di = (dc' ∘ z + dn') ∘ i       df = (dc' ∘ c[t-1] + dn' ∘ n[t-1]) ∘ f ∘ d log f / df~
//   dz = dc' ∘ i ∘ a'(z)           dc[t-1] = dc' ∘ f                 dn[t-1] = dn' ∘ f
//
// With Zoneout as an expectation, σ(-lead) dc takes the place of dc, and σ(lead) dc is added to
// dc[t-1]; the same for dn. The output gate always has a sigmoid; recurrent_activation is that of
// the forget gate.
#if defined(HASTE_LIB_CELLS_SLSTM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_SLSTM_H_
#else
#define HASTE_LIB_CELLS_SLSTM_H_
#endif

#include "lib/cells/cell.h"

HASTE_TARGET_BEGIN

struct SLstm : Cell {
  enum Gate { kInput, kForget, kCandidate, kOutput, kGates };
  enum Kept { kForgetSlope = kGates, kKept };  // d log f / df~
  enum State { kHidden, kCell, kNormalizer, kStabilizer, kStates };
  static constexpr bool kAddsProduct = true;
  static constexpr const char* kName = "slstm";
  static constexpr const char* kGateNames[kGates] = {"i", "f", "z", "o"};
  static constexpr const char* kStateNames[kStates] = {"h", "c", "n", "m"};
  static constexpr const char* kSavedNames[] = {"h_in", "c_in", "n_in", "f_slope"};
  static constexpr HasteStateBound kStateBound = HASTE_BOUND_WEIGHTED_MEAN;
  static constexpr HasteActivation kRecurrentActivation = HASTE_EXPONENTIAL;
  static constexpr bool kExponential = true;
  static constexpr bool kTiedZoneout = true;
  static constexpr bool kReadsState[HASTE_MAX_STATES] = {true, true, true, false};

  // h is o times a weighted mean of z and the previous c / n, if there is one.
  template <class V>
  static HASTE_FN V Bound(const V* s) {
    const V h = Cell::Bound(s), mean = s[kCell] / s[kNormalizer];
    return IfPositive(s[kNormalizer], AtLeast(IfPositive(mean, mean, -mean), h), h);
  }

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* x, const V* q, const V* s_prev,
                               V* kept, V* s) {
    const V in = x[kInput] + q[kInput], forget = x[kForget] + q[kForget];
    V log_f = forget;
    kept[kForgetSlope] = V(1.0);
    if (act.recurrent != HASTE_EXPONENTIAL) {
      log_f = LogSigmoid(forget);
      kept[kForgetSlope] = Sigmoid(-forget);
    }
    const V carried = log_f + s_prev[kStabilizer];
    const V m = StopGradient(IfPositive(s_prev[kNormalizer], AtLeast(carried, in), in));
    const V i = kept[kInput] = ExpNegative(in - m);
    const V f = kept[kForget] = IfPositive(s_prev[kNormalizer], ExpNegative(carried - m), V(0.0));
    const V z = kept[kCandidate] = Activate(act.candidate, x[kCandidate] + q[kCandidate]);
    const V o = kept[kOutput] = Sigmoid(x[kOutput] + q[kOutput]);
    s[kCell] = MulAdd(f, s_prev[kCell], i * z);
    s[kNormalizer] = MulAdd(f, s_prev[kNormalizer], i);
    s[kStabilizer] = m;
    s[kHidden] = o * (s[kCell] / s[kNormalizer]);
    if (act.log_zoneout < 0) Expect(act, s_prev, carried - in, kept, s);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* kept, const V* s_prev, const V* ds,
                                V* dx, V* ds_prev) {
    V i = kept[kInput], f = kept[kForget], dc_left = ds[kCell], dn_left = ds[kNormalizer];
    V dc_past = V(0.0), dn_past = V(0.0);
    if (act.log_zoneout < 0) {
      const V past = Sigmoid(kept[kForget]), renewed = Sigmoid(-kept[kForget]);
      f = AtMostOne(kept[kInput]), i = AtMostOne(-kept[kInput]);
      dc_past = dc_left * past, dn_past = dn_left * past;
      dc_left = dc_left * renewed, dn_left = dn_left * renewed;
    }
    const V z = kept[kCandidate], o = kept[kOutput];
    const V n = MulAdd(f, s_prev[kNormalizer], i);
    const V ratio = MulAdd(f, s_prev[kCell], i * z) / n;
    const V dratio = ds[kHidden] * o / n;
    const V dc = dc_left + dratio, dn = dn_left - dratio * ratio;
    dx[kInput] = MulAdd(dc, z, dn) * i;
    dx[kForget] = MulAdd(dc, s_prev[kCell], dn * s_prev[kNormalizer]) * f * kept[kForgetSlope];
    dx[kCandidate] = dc * i * Slope(act.candidate, z);
    dx[kOutput] = ds[kHidden] * ratio * Slope(HASTE_SIGMOID, o);
    ds_prev[kHidden] = V(0.0);
    ds_prev[kCell] = MulAdd(dc, f, dc_past);
    ds_prev[kNormalizer] = MulAdd(dn, f, dn_past);
    ds_prev[kStabilizer] = V(0.0);
  }

 private:
  // Zoneout as an expectation. carried_lead: log f + m[t-1] - i~.
  template <class V>
  static HASTE_FN void Expect(const Activations& act, const V* s_prev, V carried_lead, V* kept,
                              V* s) {
    const V held = s_prev[kNormalizer], none = V(-kSaturated);
    const V past_exponent = StopGradient(s_prev[kStabilizer] + V(act.log_zoneout));
    const V exponent = s[kStabilizer] + V(act.log_renewal);
    const V lead = IfPositive(held, Saturate(past_exponent - exponent), none);
    const V past = IfPositive(held, Sigmoid(lead), V(0.0)), renewed = Sigmoid(-lead);
    s[kCell] = MulAdd(past, s_prev[kCell], renewed * s[kCell]);
    s[kNormalizer] = MulAdd(past, s_prev[kNormalizer], renewed * s[kNormalizer]);
    s[kStabilizer] = IfPositive(lead, past_exponent, exponent) - LogSigmoid(AtLeast(lead, -lead));
    kept[kInput] = IfPositive(held, Saturate(carried_lead), none);
    kept[kForget] = lead;
  }
  template <class V>
  static HASTE_FN V AtMostOne(V exponent) {
    return ExpNegative(-AtLeast(-exponent, V(0.0)));
  }
  // Every storage type holds it, and its exponential is 0 or infinity in all of them.
  static constexpr double kSaturated = 1e4;
  template <class V>
  static HASTE_FN V Saturate(V exponent) {
    return AtLeast(-AtLeast(-exponent, V(-kSaturated)), V(-kSaturated));
  }
};

HASTE_TARGET_END

#endif
