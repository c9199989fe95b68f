// Steps of `tiled`, backward, where R is stationary (stationary.cuh).
//
// Some blocks have the same 64 units and rows, and divide the depth, which is that of all gates'
// gradients. They give each other their partial sums. Each then computes the cell of some of the
// units. They may take turns with several tiles of rows. They are a cluster, or clusters are blocks
// of other units and the same part of the depth, each of which loads some of the chunks into all.
//
// The depth is [unit tile, gate, 64 units of it]; of two products a step, that of the first's
// gates, then that of the second's. Of its chunks, a block has every one whose number is its split,
// modulo the splits.
//
// Gradients of floats are scaled float16. 16 units of a row, which a warp computes, have a scale
// that fits them, and follow one another in the depth: [tile of 16 units, gate, unit]. (Of two
// products each gate has its own scale: StationaryResetBackwardElements.) A chunk has
// the factors that undo its scales at its end (lib/cuda/ptx/fp16_scale.cuh).
#pragma once

#include <algorithm>

#include "lib/cuda/tiled/stationary_backward_chunks.cuh"
#include "lib/cuda/tiled/stationary_elements.cuh"
#include "lib/cuda/tiled/stationary_meeting.cuh"
#include "lib/plan/engines/tiled_turns.h"

namespace haste {

// What a thread does with its elements at a step. kSharing: blocks of a cluster share the operand.
template <class Cell, int kRows, class Params, bool kSharing = false>
class StationaryBackwardElements : protected StationaryElements<Cell, Params> {
  using Base = StationaryElements<Cell, Params>;

 protected:
  using Base::kCount, Base::kGates, Base::kStates, Base::p_;
  using typename Base::T, typename Base::Pair, typename Base::Shift;
  using Gates = float[kCount][kGates];

 private:
  static constexpr int kSplits = kRows / 16;  // so that each warp has one piece
  static constexpr bool kScales = kScaledTerms<T> > 0;
  static constexpr int kAll = kScales ? kScaledGates<Cell, T> : kGates;  // in the depth
  // Units of a gate that follow one another in the depth.
  static constexpr int kDepthUnits = kScales ? kStationaryScaleUnits : kStationaryBackwardUnits;

 public:
  using typename Base::States;
  static constexpr int kProducts = 1;  // of a step
  using Meeting = std::conditional_t<kSharing, StationaryMemoryMeeting<kRows, kSplits>,
                                     StationaryMeeting<kRows, kSplits>>;
  static constexpr bool kShares = kSharing;
  // In turns: whether inputs are loaded and results stored while partial sums are on their way, so
  // that registers hold less during the product. Measured: faster only where they are too few.
  static constexpr bool kMovesLate = kGates >= 4 && !kScales;
  static constexpr int kBegun = EarlyChunks(kGates, kScales, kRows, kSharing);
  static constexpr int kTileRows = kRows, kScaled = kScaledGates<Cell, T>;
  static constexpr int kRegisterDepth = kScales ? ScalingBackwardDepth(Cell::kExponential, kRows)
                                        : Cell::kExponential ? kExponentialRegisterDepth
                                        : kSharing           ? kSharingBackwardDepth
                                                             : kStationaryRegisterDepth;
  using Chunks = StationaryBackwardChunks<Cell, kRows, Params>;

  HASTE_DEVICE StationaryBackwardElements(const Params& p, const StationaryBackwardPlace& place,
                                          int64_t first)
      : Base(p, place.lane, int64_t{place.row_tile} * kRows + Row(),
             place.unit_tile * kStationaryBackwardUnits + Unit(place), first,
             ArePaired(p, p.args.dy, p.args.dwx, p.args.dq) && ReserveIsPaired<Cell>(p)),
        to_(p.operand.a + p.operand.At(place.lane, place.row_tile, 0) + OperandAt<kAll>()) {
    if constexpr (kScales) product_scale_ = ScalesOf(p).product;
  }

  HASTE_DEVICE void LoadStates(int turn, States& states) const {
    this->LoadCarried(OfTurn(turn), states);
  }

  // Asks for what Load reads. Lanes of a row have one sector.
  HASTE_DEVICE void Prefetch(int turn) {
    if (threadIdx.x % 32 >= 4) return;
    EachInput<0, Cell::kKept>(OfTurn(turn), [](Pair*, const void* tensor, int64_t place) {
      PrefetchL2(static_cast<const T*>(tensor) + place);
    });
  }
  // What is known of a step. dwx may lie where the gates do: a thread reads them before it writes
  // that step's results.
  HASTE_DEVICE void Load(int turn, int64_t step) {
    const auto by = OfTurn(turn);
    seen_ = this->FlagsAt(by, step);
    LoadInputs<0, Cell::kKept>(by);
  }

  // product: of the next step's gradients with Rᵀ, added up.
  HASTE_DEVICE void Unscale(float (&product)[kCount]) const {
    if constexpr (kScales) {
      HASTE_UNROLL for (float& sum : product) sum *= product_scale_;
    }
  }

  // Stores what the next product multiplies. ended: how many steps, or products.
  HASTE_DEVICE void Step(int turn, int64_t ended, const float (&product)[kCount], States& states) {
    Gates dx, dq;
    Differentiate(product, states, dx, dq);
    StoreOperand(turn, ended, dq);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        dx_[r][g] = StoreTwo<T>(dx[2 * r][g], dx[2 * r + 1][g]);
        if constexpr (Cell::kSplitsGradient) {
          dq_[r][g] = StoreTwo<T>(dq[2 * r][g], dq[2 * r + 1][g]);
        }
      }
    }
  }

  // Stores everything else.
  HASTE_DEVICE void Write(int turn) const { WriteGates<0, kGates>(turn); }

  // After the first step: the gradients of the initial states.
  HASTE_DEVICE void WriteInitial(int turn, const float (&product)[kCount], States& states) const {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = this->At(OfTurn(turn), i);
      const float scale = e.exists ? DropScale(p_, e) : 0.0f;
      states[i][0] = MulAdd(product[i], scale, states[i][0]);
    }
    this->StoreLast(OfTurn(turn), p_.args.ds0, states);
  }
  // After the last step.
  HASTE_DEVICE void End(int) const {}

  HASTE_DEVICE void NextStep() { this->at_ += this->reverse_ ? p_.K * p_.H : -p_.K * p_.H; }

 protected:
  static HASTE_DEVICE Shift OfTurn(int turn) { return {turn * kRows, 0}; }
  // In the row tile.
  static constexpr int kColumns = kRows / 8;
  static HASTE_DEVICE int Row() { return threadIdx.x / 32 % kColumns * 8 + threadIdx.x % 4 * 2; }

  // What WalkBackward reads of the reserve.
  struct Kept {
    float kept[Cell::kKept], prev[kStates];

    HASTE_DEVICE void Get(float (&keeps)[Cell::kKept], float (&before)[kStates]) const {
      HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) keeps[i] = kept[i];
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) before[s] = prev[s];
    }
  };

  HASTE_DEVICE void GetReserve(int i, Kept* reserve, T* dy) const {
    HASTE_UNROLL for (int g = 0; g < Cell::kKept; ++g) {
      reserve->kept[g] = ToCompute(this->OfPair(kept_[i / 2][g], i));
    }
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
      reserve->prev[s] = ToCompute(this->OfPair(prev_[i / 2][s], i));
    }
    *dy = this->OfPair(dy_[i / 2], i);
  }

  // Gradients of x and of the product, of all gates but those that follow from another product.
  HASTE_DEVICE void Differentiate(const float (&product)[kCount], States& states, Gates& dx,
                                  Gates& dq) const {
    StepFlags seen[kCount];
    float scale[kCount];
    Kept reserve[kCount];
    T dy[kCount];
    this->Unpack(seen_, seen, scale);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      GetReserve(i, &reserve[i], &dy[i]);
      states[i][0] = MulAdd(product[i], scale[i], states[i][0]);
    }
    WalkBackward<Cell>(p_, seen, reserve, dy, scale, states, dx, dq);
  }

  HASTE_DEVICE void StoreOperand(int turn, int64_t ended, const Gates& dq) {
    StoreGates<0, kGates, kGates>(turn, ended, to_, dq);
  }
  // Stores what a product multiplies, which has gates kFrom … kEnd - 1. kOfScale: of these, that
  // share a scale. to: where their numbers begin.
  template <int kFrom, int kEnd, int kOfScale>
  HASTE_DEVICE void StoreGates(int turn, int64_t ended, uint16_t* to, const Gates& dq) {
    constexpr int kInDepth = kOfScale < kGates ? kEnd - kFrom : kAll;
    made_at_ = this->at_;
    const int tile_size = p_.tiling.total_chunks() * Params::kTerms * (Chunks::kSlotBytes / 2);
    to += turn * tile_size + (ended & 1) * p_.operand.At(p_.K, 0, 0);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int first = kFrom; first < kEnd; first += kOfScale) {
        float up = 1.0f;
        if constexpr (kScales) {
          const RowScale scale(MostOfRow<kOfScale>(dq[2 * r] + first, dq[2 * r + 1] + first));
          up = scale.up;
          if (threadIdx.x % 32 < 4) {
            reinterpret_cast<float*>(to + ScalesAt<kInDepth>(first - kFrom))[r] = scale.down;
          }
        }
        if (!this->Exists(OfTurn(turn), 2 * r)) continue;
        HASTE_UNROLL for (int g = first; g < first + kOfScale; ++g) {
          this->PutPair(to + 8 * r + GateAt(g - kFrom), {dq[2 * r][g] * up, dq[2 * r + 1][g] * up});
        }
      }
    }
  }

  // Where this thread's numbers begin in a row tile of the operand, if a product has `kInDepth`
  // gates, padding included.
  template <int kInDepth>
  HASTE_DEVICE int OperandAt() const {
    if constexpr (kScales) {
      const int depth = DepthOfTile<kInDepth>(), chunk = depth / kDepthOfChunk;
      return chunk * (Chunks::kSlotBytes / 2) +
             StationaryOperandAt<1>(kRows, Row(), depth % kDepthOfChunk + UnitOfTile());
    } else {
      const int tile = this->unit_ / kDepthUnits;
      return StationaryOperandAt<Params::kTerms>(kRows, Row(),
                                                 tile * kInDepth * kDepthUnits + UnitOfTile());
    }
  }

  // Loads what a step reads of the reserve's gates and other tensors kFrom … kEnd - 1 (Cell::Kept),
  // of the states that entered it, and of dy unless it stops before the last gate.
  template <int kFrom, int kEnd>
  HASTE_DEVICE void LoadInputs(Shift by) {
    this->paired() ? LoadInputs<true, kFrom, kEnd>(by) : LoadInputs<false, kFrom, kEnd>(by);
  }

  // Stores gradients of gates kFrom … kEnd - 1.
  template <int kFrom, int kEnd>
  HASTE_DEVICE void WriteGates(int turn) const {
    this->paired() ? WriteGates<true, kFrom, kEnd>(OfTurn(turn))
                   : WriteGates<false, kFrom, kEnd>(OfTurn(turn));
  }

 private:
  // In the unit tile.
  static HASTE_DEVICE int Unit(const StationaryBackwardPlace& place) {
    return (place.split * (4 / kSplits) + threadIdx.x / 32 / kColumns) * 16 +
           threadIdx.x % 32 / 4 * 2;
  }

  // How far a gate's numbers are from those of gate 0: chunks have one gate, or two of an even
  // number of them.
  static constexpr HASTE_DEVICE int GateAt(int gate) {
    return AmongTerms<Params::kTerms>(gate * kDepthUnits * kRows);
  }
  // Scales: where the 16 units of this warp begin in the depth, and in 16-bit numbers from to_ on,
  // what undoes the scale of its first row.
  static constexpr int kDepthOfChunk = kStationaryChunkBytes / 2 / kRows;
  HASTE_DEVICE int UnitOfTile() const { return this->unit_ % kDepthUnits; }
  template <int kInDepth>
  HASTE_DEVICE int DepthOfTile() const {
    return (this->unit_ - UnitOfTile()) * kInDepth;
  }
  template <int kInDepth>
  HASTE_DEVICE int ScalesAt(int gate) const {
    const int in_chunk = DepthOfTile<kInDepth>() % kDepthOfChunk;
    const int scale = (in_chunk / (kScaled * kDepthUnits) + gate) * kRows + Row();
    return kStationaryChunkBytes / 2 + 2 * scale -
           StationaryOperandAt<1>(kRows, Row(), in_chunk + UnitOfTile());
  }
  // The bits of the largest of a row's gradients in this warp. Lanes of a row have its units.
  template <int kCountOfGates>
  static HASTE_DEVICE uint32_t MostOfRow(const float* first, const float* second) {
    float most = 0.0f;
    HASTE_UNROLL for (int g = 0; g < kCountOfGates; ++g) {
      most = fmaxf(most, fmaxf(fabsf(first[g]), fabsf(second[g])));
    }
    uint32_t bits = __float_as_uint(most);
    HASTE_UNROLL for (int distance = 4; distance < 32; distance *= 2) {
      bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, distance));
    }
    return bits;
  }

  // Calls visit(pair, tensor, place) for each pair that LoadInputs reads.
  template <int kFrom, int kEnd, class Visit>
  HASTE_DEVICE void EachInput(Shift by, const Visit& visit) {
    const int64_t one = this->OneAt(by), gates = this->GatesAt(by);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      if (!this->Exists(by, 2 * r)) continue;
      const int64_t at = one + r * this->row_stride_;
      const int64_t of_gates = gates + r * kGates * this->row_stride_;
      HASTE_UNROLL for (int g = kFrom; g < std::min(kEnd, kGates); ++g) {
        visit(&kept_[r][g], p_.args.gates, of_gates + g * p_.H);
      }
      HASTE_UNROLL for (int i = kGates; i < kEnd; ++i) {
        visit(&kept_[r][i], p_.args.saved[kSavedStates<Cell> + i - kGates], at);
      }
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        if (ReadsState<Cell>(s)) visit(&prev_[r][s], p_.args.saved[SavedAt<Cell>(s)], at);
      }
      if (kEnd >= kGates && p_.args.dy != nullptr) visit(&dy_[r], p_.args.dy, at);
    }
  }
  template <bool kPaired, int kFrom, int kEnd>
  HASTE_DEVICE void LoadInputs(Shift by) {
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) kept_[r][i] = 0;
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) prev_[r][s] = 0;
      dy_[r] = 0;
    }
    EachInput<kFrom, kEnd>(by, [&](Pair* pair, const void* tensor, int64_t place) {
      *pair = this->template LoadPair<kPaired>(by, tensor, place);
    });
  }

  template <bool kPaired, int kFrom, int kEnd>
  HASTE_DEVICE void WriteGates(Shift by) const {
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      if (!this->Exists(by, 2 * r)) continue;
      const int64_t gates = this->GatesAt(by, made_at_) + r * kGates * this->row_stride_;
      HASTE_UNROLL for (int g = kFrom; g < kEnd; ++g) {
        this->template StorePair<kPaired>(by, p_.args.dwx, gates + g * p_.H, dx_[r][g]);
        if constexpr (Cell::kSplitsGradient) {
          this->template StorePair<kPaired>(by, p_.args.dq, gates + g * p_.H, dq_[r][g]);
        }
      }
    }
  }

  float product_scale_;  // only for Scaled

 protected:
  uint16_t* const to_;
  uint32_t seen_;    // of the step
  int64_t made_at_;  // at_ of the step whose results are these
  // Of pairs of units, as they are stored: the reserve and dy; results.
  Pair kept_[2][Cell::kKept], prev_[2][kStates], dy_[2];
  Pair dx_[2][kGates], dq_[2][Cell::kSplitsGradient ? kGates : 1];
};

}  // namespace haste
