// Steps of `tiled`, backward, where R is stationary (stationary.cuh).
//
// The blocks of a cluster have the same 64 units and rows, and divide the depth, which is that of
// all gates' gradients. They push each other their partial sums. Each then computes the cell of
// some of the units.
//
// The depth is [unit tile, gate, 64 units of it]. Of its chunks, a block has every one whose number
// is its rank in the cluster, modulo the blocks of the cluster.
#pragma once

#include "lib/cuda/tiled/stationary.cuh"
#include "lib/cuda/tiled/stationary_elements.cuh"

namespace haste {

// The tile of a block. grid.x runs over splits, unit tiles, row tiles and lanes, splits fastest.
struct StationaryBackwardPlace {
  int split, unit_tile, row_tile;
  int64_t lane;

  HASTE_DEVICE explicit StationaryBackwardPlace(const TiledTiling& t) {
    int rest = static_cast<int>(blockIdx.x);
    split = rest % t.splits;
    rest /= t.splits;
    unit_tile = rest % t.unit_tiles;
    rest /= t.unit_tiles;
    row_tile = rest % t.row_tiles;
    lane = rest / t.row_tiles;
  }
};

// The chunks of the gates' gradients, as a loading warp sees them. Flags are [unit tile, split,
// warp]: how many steps a warp has ended.
template <int kGates, class Params>
class StationaryBackwardChunks {
 public:
  HASTE_DEVICE StationaryBackwardChunks(const Params& p, const StationaryBackwardPlace& place)
      : tiling_(p.tiling),
        split_(place.split),
        parity_stride_(p.operand.At(p.K, 0, 0)),
        operand_(p.operand.a + p.operand.At(place.lane, place.row_tile, 0)),
        flags_(FlagsOf(p, place.lane, place.row_tile)) {}

  // chunk: the first of this warp.
  HASTE_DEVICE void Begin(int, int chunk) {
    first_ = chunk;
    ready_ = 0;
  }
  // Waits until the unit tiles of a round's chunk have made their gradients. The product of `step`
  // follows the step before it, which no flag counts at first. Looks at four rounds, of each at the
  // first and the last unit tile of its chunk.
  HASTE_DEVICE void Await(int, int round, int64_t step) {
    if (round < ready_) return;
    const int lane = threadIdx.x % 32, before = round & ~3, of_lane = before + lane / 8;
    const int chunk = first_ + of_lane * tiling_.loaders(), flags = tiling_.unit_flags();
    const int tiles = kStationaryRows / tiling_.rows;  // of one gate, in a chunk
    const int last = lane % 8 * 4 < flags ? 0 : tiles - 1;
    const int tile = (Number(chunk) * tiles + last) / kGates;
    const uint32_t* from = flags_ + tile * flags + lane % 8 * 4 % flags;
    const bool exists = chunk < tiling_.chunks && tile < tiling_.unit_tiles;
    uint32_t missing;
    do {
      missing = ~__ballot_sync(0xFFFFFFFFu, !exists || HaveEnded(from, step + 1));
    } while ((missing >> round % 4 * 8 & 0xFF) != 0);
    if (lane == 0) FenceGlobalBulkCopies();  // other blocks have written the operand
    ready_ = before + (missing == 0 ? 4 : (__ffs(missing) - 1) / 8);
  }
  HASTE_DEVICE const uint16_t* At(int chunk, int64_t step) const {
    return operand_ + (step & 1) * parity_stride_ +
           int64_t{Number(chunk)} * (kStationaryChunkBytes / 2);
  }

  // Of a warp that makes a part of the gradients.
  static HASTE_DEVICE uint32_t* FlagOf(const Params& p, const StationaryBackwardPlace& place,
                                       int warp) {
    return FlagsOf(p, place.lane, place.row_tile) + place.unit_tile * p.tiling.unit_flags() +
           place.split * kStationaryWarps + warp;
  }

 private:
  // Of one of the block's chunks, among all.
  HASTE_DEVICE int Number(int chunk) const { return chunk * tiling_.splits + split_; }

  const TiledTiling& tiling_;
  const int split_;
  const int64_t parity_stride_;
  const uint16_t* const operand_;
  const uint32_t* const flags_;
  int first_, ready_;  // ready: rounds whose chunks have been made
};

// The sums of a cluster's blocks, added up. What a thread has of 16 units (a tile) and eight rows
// (a column) is a piece: a pair of units of a pair of rows, which is also what it has for the cell.
// Products are numbered from 0. Two places for sums are enough: a block pushes those of a product
// after it has received those of the one before, which others push after they have read the last.
template <int kRows, int kSplits>
class StationaryMeeting {
  static constexpr int kColumns = kRows / 8, kOwnTiles = 4 / kSplits;
  static constexpr int kPieces = kOwnTiles * kColumns;  // of a block, added up
  static_assert(kPieces == kStationaryWarps, "each warp has one");

 public:
  HASTE_DEVICE StationaryMeeting(const TiledTiling& t, const StationaryLayout& layout, int split)
      : split_(split),
        twice_(t.meetings > 1),
        between_(reinterpret_cast<float4*>(stationary_shared + layout.sums)),
        parts_(reinterpret_cast<float4*>(stationary_shared + layout.parts)),
        counters_(reinterpret_cast<TransactionBarrier*>(stationary_shared + layout.counters)) {}

  // Called by one thread, before the cluster's other threads see the counters.
  HASTE_DEVICE void Init() const {
    counters_[0].Init();
    if (twice_) counters_[1].Init();
  }

  // Adds up both halves of the warps, each of which goes on with half of the columns, and pushes
  // the sums to the blocks that have their units. own: of one half of the depth.
  HASTE_DEVICE void Push(int64_t product, const float (&own)[kRows / 2]) const {
    const int half = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
      counters_[Place(product)].ArriveAndExpect(kSplits * kPieces * kStationaryPieceBytes);
    }
    float4* between = between_ + warp * kColumns * 32 + lane;
    HASTE_UNROLL for (int n = 0; n < kColumns; ++n) {
      if (n / (kColumns / 2) == half) continue;
      between[n * 32] = make_float4(own[4 * n], own[4 * n + 1], own[4 * n + 2], own[4 * n + 3]);
    }
    NamedBarrierSyncAligned<1, kStationaryElementThreads>();
    const uint32_t owner = warp / kOwnTiles;
    const int piece = (Place(product) * kSplits + split_) * kPieces + warp % kOwnTiles * kColumns;
    const uint32_t to = AddressIn(SharedAddress(parts_ + piece * 32 + lane), owner);
    const uint32_t counter = AddressIn(SharedAddress(counters_ + Place(product)), owner);
    HASTE_UNROLL for (int n = 0; n < kColumns; ++n) {
      if (n / (kColumns / 2) != half) continue;
      const float4 other = between[n * 32];
      const uint4 bits = make_uint4(
          __float_as_uint(own[4 * n] + other.x), __float_as_uint(own[4 * n + 1] + other.y),
          __float_as_uint(own[4 * n + 2] + other.z), __float_as_uint(own[4 * n + 3] + other.w));
      haste::Push(to + n * kStationaryPieceBytes, bits, counter);
    }
  }

  HASTE_DEVICE void Await(int64_t product) const {
    counters_[Place(product)].Wait((twice_ ? product >> 1 : product) & 1);
  }
  // Of this warp's piece: element i is unit i % 2 of row i / 2. Always added up in the same order.
  HASTE_DEVICE void Get(int64_t product, float (&sums)[4]) const {
    const float4* from = parts_ + Place(product) * kSplits * kPieces * 32 + threadIdx.x;
    HASTE_UNROLL for (int split = 0; split < kSplits; ++split) {
      const float4 v = from[split * kPieces * 32];
      sums[0] += v.x;
      sums[2] += v.y;
      sums[1] += v.z;
      sums[3] += v.w;
    }
  }

 private:
  HASTE_DEVICE int Place(int64_t product) const {
    return twice_ ? static_cast<int>(product & 1) : 0;
  }

  const int split_;
  const bool twice_;  // there is room for the parts of two steps
  float4* const between_;
  float4* const parts_;  // [product, split, piece, lane]
  TransactionBarrier* const counters_;
};

// What a thread does with its elements at a step.
template <class Cell, int kRows, class Params>
class StationaryBackwardElements : StationaryElements<Cell, Params> {
  using Base = StationaryElements<Cell, Params>;
  using Base::kCount, Base::kGates, Base::kStates, Base::p_;
  using typename Base::T;
  static constexpr int kSplits = kRows / 16;  // so that each warp has one piece

 public:
  using typename Base::States;
  using Meeting = StationaryMeeting<kRows, kSplits>;

  HASTE_DEVICE StationaryBackwardElements(const Params& p, const StationaryBackwardPlace& place,
                                          int64_t first)
      : Base(p, place.lane, int64_t{place.row_tile} * kRows + Row(),
             place.unit_tile * kStationaryBackwardUnits + Unit(place), first,
             ArePaired(p, p.args.dy, p.args.dwx, p.args.dq) && ReserveIsPaired<Cell>(p)),
        to_(p.operand.a + p.operand.At(place.lane, place.row_tile, 0) +
            StationaryOperandAt(
                kRows, Row(), place.unit_tile * kGates * kStationaryBackwardUnits + Unit(place))) {}

  HASTE_DEVICE void LoadStates(States& states) const { this->LoadCarried({}, states); }

  // What is known of a step before its product. dwx may lie where the gates do: a thread reads them
  // before it writes that step's results.
  HASTE_DEVICE void Load(int64_t step) {
    seen_ = this->FlagsAt({}, step);
    this->paired() ? LoadInputs<true>() : LoadInputs<false>();
  }

  // product: of the next step's gradients with Rᵀ. Stores what the step before multiplies: parity
  // is of the steps that have ended.
  HASTE_DEVICE void Step(int64_t ended, const float (&product)[kCount], States& states) {
    StepFlags seen[kCount];
    float scale[kCount], dx[kCount][kGates], dq[kCount][kGates];
    Kept reserve[kCount];
    T dy[kCount];
    this->Unpack(seen_, seen, scale);
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int g = 0; g < Cell::kKept; ++g) {
        reserve[i].kept[g] = ToCompute(this->OfPair(kept_[i / 2][g], i));
      }
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        reserve[i].prev[s] = ToCompute(this->OfPair(prev_[i / 2][s], i));
      }
      dy[i] = this->OfPair(dy_[i / 2], i);
      states[i][0] = MulAdd(product[i], scale[i], states[i][0]);
    }
    WalkBackward<Cell>(p_, seen, reserve, dy, scale, states, dx, dq);
    uint16_t* to = to_ + (ended & 1) * p_.operand.At(p_.K, 0, 0);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        const uint32_t both = PackTwo<T>(dq[2 * r][g], dq[2 * r + 1][g]);
        if (this->Exists({}, 2 * r)) {
          *reinterpret_cast<uint32_t*>(to + 8 * r + g * kStationaryBackwardUnits * kRows) = both;
        }
        dx_[r][g] = PackTwo<T>(dx[2 * r][g], dx[2 * r + 1][g]);
        if constexpr (Cell::kSplitsGradient) dq_[r][g] = both;
      }
    }
  }

  // Stores everything else.
  HASTE_DEVICE void Write() const { this->paired() ? WriteResults<true>() : WriteResults<false>(); }

  // After the first step: the gradients of the initial states.
  HASTE_DEVICE void WriteInitial(const float (&product)[kCount], States& states) const {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = this->At({}, i);
      const float scale = e.exists ? DropScale(p_, e) : 0.0f;
      states[i][0] = MulAdd(product[i], scale, states[i][0]);
    }
    this->StoreLast({}, p_.args.ds0, states);
  }

  HASTE_DEVICE void NextStep() { this->at_ += this->reverse_ ? p_.K * p_.H : -p_.K * p_.H; }

 private:
  // What WalkBackward reads of the reserve.
  struct Kept {
    float kept[Cell::kKept], prev[kStates];

    HASTE_DEVICE void Get(float (&keeps)[Cell::kKept], float (&before)[kStates]) const {
      HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) keeps[i] = kept[i];
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) before[s] = prev[s];
    }
  };

  // In the row tile and the unit tile.
  static constexpr int kColumns = kRows / 8;
  static HASTE_DEVICE int Row() { return threadIdx.x / 32 % kColumns * 8 + threadIdx.x % 4 * 2; }
  static HASTE_DEVICE int Unit(const StationaryBackwardPlace& place) {
    return (place.split * (4 / kSplits) + threadIdx.x / 32 / kColumns) * 16 +
           threadIdx.x % 32 / 4 * 2;
  }

  template <bool kPaired>
  HASTE_DEVICE void LoadInputs() {
    const int64_t one = this->OneAt({}), gates = this->GatesAt({});
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      uint32_t (&kept)[Cell::kKept] = kept_[r], (&prev)[kStates] = prev_[r];
      HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) kept[i] = 0;
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) prev[s] = 0;
      dy_[r] = 0;
      if (!this->Exists({}, 2 * r)) continue;
      const int64_t at = one + r * this->row_stride_;
      const int64_t of_gates = gates + r * kGates * this->row_stride_;
      const auto load = [&](const void* tensor, int64_t place) {
        return this->template LoadPair<kPaired>({}, tensor, place);
      };
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        kept[g] = load(p_.args.gates, of_gates + g * p_.H);
      }
      HASTE_UNROLL for (int i = kGates; i < Cell::kKept; ++i) {
        kept[i] = load(p_.args.saved[kSavedStates<Cell> + i - kGates], at);
      }
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        if (ReadsState<Cell>(s)) prev[s] = load(p_.args.saved[SavedAt<Cell>(s)], at);
      }
      if (p_.args.dy != nullptr) dy_[r] = load(p_.args.dy, at);
    }
  }

  template <bool kPaired>
  HASTE_DEVICE void WriteResults() const {
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      if (!this->Exists({}, 2 * r)) continue;
      const int64_t gates = this->GatesAt({}) + r * kGates * this->row_stride_;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        this->template StorePair<kPaired>({}, p_.args.dwx, gates + g * p_.H, dx_[r][g]);
        if constexpr (Cell::kSplitsGradient) {
          this->template StorePair<kPaired>({}, p_.args.dq, gates + g * p_.H, dq_[r][g]);
        }
      }
    }
  }

  uint16_t* const to_;
  uint32_t seen_;  // of the step
  // Of pairs of units, as they are stored: the reserve and dy; results.
  uint32_t kept_[2][Cell::kKept], prev_[2][kStates], dy_[2];
  uint32_t dx_[2][kGates], dq_[2][Cell::kSplitsGradient ? kGates : 1];
};

// What the warps that multiply do. first: the walk's first step.
template <class Cell, int kRows, class Params>
HASTE_DEVICE void WalkStationaryBackward(const Params& p, const StationaryBackwardPlace& place,
                                         const StationaryLayout& layout, const Pipeline& pipeline,
                                         int64_t first, int64_t count) {
  using T = typename Params::Storage;
  using Elements = StationaryBackwardElements<Cell, kRows, Params>;
  const int half = UniformOfWarp(threadIdx.x / 128);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned char* kept = stationary_shared + layout.kept;
  StationaryProduct<T, kRows, false> product(p.tiling, pipeline, stationary_shared + layout.slots,
                                             kept, half);
  const int64_t block =
      (place.lane * p.tiling.unit_tiles + place.unit_tile) * p.tiling.splits + place.split;
  product.Keep(p.kernel + block * p.tiling.chunks * (p.tiling.kernel_chunk_bytes() / 16), kept,
               half);
  const typename Elements::Meeting meeting(p.tiling, layout, place.split);
  Elements elements(p, place, first);
  typename Elements::States states;
  elements.LoadStates(states);
  uint32_t* flag = StationaryBackwardChunks<Cell::kGates, Params>::FlagOf(p, place, warp);
  NamedBarrierSyncAligned<1, kStationaryElementThreads>();  // the part of R in shared memory
  for (int64_t ended = 0; ended < count; ++ended, elements.NextStep()) {
    const int64_t step = first - ended;
    if (step >= 0) elements.Load(step);
    float sums[4] = {};
    if (ended > 0) {
      float own_sums[kRows / 2];
      product.Multiply(own_sums);
      meeting.Push(ended - 1, own_sums);
      meeting.Await(ended - 1);
      meeting.Get(ended - 1, sums);
    }
    if (step < 0) return elements.WriteInitial(sums, states);
    elements.Step(ended, sums, states);
    __syncwarp();
    if (lane == 0) SetEnded(flag, ended + 1);
    // Other warps would wait for what is stored before they set their flags. And all have read
    // what the halves exchanged.
    NamedBarrierSyncAligned<1, kStationaryElementThreads>();
    elements.Write();
  }
}

// All steps of the walk.
template <class Cell, int kRows, class Params>
__global__ void __launch_bounds__(kStationaryThreads, 1)
    StationaryBackwardSteps(const __grid_constant__ Params p, int64_t first, int64_t count) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // the plan never selects this kernel for other GPUs
#else
  using Elements = StationaryBackwardElements<Cell, kRows, Params>;
  using Chunks = StationaryBackwardChunks<Cell::kGates, Params>;
  const StationaryBackwardPlace place(p.tiling);
  const StationaryLayout layout(p.tiling);
  auto* counters = reinterpret_cast<StationaryCounters*>(stationary_shared);
  const Pipeline pipeline(counters->full, counters->empty);
  if (threadIdx.x == 0) {
    InitStationary(p.tiling, pipeline);
    typename Elements::Meeting(p.tiling, layout, place.split).Init();
  }
  __syncthreads();
  ClusterSync();
  if (threadIdx.x >= kStationaryElementThreads) {
    DeallocateRegisters<24>();
    LoadStationary(p.tiling, Chunks(p, place), pipeline, stationary_shared + layout.slots, 1,
                   count - 1);
  } else {
    AllocateRegisters<240>();
    WalkStationaryBackward<Cell, kRows>(p, place, layout, pipeline, first, count);
  }
  ClusterSync();  // others may still signal this block
#endif
}

}  // namespace haste
