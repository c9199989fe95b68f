// Steps of `tiled` where R is stationary, of cells whose steps have two products (kResetGates).
//
// The products of a step follow one another as steps of other cells do: each has an operand, whose
// parity is that of the product, and blocks set their flags after each. Forward the first product
// is that of the reset gates, from which their operand for the other gates follows; the second ends
// the step. Backward the step begins with what comes back from the reset gates of the next, and
// its second product completes its reset gates. (So half of the operand's memory is not used.)
//
// What a thread knows of a step between its products is with its states.
#pragma once

#include <type_traits>

#include "lib/cuda/tiled/stationary_backward.cuh"
#include "lib/cuda/tiled/stationary_forward.cuh"

namespace haste {

// Of what a thread has with its states, the states alone, and back.
template <int kCount, int kAll, int kStates>
HASTE_DEVICE void GetStates(const float (&all)[kCount][kAll], float (&states)[kCount][kStates]) {
  HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) states[i][s] = all[i][s];
  }
}
template <int kCount, int kAll, int kStates>
HASTE_DEVICE void PutStates(const float (&states)[kCount][kStates], float (&all)[kCount][kAll]) {
  HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) all[i][s] = states[i][s];
  }
}

template <class Cell, class Params>
class StationaryResetForwardElements : public StationaryForwardElements<Cell, Params> {
  using Base = StationaryForwardElements<Cell, Params>;
  using typename Base::T, typename Base::Products;
  using V = CellScalar<T>;
  using Base::kCount, Base::kGates, Base::kStates, Base::p_;
  static constexpr int kReset = Cell::kResetGates;

 public:
  using Base::Base;
  static constexpr int kProducts = 2;
  // Of each element the states, the reset gates, and the operand that they made.
  using States = float[kCount][kStates + kReset + 1];

  HASTE_DEVICE void LoadStates(int turn, States& states) const {
    typename Base::States carried;
    Base::LoadStates(turn, carried);
    PutStates(carried, states);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g <= kReset; ++g) states[i][kStates + g] = 0.0f;
    }
  }

  // product: of the walk, as in the functions that follow.
  HASTE_DEVICE void Load(int turn, int64_t product) {
    const auto by = this->OfTurn(turn);
    this->seen_ = this->FlagsAt(by, product / kProducts);
    IsFirst(product) ? this->template LoadGates<0, kReset>(by)
                     : this->template LoadGates<kReset, kGates>(by);
  }

  HASTE_DEVICE void Step(int turn, int64_t product, const float* sums, States& states) {
    Products q;
    this->ReadSums(sums, q);
    this->AddBias(q);
    made_first_ = IsFirst(product);
    made_first_ ? Reset(turn, product, q, states) : End(turn, product, q, states);
  }

  HASTE_DEVICE void WriteStates(int turn, int64_t product, const States& states) const {
    if (IsFirst(product)) return;
    typename Base::States carried;
    GetStates(states, carried);
    Base::WriteStates(turn, product / kProducts, carried);
  }

  HASTE_DEVICE void Write(int turn) const {
    this->WriteEach(turn, [this](int r, const auto& put) {
      if (!made_first_) this->PutOutput(r, put);
      if (!p_.args.keep) return;
      if (made_first_) {
        this->template PutGates<0, kReset>(r, put);
        this->PutSaved(r, put);
      } else {
        this->template PutGates<kReset, kGates>(r, put);
      }
    });
  }

  HASTE_DEVICE void NextStep() {
    if (ends_) Base::NextStep();
    ends_ = !ends_;
  }

 private:
  static HASTE_DEVICE bool IsFirst(int64_t product) { return product % kProducts == 0; }

  // The reset gates, and what the other gates multiply.
  HASTE_DEVICE void Reset(int turn, int64_t product, const Products& q, States& states) {
    StepFlags seen[kCount];
    float scale[kCount], before[kCount][kStates], kept[kCount][Cell::kKept] = {};
    this->Unpack(this->seen_, seen, scale);
    WithActivations<Cell, float>(p_.act, [&](const Activations& act) {
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
        V x[kGates], of_product[kGates], entering[kStates], keeps[Cell::kKept];
        HASTE_UNROLL for (int g = 0; g < kReset; ++g) {
          x[g] = V(ToCompute(this->OfPair(this->x_[i / 2][g], i)));
          of_product[g] = V(q[i][g]);
        }
        HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
          before[i][s] = s == 0 ? KeptHidden<Cell>(states[i][0], scale[i]) : states[i][s];
          entering[s] = V(s == 0 ? states[i][0] * scale[i] : states[i][s]);
        }
        Cell::ForwardReset(act, x, of_product, entering, keeps);
        Recast(keeps, kept[i]);
      }
    });
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g < Cell::kKept; ++g) {
        const bool is_made = g < kReset || g == Cell::kOperand;
        if (!is_made || !seen[i].live) kept[i][g] = 0.0f;
      }
      HASTE_UNROLL for (int g = 0; g < kReset; ++g) states[i][kStates + g] = kept[i][g];
      states[i][kStates + kReset] = kept[i][Cell::kOperand];
    }
    this->StoreOperand(turn, product, [&](int i) { return kept[i][Cell::kOperand]; });
    this->Keep(before, kept);
  }

  HASTE_DEVICE void End(int turn, int64_t product, const Products& q, States& states) {
    float kept[kCount][Cell::kKept];
    typename Base::States carried;
    GetStates(states, carried);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g < Cell::kKept; ++g) kept[i][g] = 0.0f;
      HASTE_UNROLL for (int g = 0; g < kReset; ++g) kept[i][g] = states[i][kStates + g];
      kept[i][Cell::kOperand] = states[i][kStates + kReset];
    }
    this->StepFrom(
        turn, product, carried, kept,
        [&](Products& all) {
          HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
            HASTE_UNROLL for (int g = 0; g < kGates; ++g) all[i][g] = q[i][g];
          }
        },
        DoNothing());
    PutStates(carried, states);
  }

  bool ends_ = false;        // the product that NextStep follows is a step's second
  bool made_first_ = false;  // these results are of a step's first
};

template <class Cell, int kRows, class Params, bool kSharing = false>
class StationaryResetBackwardElements
    : public StationaryBackwardElements<Cell, kRows, Params, kSharing> {
  using Base = StationaryBackwardElements<Cell, kRows, Params, kSharing>;
  using typename Base::T, typename Base::Gates, typename Base::Kept;
  using V = CellScalar<T>;
  using Base::kCount, Base::kGates, Base::kStates, Base::p_;
  static constexpr int kReset = Cell::kResetGates, kOthers = kGates - kReset;
  static_assert(!Cell::kSplitsGradient, "the reset gates' dq would be lost");
  static_assert(ScaledGates(kReset) == kReset && ScaledGates(kOthers) == kOthers,
                "those of 16 units are in one chunk");

 public:
  static constexpr int kProducts = 2, kBegun = 0;
  static constexpr bool kMovesLate = false;
  // Of each element gradients of the states, and what is known of those of the reset gates.
  using States = float[kCount][kStates + kReset];

  HASTE_DEVICE StationaryResetBackwardElements(const Params& p,
                                               const StationaryBackwardPlace& place, int64_t first)
      : Base(p, place, first) {
    uint16_t* tile = p.operand.a + p.operand.At(place.lane, place.row_tile, 0);
    // In 16-bit numbers: of the first product, which come first.
    const int of_first =
        p.tiling.first_chunks * p.tiling.splits * Params::kTerms * (Base::Chunks::kSlotBytes / 2);
    to_others_ = tile + this->template OperandAt<kOthers>();
    to_reset_ = tile + of_first + this->template OperandAt<kReset>();
  }

  HASTE_DEVICE void LoadStates(int turn, States& states) const {
    typename Base::States carried;
    Base::LoadStates(turn, carried);
    PutStates(carried, states);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g < kReset; ++g) states[i][kStates + g] = 0.0f;
    }
  }

  HASTE_DEVICE void Load(int turn, int64_t step) {
    const auto by = this->OfTurn(turn);
    this->seen_ = this->FlagsAt(by, step);
    completes_ ? this->template LoadInputs<0, kReset>(by)
               : this->template LoadInputs<0, kGates>(by);
  }

  HASTE_DEVICE void Step(int turn, int64_t ended, const float (&product)[kCount], States& states) {
    Gates dx;
    made_reset_ = completes_;
    if (completes_) {
      Complete(product, states, dx);
      this->template StoreGates<0, kReset, 1>(turn, ended, to_reset_, dx);
    } else {
      Begin(product, states, dx);
      this->template StoreGates<kReset, kGates, 1>(turn, ended, to_others_, dx);
    }
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        this->dx_[r][g] = StoreTwo<T>(dx[2 * r][g], dx[2 * r + 1][g]);
      }
    }
  }

  // Of the gates after the reset gates, where dwx may lie in place of the gates: the reset gates
  // are read once more.
  HASTE_DEVICE void Write(int turn) const {
    made_reset_ ? this->template WriteGates<0, kReset>(turn)
                : this->template WriteGates<kReset, kGates>(turn);
  }

  HASTE_DEVICE void WriteInitial(int turn, const float (&product)[kCount],
                                 const States& states) const {
    typename Base::States carried;
    GetStates(states, carried);
    Base::WriteInitial(turn, product, carried);
  }

  HASTE_DEVICE void NextStep() {
    if (completes_) Base::NextStep();
    completes_ = !completes_;
  }

 private:
  // All but the gradients of the reset gates.
  HASTE_DEVICE void Begin(const float (&product)[kCount], States& states, Gates& dx) const {
    Gates dq = {};
    typename Base::States ds;
    GetStates(states, ds);
    this->Differentiate(product, ds, dx, dq);
    PutStates(ds, states);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g < kReset; ++g) states[i][kStates + g] = dx[i][g];
    }
  }

  // Those, from the gradient of what they made.
  HASTE_DEVICE void Complete(const float (&product)[kCount], States& states, Gates& dx) const {
    StepFlags seen[kCount];
    float scale[kCount];
    this->Unpack(this->seen_, seen, scale);
    WithActivations<Cell, float>(p_.act, [&](const Activations& act) {
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
        Kept reserve;
        T unused;
        this->GetReserve(i, &reserve, &unused);
        reserve.prev[0] *= scale[i];
        V kept[Cell::kKept], prev[kStates], of_x[kGates], added[kStates];
        Recast(reserve.kept, kept);
        Recast(reserve.prev, prev);
        HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
          of_x[g] = V(g < kReset ? states[i][kStates + (g < kReset ? g : 0)] : 0.0f);
        }
        HASTE_UNROLL for (int s = 0; s < kStates; ++s) added[s] = V(0.0f);
        Cell::BackwardReset(act, kept, prev, V(product[i]), of_x, added);
        Recast(of_x, dx[i]);
        float more[kStates];
        Recast(added, more);
        more[0] *= scale[i];
        HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
          if (seen[i].live) states[i][s] += more[s];
        }
      }
    });
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g < kReset; ++g) {
        if (!seen[i].live) dx[i][g] = states[i][kStates + g];
      }
    }
  }

  uint16_t *to_others_, *to_reset_;
  bool completes_ = false;   // the next product is a step's second
  bool made_reset_ = false;  // these results are of a step's second
};

// Of any cell: what a thread does with its elements.
template <class Cell, class Params>
using StationaryForwardOf =
    std::conditional_t<(Cell::kResetGates > 0), StationaryResetForwardElements<Cell, Params>,
                       StationaryForwardElements<Cell, Params>>;
template <class Cell, int kRows, class Params, bool kSharing = false>
using StationaryBackwardOf =
    std::conditional_t<(Cell::kResetGates > 0),
                       StationaryResetBackwardElements<Cell, kRows, Params, kSharing>,
                       StationaryBackwardElements<Cell, kRows, Params, kSharing>>;

}  // namespace haste
