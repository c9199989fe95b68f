// The layer-normalised LSTM and GRU (Ba, Kiros & Hinton, arXiv 1607.06450, as Haste defines them).
//
//   LN(v) = (v - mean(v)) / sqrt(variance(v) + ε), over all gates and units of a lane
//
//   x = γ_x ∘ LN(x·W) + b                outside the recurrence: haste_layer_norm
//   q = γ_q ∘ LN(h[t-1] · R)             LSTM
//   q = γ_q ∘ LN(h[t-1] · R) + b_r       GRU, reset after the product
//
// The gates are then those of lstm.h and gru.h. The LSTM also normalises its cell state for the
// output, over the units of a lane:
//
//   h[t] = o ∘ a(γ_c ∘ LN(c[t]) + β_c)
#if defined(HASTE_LIB_CELLS_LAYER_NORM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_LAYER_NORM_H_
#else
#define HASTE_LIB_CELLS_LAYER_NORM_H_
#endif

#include "lib/cells/cell.h"
#include "lib/cells/gru.h"
#include "lib/cells/lstm.h"

HASTE_TARGET_BEGIN

struct LayerNormLstm : Lstm {
  static constexpr const char* kName = "layer_norm_lstm";
  static constexpr bool kAddsProduct = false;  // q comes through layer normalisation
  static constexpr bool kSplitsGradient = true;
  static constexpr bool kNormalizes = true;
  static constexpr int kNormalizesState = kCell;

  template <class V>
  static HASTE_FN void Forward(const Activations& act, const V* x, const V* q, const V* s_prev,
                               V* gate, V* s) {
    Gates(act, x, q, gate);
    s[kCell] = NewCell(gate, s_prev);
  }

  template <class V>
  static HASTE_FN V NewState(const V* gate, const V* s_prev) {
    return NewCell(gate, s_prev);
  }

  template <class V>
  static HASTE_FN V Output(const Activations& act, const V* gate, V normed) {
    return gate[kOutput] * Activate(act.candidate, normed);
  }

  template <class V>
  static HASTE_FN V OutputBackward(const Activations& act, const V* gate, V normed, V dh, V* dx) {
    const V out = Activate(act.candidate, normed);
    dx[kOutput] = dh * out * Slope(act.recurrent, gate[kOutput]);
    return dh * gate[kOutput] * Slope(act.candidate, out);
  }

  template <class V>
  static HASTE_FN void Backward(const Activations& act, const V* gate, const V* s_prev, const V* ds,
                                V* dx, V* dq, V* ds_prev) {
    BackwardOfCell(act, gate, s_prev, ds[kCell], dx, ds_prev);
    for (int g = 0; g < kGates; ++g) dq[g] = dx[g];
  }
};

// q includes its bias, and so does kept[kCandidateProduct], which is q_g.
struct LayerNormGru : Gru {
  static constexpr const char* kName = "layer_norm_gru";
  static constexpr bool kNormalizes = true;
};

HASTE_TARGET_END

#endif
