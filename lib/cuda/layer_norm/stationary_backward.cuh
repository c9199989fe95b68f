// A step backward of a cell that normalises h·R where R is stationary
// (lib/cuda/tiled/stationary_backward.cuh). The gradients are those of rows_backward.cuh; sums over
// rows are made by all blocks that have units of them. Forward's statistics are made before the
// walk (MomentsOfSteps).
#pragma once

#include "lib/cuda/layer_norm/moments_of_steps.cuh"
#include "lib/cuda/layer_norm/row_all_reduce.cuh"
#include "lib/cuda/layer_norm/rows_backward.cuh"
#include "lib/cuda/layer_norm/stationary_parameters.cuh"
#include "lib/cuda/tiled/stationary_backward.cuh"

namespace haste {

// Gradients of parameters that each element adds up over the steps.
template <class Cell>
constexpr int kAccumulators = Cell::kRecurrentBias ? 2 * Cell::kGates : Cell::kGates + 2;
// Of a block, in float4.
template <class Cell>
__host__ __device__ int64_t AccumulatorsOfBlock(const TiledTiling& t) {
  static_assert((Cell::kNormalizesState > 0) != Cell::kRecurrentBias, "what kAccumulators counts");
  return int64_t{t.turns} * kAccumulators<Cell> * kStationaryElementThreads;
}

// What a thread does with its elements at a step.
template <class Cell, int kRows, class Params>
class NormStationaryBackwardElements : public StationaryBackwardElements<Cell, kRows, Params> {
  using Base = StationaryBackwardElements<Cell, kRows, Params>;
  using T = typename Params::Storage;
  using V = CellScalar<T>;
  using Base::kCount, Base::kGates, Base::kStates, Base::p_, Base::dq_;
  static constexpr int kState = Cell::kNormalizesState;
  // Accumulators: of gamma, then of a state's parameters or of the bias of h·R.
  static constexpr int kStateGamma = kGates, kStateBeta = kStateGamma + 1, kBias = kGates;

 public:
  using typename Base::States;
  static constexpr int kRegisterDepth = NormalizingBackwardDepth(sizeof(T) == 4, kRows);
  static constexpr bool kMovesLate = false;
  static constexpr int kBegun = 0;

  HASTE_DEVICE NormStationaryBackwardElements(const Params& p, const StationaryBackwardPlace& place,
                                              int64_t first)
      : Base(p, place, first),
        parameters_(p, place.lane, [&](const T* row) { return this->OfUnits(row); }),
        reduce_(p, place.lane, place.row_tile, this->Row(), this->unit_),
        products_are_paired_(ArePaired(p, p.args.products)),
        moments_at_(this->first_row_ * p.T_ * p.K + TimeOf(p, this->reverse_, first) * p.K +
                    place.lane),
        accumulators_(p.norm.accumulators +
                      int64_t{blockIdx.x} * AccumulatorsOfBlock<Cell>(p.tiling) + threadIdx.x) {}

  HASTE_DEVICE void Load(int turn, int64_t step) {
    Base::Load(turn, step);
    LoadMoments(turn);
  }

  // Row by row: registers are few.
  HASTE_DEVICE void Step(int turn, int64_t ended, const float (&product)[kCount], States& states) {
    StepFlags seen[kCount];
    float scale[kCount], sums[2][2] = {}, dq[kCount][kGates];
    this->Unpack(this->seen_, seen, scale);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      states[i][0] = MulAdd(product[i], scale[i], states[i][0]);
    }
    if constexpr (kState > 0) {
      float of_gamma[kCount], of_beta[kCount];
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
        float normed;
        of_beta[i] = OutputGradient(i, seen[i], states[i], &normed);
        of_gamma[i] = IsLive(i) ? of_beta[i] * normed : 0.0f;  // a masked row may be NaN
        const float dnormed = of_beta[i] * parameters_.StateGamma(i);
        sums[i / 2][0] += dnormed;
        sums[i / 2][1] = MulAdd(dnormed, normed, sums[i / 2][1]);
      }
      Accumulate(turn, kStateGamma, of_gamma);
      Accumulate(turn, kStateBeta, of_beta);
      reduce_.Sum(1, turn, ended, sums);
    }
    HASTE_UNROLL for (int r = 0; r < 2; ++r) WalkRow(r, seen, scale, sums[r], states, dq);
    products_are_paired_ ? LoadProducts<true>(turn) : LoadProducts<false>(turn);
    Normalize(turn, ended, dq);
    this->StoreOperand(turn, ended, dq);
    // dq is wanted only for dR = Σ h ⊗ dq. A row with h = 0 adds nothing to that, but has variance
    // 0, and may have gradients beyond the range of 16 bits.
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        dq_[r][g] = signbit(moments_[r].y) ? 0 : StoreTwo<T>(dq[2 * r][g], dq[2 * r + 1][g]);
      }
    }
  }

  HASTE_DEVICE void NextStep() {
    Base::NextStep();
    moments_at_ += this->reverse_ ? p_.K : -p_.K;
  }

  // Stores the gradients of the parameters.
  HASTE_DEVICE void End(int turn) const {
    HASTE_UNROLL for (int value = 0; value < kAccumulators<Cell>; ++value) {
      const float4 sum = *Accumulator(turn, value);
      const float of[kCount] = {sum.x, sum.y, sum.z, sum.w};
      const bool of_gate = value < kGates || Cell::kRecurrentBias;
      float* to = p_.norm.dextra[value < kGates         ? kGammaAt
                                 : Cell::kRecurrentBias ? kRecurrentBiasAt<Cell>
                                 : value == kStateGamma ? kStateGammaAt
                                                        : kStateBetaAt];
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
        const Element e = this->At(this->OfTurn(turn), i);
        const int64_t at =
            of_gate ? e.at * kGates - e.j * (kGates - 1) + value % kGates * p_.H : e.at;
        if (e.exists) to[at] = of[i];
      }
    }
  }

 private:
  HASTE_DEVICE float4* Accumulator(int turn, int value) const {
    return accumulators_ + (turn * kAccumulators<Cell> + value) * kStationaryElementThreads;
  }
  // No other thread adds to it.
  HASTE_DEVICE void Accumulate(int turn, int value, const float (&more)[kCount]) const {
    AddGlobal(Accumulator(turn, value), make_float4(more[0], more[1], more[2], more[3]));
  }

  HASTE_DEVICE bool IsLive(int i) const {
    return (this->seen_ >> this->kBitsOfElement * i & this->kLive) != 0;
  }
  HASTE_DEVICE Moments<float> OfProduct(int i) const {
    return {moments_[i / 2].x, fabsf(moments_[i / 2].y)};
  }
  HASTE_DEVICE Moments<float> OfState(int i) const {
    return {moments_[i / 2].z, moments_[i / 2].w};
  }

  template <bool kPaired>
  HASTE_DEVICE void LoadProducts(int turn) {
    const auto by = this->OfTurn(turn);
    const int64_t gates = this->GatesAt(by);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) products_[r][g] = 0;
      if (!this->Exists(by, 2 * r)) continue;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        products_[r][g] = this->template LoadPair<kPaired>(
            by, p_.args.products, gates + r * kGates * this->row_stride_ + g * p_.H);
      }
    }
  }
  HASTE_DEVICE void LoadMoments(int turn) {
    const auto by = this->OfTurn(turn);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      moments_[r] = float4{};
      if (!this->Exists(by, 2 * r)) continue;
      moments_[r] = __ldg(p_.norm.moments + moments_at_ + (by.rows + r) * (p_.T_ * p_.K));
      const T* products = static_cast<const T*>(p_.args.products) + this->GatesAt(by) +
                          r * kGates * this->row_stride_;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) PrefetchL2(products + g * p_.H);
    }
  }

  // The gradient of the state with gamma and beta applied; sets the dx of the gates of h. dh: of h
  // as the cell made it, before Zoneout.
  HASTE_DEVICE float OutputGradient(int i, const float (&kept)[Cell::kKept],
                                    const float (&prev)[kStates], float dh, float* normed,
                                    float (&dx)[kGates]) const {
    V keeps[Cell::kKept], of_gates[kGates] = {}, of_output[1];
    float gradient[1];
    Recast(kept, keeps);
    *normed = OfState(i).Normed(Cell::NewState(kept, prev));
    WithActivations<Cell, float>(p_.act, [&](const Activations& act) {
      of_output[0] =
          Cell::OutputBackward(act, keeps, V(parameters_.Scaled(*normed, i)), V(dh), of_gates);
    });
    Recast(of_output, gradient);
    Recast(of_gates, dx);
    return IsLive(i) ? gradient[0] : 0.0f;
  }
  // The same from the gradients of the states that leave the step.
  HASTE_DEVICE float OutputGradient(int i, const StepFlags& seen, const float (&leaving)[kStates],
                                    float* normed) const {
    typename Base::Kept reserve;
    T dy;
    float dx[kGates], share[kStates], ds[kStates], past[kStates];
    this->GetReserve(i, &reserve, &dy);
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) ds[s] = leaving[s];
    ds[0] += ToCompute(dy);
    if (p_.zoneout) {
      GetShares(p_, seen, share);
      SplitZoneout(share, ds, past);
    }
    return OutputGradient(i, reserve.kept, reserve.prev, ds[0], normed, dx);
  }

  // Sets dq of a row's elements to the gradients of the normalised h·R. sums: of Step.
  HASTE_DEVICE void WalkRow(int r, const StepFlags (&seen)[kCount], const float (&scale)[kCount],
                            const float (&sums)[2], States& states, float (&dq)[kCount][kGates]) {
    StepFlags seen_of[2];
    typename Base::Kept reserve[2];
    T dy[2];
    float scale_of[2], ds[2][kStates], dx[2][kGates], gradients[2][kGates];
    HASTE_UNROLL for (int m = 0; m < 2; ++m) {
      const int i = 2 * r + m;
      seen_of[m] = seen[i];
      scale_of[m] = scale[i];
      this->GetReserve(i, &reserve[m], &dy[m]);
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) ds[m][s] = states[i][s];
    }
    const float share = 1.0f / static_cast<float>(p_.H);
    WalkBackward<Cell>(p_, seen_of, reserve, dy, scale_of, ds, dx, gradients,
                       [&](const float (&kept)[2][Cell::kKept], const float (&prev)[2][kStates],
                           float (&leaving)[2][kStates], float (&of_gates)[2][kGates]) {
                         if constexpr (kState > 0) {
                           HASTE_UNROLL for (int m = 0; m < 2; ++m) {
                             const int i = 2 * r + m;
                             float normed;
                             const float gradient = OutputGradient(
                                 i, kept[m], prev[m], leaving[m][0], &normed, of_gates[m]);
                             leaving[m][kState] +=
                                 OfState(i).scale * (gradient * parameters_.StateGamma(i) -
                                                     sums[0] * share - normed * sums[1] * share);
                           }
                         }
                       });
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      this->dx_[r][g] = StoreTwo<T>(dx[0][g], dx[1][g]);
      HASTE_UNROLL for (int m = 0; m < 2; ++m) dq[2 * r + m][g] = gradients[m][g];
    }
    HASTE_UNROLL for (int m = 0; m < 2; ++m) {
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) states[2 * r + m][s] = ds[m][s];
    }
  }

  // From the gradients of the normalised h·R, which are 0 where a step is masked, to those of h·R.
  HASTE_DEVICE void Normalize(int turn, int64_t ended, float (&dq)[kCount][kGates]) const {
    float sums[2][2] = {};
    const auto normed = [&](int i, int g) {
      return OfProduct(i).Normed(ToCompute(this->OfPair(products_[i / 2][g], i)));
    };
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      float of_gamma[kCount], of_bias[kCount];
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
        of_bias[i] = IsLive(i) ? dq[i][g] : 0.0f;
        of_gamma[i] = of_bias[i] * normed(i, g);
        dq[i][g] = of_bias[i] * parameters_.Gamma(g, i);
        sums[i / 2][0] += dq[i][g];
        sums[i / 2][1] = MulAdd(dq[i][g], normed(i, g), sums[i / 2][1]);
      }
      Accumulate(turn, g, of_gamma);
      if constexpr (Cell::kRecurrentBias) Accumulate(turn, kBias + g, of_bias);
    }
    reduce_.Sum(0, turn, ended, sums);
    const float share = 1.0f / static_cast<float>(kGates * p_.H);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const float mean = sums[i / 2][0] * share, slope = sums[i / 2][1] * share;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        const float gradient = OfProduct(i).scale * (dq[i][g] - mean - normed(i, g) * slope);
        dq[i][g] = IsLive(i) ? gradient : 0.0f;
      }
    }
  }

  const NormParameters<Cell, T> parameters_;
  const RowAllReduce<Params> reduce_;
  const bool products_are_paired_;
  int64_t moments_at_;  // of the first row at the present step, in [N, T, K]
  float4* const accumulators_;
  StoredPair<T> products_[2][kGates];  // of the step, pairs of units
  float4 moments_[2];                  // of its rows (MomentsOfSteps)
};

}  // namespace haste
