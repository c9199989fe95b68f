// A step of a cell that normalises h·R where R is stationary
// (lib/cuda/tiled/stationary_forward.cuh). Statistics of rows are made by all blocks that have
// units of them.
#pragma once

#include "lib/cuda/layer_norm/row_all_reduce.cuh"
#include "lib/cuda/layer_norm/stationary_parameters.cuh"
#include "lib/cuda/tiled/stationary_forward.cuh"

namespace haste {

// What a thread does with its elements at a step.
template <class Cell, class Params>
class NormStationaryForwardElements : public StationaryForwardElements<Cell, Params> {
  using Base = StationaryForwardElements<Cell, Params>;
  using T = typename Params::Storage;
  using V = CellScalar<T>;
  using Base::kCount, Base::kGates, Base::kStates, Base::p_;
  using typename Base::Products;
  static constexpr int kState = Cell::kNormalizesState;

 public:
  using typename Base::States;
  static constexpr int kRegisterDepth = NormalizingForwardDepth(sizeof(T) == 4);

  HASTE_DEVICE NormStationaryForwardElements(const Params& p, const StationaryPlace& place)
      : Base(p, place),
        parameters_(p, place.lane, [&](const T* row) { return this->OfUnits(row); }),
        reduce_(p, place.lane, place.row_tile, this->Row(), this->unit_),
        products_are_paired_(ArePaired(p, p.args.products)) {}

  HASTE_DEVICE void Step(int turn, int64_t step, const float* sums, States& states) {
    this->StepWith(
        turn, step, states,
        [&](Products& q) {
          this->ReadSums(sums, q);
          HASTE_UNROLL for (int r = 0; r < 2; ++r) {
            const bool live = (this->seen_ >> this->kBitsOfElement * 2 * r & this->kLive) != 0;
            HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
              products_[r][g] = live ? StoreTwo<T>(q[2 * r][g], q[2 * r + 1][g]) : 0;
            }
          }
          Moments<float> of_row[2];
          reduce_.MomentsOf(0, turn, step, q, of_row);
          HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
            HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
              q[i][g] = of_row[i / 2].Normed(q[i][g]) * parameters_.Gamma(g, i);
            }
          }
          this->AddBias(q);
        },
        [&](const float (&kept)[kCount][Cell::kKept], States& next) {
          if constexpr (kState > 0) Output(turn, step, kept, next);
        });
  }

  HASTE_DEVICE void Write(int turn) const {
    Base::Write(turn);
    if (!p_.args.keep) return;
    products_are_paired_ ? WriteProducts<true>(turn) : WriteProducts<false>(turn);
  }

 private:
  // h, of the normalised state.
  HASTE_DEVICE void Output(int turn, int64_t step, const float (&kept)[kCount][Cell::kKept],
                           States& next) const {
    float state[kCount][1];
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) state[i][0] = next[i][kState];
    Moments<float> of_row[2];
    reduce_.MomentsOf(1, turn, step, state, of_row);
    WithActivations<Cell, float>(p_.act, [&](const Activations& act) {
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
        V keeps[Cell::kKept], h[1];
        float made[1];
        Recast(kept[i], keeps);
        h[0] =
            Cell::Output(act, keeps, V(parameters_.Scaled(of_row[i / 2].Normed(state[i][0]), i)));
        Recast(h, made);
        next[i][0] = made[0];
      }
    });
  }

  template <bool kPaired>
  HASTE_DEVICE void WriteProducts(int turn) const {
    const auto by = this->OfTurn(turn);
    const int64_t gates = this->GatesAt(by, this->made_at_);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      if (!this->Exists(by, 2 * r)) continue;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        this->template StorePair<kPaired>(by, p_.args.products,
                                          gates + r * kGates * this->row_stride_ + g * p_.H,
                                          products_[r][g]);
      }
    }
  }

  const NormParameters<Cell, T> parameters_;
  const RowAllReduce<Params> reduce_;
  const bool products_are_paired_;
  StoredPair<T> products_[2][kGates];  // of the step, pairs of units
};

}  // namespace haste
