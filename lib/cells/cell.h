// What a cell says of itself beside its equations. Each header of this folder derives its struct
// from Cell and overrides what is not so. kStateBound (HasteStateBound) has no default: a cell that
// does not say it does not compile.
//
// Matrix cells (HASTE_DENSE): state 0 is h, the output, and h·R enters a step. They are written
//
//   Forward(act, x, q, s_prev, kept, s)                 x, q: [G] of wx and of h·R
//   Backward(act, kept, s_prev, ds, dx, ds_prev)        dx: [G] gradients of x, and of q, unless
//   Backward(act, kept, s_prev, ds, dx, dq, ds_prev)    kSplitsGradient: then of q apart
//
// on one element, templated on the scalar V. kept: [kKept], what Forward leaves for Backward: the
// gates first, then kept[kGates …], each a tensor of the reserve. s_prev of Backward holds only the
// states of kReadsState, of which the reserve has those that enter the step. The engine's product
// adds to ds_prev[0].
//
// With kAddsProduct Forward and ForwardReset read x[g] + q[g] alone, whatever the two are. An
// engine may then start the sums of h·R from x.
//
// Recurrent dropout is on what R multiplies alone: in h·R, and in h as ForwardReset and
// BackwardReset have it.
//
// With kResetGates = r > 0 a step has two products: gates 0 … r-1 take h·R, the others an operand
// that those gates make:
//
//   ForwardReset(act, x, q, s_prev, kept)     kept[g], g < r, and kept[kOperand], the operand
//   Forward(…)                                q[g], g >= r; has what ForwardReset kept
//   Backward(…)                               dx[g], g >= r, and of the others what it can
//   BackwardReset(act, kept, s_prev, d_operand, dx, ds_prev)    the other dx; adds to ds_prev. Of
//                                             kept it is given the gates < r and kept[kGates …]
//
// With kTiedZoneout the states but h are one: in training what is drawn for state 1 decides on all
// of them. In expectation they are mixed by the cell, which is told the rate in act.
//
// Parameters beside R, in this order ("extras"): recurrent_gamma [K, G, H] of kNormalizes;
// state_gamma and state_beta [K, H] of kNormalizesState; recurrent_bias [K, G, H] of
// kRecurrentBias, which is added to h·R, after its normalisation if any: q is the sum.
//
// With kNormalizes q comes through layer normalisation. With kNormalizesState = s > 0 state s does
// too, where it makes h:
//
//   Forward(…)                                           every state but h
//   NewState(kept, s_prev) → state s, as Forward makes it
//   Output(act, kept, normed) → h
//   OutputBackward(act, kept, normed, dh, dx) → gradient of normed; sets the dx of Output's gates
//   Backward(…)                                          ds[s] has that gradient; keeps dx as set
//
// Pooling cells (HASTE_DIAGONAL, HASTE_NONE) are walked one element at a time by the scan engine:
//
//   Forward(act, share, x, q, s_prev, kept, s, y)        q = u∘h, of HASTE_DIAGONAL only
//   Backward(act, share, kept, s_prev, ds, dy, dx, ds_prev)     the engine adds u∘dx to ds_prev[0]
//
// share: [S] of Zoneout: how much of a state is kept, 0 or 1 in training. It is the engine that
// applies it unless kZoneoutInGate. With kOutputsState the output is state 0 after that: the engine
// takes y from there and adds dy to ds[0]; the cell sets no y and reads no dy.
//
// With kLinearScan the only state is a·s_prev + b and y = w·s, where a, b and w need no state. An
// engine can then make those of many steps at once, and cut time into parts. In pieces:
//
//   Gates(act, x, gate)              the gates of a step
//   Affine(share, gate, a, b)        share: 0 unless kZoneoutInGate
//   OutputWeight(gate) → w           1 with kOutputsState
//
// and ds_prev of Backward is a·(ds + w·dy).
#if defined(HASTE_LIB_CELLS_CELL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CELLS_CELL_H_
#else
#define HASTE_LIB_CELLS_CELL_H_
#endif

#include <cmath>

#include "haste/c_api.h"
#include "lib/base/per_target.h"
#include "lib/cells/activation.h"

HASTE_TARGET_BEGIN

struct Cell {
  // The activations of the cell's layer by default. Kernels have a version made for them.
  static constexpr HasteActivation kActivation = HASTE_TANH;
  static constexpr HasteActivation kRecurrentActivation = HASTE_SIGMOID;
  static constexpr HasteRecurrence kRecurrence = HASTE_DENSE;
  static constexpr bool kSeparateGates = false;
  static constexpr bool kAddsProduct = false;
  static constexpr bool kSplitsGradient = false;
  static constexpr bool kRecurrentBias = false;
  static constexpr bool kNormalizes = false;
  static constexpr int kNormalizesState = 0;
  static constexpr int kResetGates = 0;
  static constexpr bool kExponential = false;
  static constexpr bool kTiedZoneout = false;
  static constexpr bool kZoneoutInGate = false;
  static constexpr bool kOutputsState = true;
  static constexpr bool kLinearScan = false;
  static constexpr bool kReadsState[HASTE_MAX_STATES] = {true, true, true, true};

  // Where HasBoundedStates: from these states on |h| is never larger than this, or than 1.
  template <class V>
  static HASTE_FN V Bound(const V* s) {
    return IfPositive(s[0], s[0], -s[0]);
  }
};

// States that the reserve keeps as they enter a step.
template <class C>
constexpr int SavedStates() {
  int count = 0;
  for (int s = 0; s < C::kStates; ++s) count += C::kReadsState[s];
  return count;
}
// Tensors of the reserve: those states, then kept[kGates …].
template <class C>
constexpr int SavedTensors() {
  return SavedStates<C>() + C::kKept - C::kGates;
}
// Whether h[t-1] enters a step beside h·R. Under recurrent dropout the two differ: the reserve then
// has one tensor more, saved[SavedTensors()], of h[t-1] without dropout.
template <class C>
constexpr bool kMixesHidden = C::kStateBound == HASTE_BOUND_MEAN;

// Zoneout's rate of a state as the engine applies it, and which word of a draw decides on it.
template <class C>
float ZoneoutRate(const HasteRnnConfig& config, int s) {
  if (!C::kTiedZoneout || s == 0) return config.zoneout[s];
  const float rate = config.zoneout[1];
  return config.training || rate == 1 ? rate : 0;
}
template <class C>
HASTE_FN constexpr int ZoneoutWord(int s) {
  return C::kTiedZoneout && s > 1 ? 1 : s;
}
template <class C>
bool AnyZoneout(const HasteRnnConfig& config) {
  for (int s = 0; s < C::kStates; ++s) {
    if (ZoneoutRate<C>(config, s) > 0) return true;
  }
  return false;
}

template <class C>
Activations CellActivations(const HasteRnnConfig& config) {
  Activations act = {config.activation, config.recurrent_activation};
  const double rate = config.zoneout[1];
  if (C::kTiedZoneout && !config.training && rate > 0 && rate < 1) {
    act.log_zoneout = std::log(rate);
    act.log_renewal = std::log1p(-rate);
  }
  return act;
}

// Backward of a matrix cell; dq is dx where the two are one.
template <class C, class V>
HASTE_FN void CellBackward(const Activations& act, const V* kept, const V* s_prev, const V* ds,
                           V* dx, V* dq, V* ds_prev) {
  if constexpr (C::kSplitsGradient) {
    C::Backward(act, kept, s_prev, ds, dx, dq, ds_prev);
  } else {
    C::Backward(act, kept, s_prev, ds, dx, ds_prev);
#if !defined(__CUDACC__)
#pragma GCC unroll 8  // no memcpy, see lib/cpu/engines/plain_step-inl.h
#endif
    for (int g = 0; g < C::kGates; ++g) dq[g] = dx[g];
  }
}

HASTE_TARGET_END

#endif
