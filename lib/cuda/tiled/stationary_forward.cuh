// Steps of `tiled`, forward, where R is stationary (stationary.cuh).
//
// A block has 16 hidden units with all their gates and 64 rows, or takes turns with several tiles
// of 64 rows. Blocks of a cluster share h: each loads some of the chunks into all of them.
#pragma once

#include "lib/cuda/tiled/stationary_elements.cuh"
#include "lib/cuda/tiled/stationary_product.cuh"

namespace haste {

// The tiles of a block. grid.x runs over unit tiles, groups of row tiles and lanes, unit tiles
// fastest.
struct StationaryPlace : StationaryRows {
  int unit_tile;

  HASTE_DEVICE explicit StationaryPlace(const TiledTiling& t)
      : StationaryRows(t, static_cast<int>(blockIdx.x) / t.unit_tiles),
        unit_tile(static_cast<int>(blockIdx.x) % t.unit_tiles) {}
};

// The chunks of h, as a loading warp sees them. Flags are [unit tile]: how many steps, or
// products, it has ended.
template <class Params>
class StationaryForwardChunks : public StationaryChunks<Params> {
 public:
  static constexpr int kSlotBytes = kStationaryChunkBytes, kTerms = Params::kTerms;
  static constexpr bool kDividesR = false;

  HASTE_DEVICE StationaryForwardChunks(const Params& p, const StationaryPlace& place)
      : StationaryChunks<Params>(p, place.lane, place.row_tile,
                                 place.unit_tile * kStationaryFlagStride) {}

  // Whether a block has made its part of the operand of a step's product.
  HASTE_DEVICE bool IsMade(int turn, int chunk, int part, int step) const {
    const int tile = chunk * kStationaryMakers + part;
    return tile >= this->p_.tiling.unit_tiles ||
           HasEnded(this->Flag(turn, tile * kStationaryFlagStride), step);
  }
  // Of one of the block's chunks, among all.
  HASTE_DEVICE int Number(int chunk) const { return chunk; }
};

// What a thread does with its elements at a step.
template <class Cell, class Params>
class StationaryForwardElements : protected StationaryElements<Cell, Params> {
  using Base = StationaryElements<Cell, Params>;
  static constexpr int kRows = kStationaryRows;
  static constexpr int kBiases = Cell::kRecurrentBias ? Cell::kGates : 0;

 protected:
  using Base::kCount, Base::kGates, Base::kStates, Base::p_;
  using typename Base::T, typename Base::Pair, typename Base::Shift;
  using Products = float[kCount][kGates];

 public:
  using typename Base::States;
  static constexpr int kProducts = 1;  // of a step
  static constexpr int kRegisterDepth =
      Cell::kExponential ? kExponentialRegisterDepth : kStationaryRegisterDepth;

  HASTE_DEVICE StationaryForwardElements(const Params& p, const StationaryPlace& place)
      : Base(p, place.lane, int64_t{place.row_tile} * kRows + Row(),
             place.unit_tile * kStationaryUnits + Unit(), 0,
             ArePaired(p, p.args.wx, p.args.y) && (!p.args.keep || ReserveIsPaired<Cell>(p))),
        row_(Row()),
        to_(p.operand.a + p.operand.At(place.lane, place.row_tile, 0) +
            StationaryOperandAt<Params::kTerms>(kRows, row_, this->unit_)) {
    if constexpr (kScaledTerms<T> > 0) scales_ = ScalesOf(p);
    HASTE_UNROLL for (int g = 0; g < kBiases; ++g) {
      bias_[g] = this->OfUnits(static_cast<const T*>(p.args.extra[kRecurrentBiasAt<Cell>]) +
                               (place.lane * kGates + g) * p.H);
    }
  }

  HASTE_DEVICE void LoadStates(int turn, States& states) const {
    this->LoadCarried(OfTurn(turn), states);
  }

  // What is known of a step before its product.
  HASTE_DEVICE void Load(int turn, int64_t step) {
    const auto by = OfTurn(turn);
    seen_ = this->FlagsAt(by, step);
    LoadGates<0, kGates>(by);
  }

  // sums: of both halves of the depth. Stores what the next step multiplies.
  HASTE_DEVICE void Step(int turn, int64_t step, const float* sums, States& states) {
    StepWith(
        turn, step, states,
        [&](Products& q) {
          ReadSums(sums, q);
          AddBias(q);
        },
        DoNothing());
  }

  // Stores the states, after the last step.
  HASTE_DEVICE void WriteStates(int turn, int64_t step, const States& states) const {
    const bool last = static_cast<int>(step) == static_cast<int>(p_.T_) - 1;
    if (last) this->StoreLast(OfTurn(turn), p_.args.sT, states);
  }
  // Stores everything else of the last step.
  HASTE_DEVICE void Write(int turn) const {
    WriteEach(turn, [this](int r, const auto& put) {
      PutOutput(r, put);
      if (!p_.args.keep) return;
      PutGates<0, kGates>(r, put);
      PutSaved(r, put);
    });
  }

  HASTE_DEVICE void NextStep() { this->at_ += this->reverse_ ? -p_.K * p_.H : p_.K * p_.H; }

 protected:
  static HASTE_DEVICE Shift OfTurn(int turn) { return {turn * kRows, 0}; }
  // A warp has eight rows of all the block's units.
  static HASTE_DEVICE int Row() { return threadIdx.x / 32 * 8 + threadIdx.x % 4 * 2; }

  HASTE_DEVICE void ReadSums(const float* sums, Products& q) const {
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      HASTE_UNROLL for (int m = 0; m < 2; ++m) {
        const auto of_rows = LoadFragment<2>(
            sums + (16 * g + 8 * m + threadIdx.x % 32 / 4) * kStationarySumStride + row_);
        HASTE_UNROLL for (int r = 0; r < 2; ++r) {
          q[2 * r + m][g] = of_rows.v[r];
          if constexpr (kScaledTerms<T> > 0) q[2 * r + m][g] *= scales_.product;
        }
      }
    }
  }

  HASTE_DEVICE void AddBias(Products& q) const {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g < kBiases; ++g) {
        q[i][g] += ToCompute(this->OfPair(bias_[g], i));
      }
    }
  }

  // get, finish: of cell/element.cuh.
  template <class Get, class Finish>
  HASTE_DEVICE void StepWith(int turn, int64_t step, States& states, const Get& get,
                             const Finish& finish) {
    float kept[kCount][Cell::kKept];
    StepFrom(turn, step, states, kept, get, finish);
  }
  // kept: of Elements::Forward.
  template <class Get, class Finish>
  HASTE_DEVICE void StepFrom(int turn, int64_t step, States& states,
                             float (&kept)[kCount][Cell::kKept], const Get& get,
                             const Finish& finish) {
    T stored[kCount][kGates];
    StepFlags seen[kCount];
    float scale[kCount], before[kCount][kStates], next[kCount][kStates], y[kCount];
    this->Unpack(seen_, seen, scale);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) stored[i][g] = this->OfPair(x_[i / 2][g], i);
    }
    WalkForward<Cell, T, kCount>(p_, seen, stored, scale, states, get, before, kept, next, y,
                                 finish);
    StoreOperand(turn, step, [&](int i) { return next[i][0] * scale[i]; });
    Keep(before, kept);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) y_[r] = StoreTwo<T>(y[2 * r], y[2 * r + 1]);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) states[i][s] = next[i][s];
    }
  }

  // wx of gates kFrom … kEnd - 1.
  template <int kFrom, int kEnd>
  HASTE_DEVICE void LoadGates(Shift by) {
    this->paired() ? LoadGates<true, kFrom, kEnd>(by) : LoadGates<false, kFrom, kEnd>(by);
  }

  // Stores what is multiplied after this step, or product. number(i): of element i.
  template <class Number>
  HASTE_DEVICE void StoreOperand(int turn, int64_t step, const Number& number) {
    made_at_ = this->at_;
    const int tile_size = p_.tiling.loads() * kStationaryNumbers;
    uint16_t* to = to_ + turn * tile_size + ((step + 1) & 1) * p_.operand.At(p_.K, 0, 0);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      const int i = 2 * r;
      // The second unit may be one after the last: it is 0 as its R, wx and states are.
      if (!this->Exists(OfTurn(turn), i)) continue;
      float of[2] = {number(i), number(i + 1)};
      if constexpr (kScaledTerms<T> > 0) {
        HASTE_UNROLL for (float& h : of) h *= scales_.state;
      }
      this->PutPair(to + 8 * r, of);
    }
  }
  // For Write.
  HASTE_DEVICE void Keep(const float (&before)[kCount][kStates],
                         const float (&kept)[kCount][Cell::kKept]) {
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      const int i = 2 * r;
      HASTE_UNROLL for (int g = 0; g < Cell::kKept; ++g) {
        kept_[r][g] = StoreTwo<T>(kept[i][g], kept[i + 1][g]);
      }
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        before_[r][s] = StoreTwo<T>(before[i][s], before[i + 1][s]);
      }
    }
  }

  // Calls write(r, put) for each row. put.One(tensor, both) stores a pair at the step of these
  // results, put.Gate(tensor, g, both) that of a gate.
  template <class Write>
  HASTE_DEVICE void WriteEach(int turn, const Write& write) const {
    const auto by = OfTurn(turn);
    this->paired() ? WriteEach<true>(by, write) : WriteEach<false>(by, write);
  }
  template <class Put>
  HASTE_DEVICE void PutOutput(int r, const Put& put) const {
    put.One(p_.args.y, y_[r]);
  }
  template <int kFrom, int kEnd, class Put>
  HASTE_DEVICE void PutGates(int r, const Put& put) const {
    HASTE_UNROLL for (int g = kFrom; g < kEnd; ++g) put.Gate(p_.args.gates, g, kept_[r][g]);
  }
  template <class Put>
  HASTE_DEVICE void PutSaved(int r, const Put& put) const {
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
      if (ReadsState<Cell>(s)) put.One(p_.args.saved[SavedAt<Cell>(s)], before_[r][s]);
    }
    HASTE_UNROLL for (int g = kGates; g < Cell::kKept; ++g) {
      put.One(p_.args.saved[kSavedStates<Cell> + g - kGates], kept_[r][g]);
    }
  }

 private:
  static HASTE_DEVICE int Unit() { return threadIdx.x % 32 / 4 * 2; }

  template <bool kPaired, int kFrom, int kEnd>
  HASTE_DEVICE void LoadGates(Shift by) {
    const int64_t gates = this->GatesAt(by);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int g = kFrom; g < kEnd; ++g) x_[r][g] = 0;
      if (!this->Exists(by, 2 * r)) continue;
      const int64_t at = gates + r * kGates * this->row_stride_;
      HASTE_UNROLL for (int g = kFrom; g < kEnd; ++g) {
        x_[r][g] = this->template LoadPair<kPaired>(by, p_.args.wx, at + g * p_.H);
      }
    }
  }

  // Where a row's results are.
  template <bool kPaired>
  struct RowPut {
    const StationaryForwardElements& of;
    Shift by;
    int64_t one, gates;

    HASTE_DEVICE void One(void* tensor, Pair both) const {
      of.template StorePair<kPaired>(by, tensor, one, both);
    }
    HASTE_DEVICE void Gate(void* tensor, int gate, Pair both) const {
      of.template StorePair<kPaired>(by, tensor, gates + gate * of.p_.H, both);
    }
  };
  template <bool kPaired, class Write>
  HASTE_DEVICE void WriteEach(Shift by, const Write& write) const {
    const int64_t one = this->OneAt(by, made_at_), gates = this->GatesAt(by, made_at_);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      if (!this->Exists(by, 2 * r)) continue;
      const int64_t row = r * this->row_stride_;
      write(r, RowPut<kPaired>{*this, by, one + row, gates + kGates * row});
    }
  }

  const int row_;
  uint16_t* const to_;

 protected:
  uint32_t seen_;    // of the step
  int64_t made_at_;  // at_ of the step whose results are these
  // Of pairs of units, as they are stored: wx, and results.
  Pair x_[2][kGates], before_[2][kStates], kept_[2][Cell::kKept], y_[2];

 private:
  Pair bias_[kBiases > 0 ? kBiases : 1];  // of h·R
  ProductScales scales_;                  // only for Scaled
};

// Calls visit(place, number) for pairs of sums of a half of the rows: where they are in `sums`, and
// which of a thread's they are.
template <class Visit>
HASTE_DEVICE void EachPairOfRows(int half, float* sums, const Visit& visit) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  float* first = sums + (warp * 16 + lane / 4) * kStationarySumStride + lane % 4 * 2;
  HASTE_UNROLL for (int n = 4 * half; n < 4 * half + 4; ++n) {
    HASTE_UNROLL for (int u = 0; u < 2; ++u) {
      visit(first + 8 * u * kStationarySumStride + 8 * n, 4 * n + 2 * u);
    }
  }
}

// A half of the warps goes on with a half of the rows. Gives the other half its sums.
template <int kHalf>
HASTE_DEVICE void HandOver(const float (&own)[32], float* sums) {
  EachPairOfRows(1 - kHalf, sums,
                 [&](float* to, int i) { StoreFragment<2>(to, {own[i], own[i + 1]}); });
}

// After that of both halves: adds up the sums of the whole depth, which threads of this half then
// read in another order.
template <int kHalf>
HASTE_DEVICE void AddUp(const float (&own)[32], float* sums) {
  EachPairOfRows(kHalf, sums, [&](float* at, int i) {
    const auto other = LoadFragment<2>(at);
    StoreFragment<2>(at, {own[i] + other.v[0], own[i + 1] + other.v[1]});
  });
  NamedBarrierSyncAligned<2 + kHalf, kStationaryElementThreads / 2>();
}

// What the warps that multiply do. steps: or products, where a step has two.
template <class Elements, int kTurns, class Params>
HASTE_DEVICE void WalkStationary(const Params& p, const StationaryPlace& place,
                                 const StationaryBlock<kTurns>& block, int64_t steps) {
  using T = typename Params::Storage;
  const int half = UniformOfWarp(threadIdx.x / 128);
  unsigned char* kept = stationary_shared + block.layout.kept;
  float* sums = reinterpret_cast<float*>(stationary_shared + block.layout.sums);
  StationarySignal<kTurns> signal = block.signal;
  StationaryProduct<T, kStationaryRows, Elements::kRegisterDepth, true, 0, Params::kTerms> product(
      p.tiling, block.pipeline, block.slots(), kept, half);
  const int64_t number = place.lane * p.tiling.unit_tiles + place.unit_tile;
  product.Keep(p.kernel + number * p.tiling.chunks * (p.tiling.kernel_chunk_bytes() / 16), kept,
               half);
  Elements elements(p, place);
  StationaryTurns<kTurns, typename Elements::States> states;
  HASTE_UNROLL for (int i = 0; i < kTurns; ++i) {
    if (i < place.turns) elements.LoadStates(i, states.of[i]);
  }
  NamedBarrierSyncAligned<1, kStationaryElementThreads>();  // the part of R in shared memory
  for (int64_t step = 0; step < steps; ++step, elements.NextStep()) {
#pragma unroll 1
    for (int turn = 0; turn < place.turns; ++turn, states.Next(place.turns)) {
      elements.Load(turn, step);
      float own_sums[32];
      product.Multiply(own_sums);
      if (step + turn > 0) {
        signal.AwaitLast();  // all have read the last sums
        // In turns, results are stored after the flag: its fence would wait for them.
        if constexpr (kTurns > 1) elements.Write(turn > 0 ? 0 : place.turns - 1);
      }
      half == 0 ? HandOver<0>(own_sums, sums) : HandOver<1>(own_sums, sums);
      // One place in the code for both halves: all threads of an aligned barrier run the same.
      NamedBarrierSyncAligned<1, kStationaryElementThreads>();
      half == 0 ? AddUp<0>(own_sums, sums) : AddUp<1>(own_sums, sums);
      elements.Step(turn, step, sums, states.of[0]);
      signal.Stored();
      elements.WriteStates(turn, step, states.of[0]);
      if constexpr (kTurns == 1) elements.Write(turn);
    }
  }
  if constexpr (kTurns > 1) elements.Write(place.turns - 1);
}

// All steps of the walk. Elements: what a thread does with its elements, StationaryForwardElements
// or what has the same functions. kTurns: row tiles of a block, at most.
template <class Elements, int kTurns, class Params>
__global__ void __launch_bounds__(kStationaryThreads, 1)
    StationarySteps(const __grid_constant__ Params p, int64_t steps) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // the plan never selects this kernel for other GPUs
#else
  using Chunks = StationaryForwardChunks<Params>;
  const StationaryPlace place(p.tiling);
  const StationaryBlock<kTurns> block(p.tiling);
  if (threadIdx.x == 0) block.Init(p.tiling);
  __syncthreads();
  if (p.tiling.sharers > 1) ClusterSync();
  const int64_t products = steps * Elements::kProducts;
  if (threadIdx.x >= kStationaryElementThreads) {
    DeallocateRegisters<24>();
    ServeStationary(p.tiling, Chunks(p, place), block.pipeline, block.slots(), block.signal,
                    place.turns, 0, static_cast<int>(products), static_cast<int>(products));
  } else {
    AllocateRegisters<240>();
    WalkStationary<Elements>(p, place, block, products);
  }
  if (p.tiling.sharers > 1) ClusterSync();  // others may still signal this block
#endif
}

}  // namespace haste
