// The C ABI's description of a cell, made from its traits (lib/cells/cell.h), and facts derived
// from it.
#pragma once

#include <string.h>

#include "haste/c_api.h"

namespace haste {

template <class C>
constexpr HasteCellInfo CellInfo() {
  HasteCellInfo info = HASTE_INIT(HasteCellInfo);
  info.name = C::kName;
  info.gates = C::kGates;
  info.states = C::kStates;
  for (int g = 0; g < C::kGates; ++g) info.gate_names[g] = C::kGateNames[g];
  for (int s = 0; s < C::kStates; ++s) info.state_names[s] = C::kStateNames[s];
  info.recurrence = C::kRecurrence;
  info.separate_gates = C::kSeparateGates;
  info.normalizes = C::kNormalizes;
  info.splits_gradient = C::kSplitsGradient;
  info.reset_gates = C::kResetGates;
  info.exponential = C::kExponential;
  info.tied_zoneout = C::kTiedZoneout;
  const auto extra = [&info](const char* name, const char* dims) {
    info.extra_names[info.extras] = name;
    info.extra_dims[info.extras++] = dims;
  };
  if (C::kNormalizes) extra("recurrent_gamma", "KGH");
  if (C::kNormalizesState > 0) {
    extra("state_gamma", "KH");
    extra("state_beta", "KH");
  }
  if (C::kRecurrentBias) extra("recurrent_bias", "KGH");
  // The states that backward reads, as they enter a step; then kept[kGates …]; then that
  // of kMixesHidden.
  for (int s = 0; s < C::kStates; ++s) info.saved += C::kReadsState[s];
  info.saved += C::kKept - C::kGates;
  info.saved += C::kStateBound == HASTE_BOUND_MEAN;
  for (int i = 0; i < info.saved; ++i) info.saved_names[i] = C::kSavedNames[i];
  info.state_bound = C::kStateBound;
  return info;
}

// Tensors of the reserve that every call has.
constexpr int AlwaysSaved(const HasteCellInfo& cell) {
  return cell.saved - (cell.state_bound == HASTE_BOUND_MEAN);
}
// Those that this call has: under recurrent dropout also h[t-1] of kMixesHidden.
inline int SavedOf(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return config.training != 0 && config.recurrent_dropout > 0 ? cell.saved : AlwaysSaved(cell);
}

// Of a cell that normalises h·R: whether it normalises a state, too.
inline bool NormalizesState(const HasteCellInfo& cell) {
  return cell.normalizes && cell.extras > 1 && strcmp(cell.extra_dims[1], "KH") == 0;
}

// Whether |h| has a bound, which Cell::Bound gives. For a cell whose h is a weighted mean with the
// previous h, the bound holds if the weight is in [0, 1].
inline bool HasBoundedStates(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  const auto is_share = [](int32_t activation) {
    return activation == HASTE_SIGMOID || activation == HASTE_HARD_SIGMOID;
  };
  const auto bounded = [&](int32_t activation) {
    return activation == HASTE_TANH || is_share(activation);
  };
  if (!bounded(config.activation)) return false;
  switch (cell.state_bound) {
    case HASTE_BOUND_ACTIVATION:
    case HASTE_BOUND_WEIGHTED_MEAN: return true;
    case HASTE_BOUND_PRODUCT: return bounded(config.recurrent_activation);
    case HASTE_BOUND_MEAN: return is_share(config.recurrent_activation);
    default: return false;
  }
}

// Whether the engine `tiled` scales the float gradients of the gates row by row. It does so if a
// step has one product of several gates, which share a scale.
constexpr bool ScalesTiledGradients(const HasteCellInfo& cell) {
  return cell.gates > 1 && cell.reset_gates == 0;
}

}  // namespace haste
