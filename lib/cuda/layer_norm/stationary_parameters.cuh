// The parameters of the normalisations of a thread's two hidden units, where R is stationary.
#pragma once

#include "lib/cuda/layer_norm/rows_params.cuh"
#include "lib/cuda/tiled/stationary_elements.cuh"

namespace haste {

// As they are stored, in pairs of units.
template <class Cell, class T>
class NormParameters {
  static constexpr bool kHasState = Cell::kNormalizesState > 0;

 public:
  // of_units(row): the thread's units of a row of H numbers.
  template <class P, class OfUnits>
  HASTE_DEVICE NormParameters(const P& p, int64_t lane, const OfUnits& of_units) {
    const auto row = [&](int extra, int64_t i) {
      return of_units(static_cast<const T*>(p.args.extra[extra]) + i * p.H);
    };
    HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
      gamma_[g] = row(kGammaAt, lane * Cell::kGates + g);
    }
    if constexpr (kHasState) {
      state_[0] = row(kStateGammaAt, lane);
      state_[1] = row(kStateBetaAt, lane);
    }
  }

  // i: of an element, which is unit i % 2.
  HASTE_DEVICE float Gamma(int gate, int i) const { return Of(gamma_[gate], i); }
  HASTE_DEVICE float StateGamma(int i) const { return Of(state_[0], i); }
  // What a normalised state becomes.
  HASTE_DEVICE float Scaled(float normed, int i) const {
    return MulAdd(normed, Of(state_[0], i), Of(state_[1], i));
  }

 private:
  static HASTE_DEVICE float Of(StoredPair<T> both, int i) { return ToCompute(OfPair<T>(both, i)); }

  StoredPair<T> gamma_[Cell::kGates], state_[kHasState ? 2 : 1];
};

}  // namespace haste
