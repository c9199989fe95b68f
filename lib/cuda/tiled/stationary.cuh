// Steps of `tiled`, forward, in the form in which R stays on the chip: in registers, as the first
// operand of wgmma, and what they do not hold in shared memory (StationaryTiling).
//
// A block has 16 hidden units with all their gates and 64 rows, or takes turns with several tiles
// of 64 rows. Two groups of four warps multiply a half of the depth each, by chunks of h that other
// warps load, and then compute the cell: their threads keep the states. Blocks of a cluster share
// h: each loads some of the chunks into all of them.
//
// A warp that has stored its part of the next h sets a flag. A chunk is loaded once the flags of
// its 64 units are set, so nothing waits for a whole step.
#pragma once

#include "lib/cuda/cell/element.cuh"
#include "lib/cuda/cell/phase_forward.cuh"
#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"
#include "lib/cuda/ptx/pipeline.cuh"
#include "lib/cuda/ptx/step_flags.cuh"
#include "lib/cuda/tiled/params.cuh"

namespace haste {

extern __shared__ __align__(16) unsigned char stationary_shared[];

// In shared memory.
struct StationaryCounters {
  TransactionBarrier full[kMaxStationarySlots], empty[kMaxStationarySlots];
};
static_assert(sizeof(StationaryCounters) <= kStationaryCounterBytes, "the layout's room");

// The tiles of a block. grid.x runs over unit tiles, groups of row tiles and lanes, unit tiles
// fastest.
struct StationaryPlace {
  int unit_tile;
  int64_t lane;
  int row_tile, turns;  // the first of this block; how many it has

  HASTE_DEVICE explicit StationaryPlace(const TiledTiling& t) {
    int rest = static_cast<int>(blockIdx.x);
    unit_tile = rest % t.unit_tiles;
    rest /= t.unit_tiles;
    const int groups = t.row_groups();
    row_tile = rest % groups * t.turns;
    lane = rest / groups;
    turns = min(static_cast<int>(t.turns), t.row_tiles - row_tile);
  }
};

// The flags of a row tile: of each unit tile, of each warp, how many steps it has ended.
template <class Params>
HASTE_DEVICE uint32_t* FlagsOf(const Params& p, int64_t lane, int row_tile) {
  return p.arrived +
         (lane * p.tiling.row_tiles + row_tile) * p.tiling.unit_tiles * kStationaryWarps;
}

// Called by each of the warps that load. They take turns, and so do the blocks of a cluster: all
// uses of a slot belong to one of them.
template <class Params>
HASTE_DEVICE void LoadChunks(const Params& p, const StationaryPlace& place,
                             const Pipeline& pipeline, unsigned char* slots, int64_t steps) {
  const TiledTiling& t = p.tiling;
  const int loader = static_cast<int>(threadIdx.x) / 32 - kStationaryWarps;
  const int lane = threadIdx.x % 32, stride = t.sharers * StationaryLoaders(t.sharers);
  if (loader >= StationaryLoaders(t.sharers)) return;
  const uint16_t all = static_cast<uint16_t>((1 << t.sharers) - 1);
  int slot = static_cast<int>(blockIdx.x) % t.sharers + t.sharers * loader;
  int chunk = slot, turn = 0;
  uint32_t lap = 1;  // parity of the use before, of which the first has none
  for (int64_t step = 0; step < steps;) {
    const int row_tile = place.row_tile + turn;
    const int tile = chunk * 4 + lane / kStationaryWarps;  // whose flag this lane looks at
    const uint32_t* flag =
        FlagsOf(p, place.lane, row_tile) + tile * kStationaryWarps + lane % kStationaryWarps;
    pipeline.AwaitFree(slot, lap);
    while (!__all_sync(0xFFFFFFFFu, tile >= t.unit_tiles || HasEnded(flag, step))) {
    }
    if (lane == 0) {
      FenceGlobalBulkCopies();  // other blocks have written the operand
      const uint16_t* from =
          p.operand.a + p.operand.At((step & 1) * p.K + place.lane, row_tile, chunk);
      unsigned char* to = slots + slot * kStationaryChunkBytes;
      if (t.sharers == 1) {
        pipeline.Copy(slot, to, from, kStationaryChunkBytes);
      } else {
        pipeline.CopyTo(all, slot, to, from, kStationaryChunkBytes);
      }
    }
    __syncwarp();
    slot += stride;
    if (slot >= t.slots) {
      slot -= t.slots;
      lap ^= 1;
    }
    chunk += stride;
    if (chunk < t.chunks) continue;
    chunk -= t.chunks;
    if (++turn < place.turns) continue;
    turn = 0;
    ++step;
  }
}

// The product of a tile's step: of a group of four warps, over its half of the depth.
template <class T>
class StationaryProduct {
  static constexpr int kKept = kStationaryRegisterChunks;

 public:
  HASTE_DEVICE StationaryProduct(const TiledTiling& t, const Pipeline& pipeline,
                                 unsigned char* slots, unsigned char* kept, int half)
      : pipeline_(pipeline),
        slots_(SharedAddress(slots)),
        kept_(SharedAddress(kept) + half * (t.chunks - t.kept) / 2 * kStationaryChunkBytes),
        chunks_(t.chunks / 2),
        slot_count_(t.slots),
        sharers_(t.sharers),
        slot_(half) {}

  // from: R, packed, of this block and half (PackStationary).
  HASTE_DEVICE void Keep(const uint4* from, unsigned char* kept) {
    HASTE_UNROLL for (int c = 0; c < kKept; ++c) {
      HASTE_UNROLL for (int k = 0; k < 4; ++k) {
        const uint4 v = c < chunks_ ? from[(c * 4 + k) * 128 + threadIdx.x % 128] : uint4{};
        a_[c][k][0] = v.x;
        a_[c][k][1] = v.y;
        a_[c][k][2] = v.z;
        a_[c][k][3] = v.w;
      }
    }
    constexpr int kPieces = kStationaryChunkBytes / 16;
    for (int i = threadIdx.x % 128; i < (chunks_ - kKept) * kPieces; i += 128) {
      reinterpret_cast<uint4*>(kept)[i] = from[kKept * kPieces + i];
    }
    FenceSharedBulkCopies();
  }

  // sums: 64 gates of units × 64 rows, as WarpgroupMma has them.
  HASTE_DEVICE void Multiply(float (&sums)[32]) {
    int last = 0;
    HASTE_UNROLL for (int c = 0; c < kKept; ++c) {
      if (c < chunks_) {
        Chunk(c, &last, [&](int k, uint64_t b) {
          WarpgroupMmaKept<MmaOperand<T>>(sums, a_[c][k], b, c + k > 0);
        });
      }
    }
    uint32_t a = kept_;
    for (int c = kKept; c < chunks_; ++c, a += kStationaryChunkBytes) {
      Chunk(c, &last, [&](int k, uint64_t b) {
        WarpgroupMma<MmaOperand<T>, 64>(sums, Matrices(a + k * 256), b);
      });
    }
    WaitWarpgroupMma<0>();
    Free(last);
  }

 private:
  static HASTE_DEVICE uint64_t Matrices(uint32_t at) { return CoreMatricesAt<64>(at); }

  template <class Issue>
  HASTE_DEVICE void Chunk(int c, int* last, const Issue& issue) {
    pipeline_.Wait(slot_, lap_);
    if (threadIdx.x % 128 == 0) pipeline_.Expect(slot_, kStationaryChunkBytes);  // the next use
    const uint32_t b = slots_ + slot_ * kStationaryChunkBytes;
    BeginWarpgroupMma();
    HASTE_UNROLL for (int k = 0; k < 4; ++k) issue(k, Matrices(b + k * 256));
    CommitWarpgroupMma();
    if (c > 0) {
      WaitWarpgroupMma<1>();
      Free(*last);
    }
    *last = slot_;
    slot_ += 2;
    if (slot_ >= slot_count_) {
      slot_ -= slot_count_;
      lap_ ^= 1;
    }
  }
  // Tells all blocks of the cluster that this warp has read a slot.
  HASTE_DEVICE void Free(int slot) const {
    __syncwarp();
    if (threadIdx.x % 32 < sharers_) pipeline_.FreeIn(threadIdx.x % 32, slot);
  }

  const Pipeline pipeline_;
  const uint32_t slots_, kept_;
  const int chunks_, slot_count_;
  const uint32_t sharers_;
  int slot_;
  uint32_t lap_ = 0;
  uint32_t a_[kKept][4][4];
};

// The elements of a thread: a pair of units of a pair of rows.
template <class Cell, class Params>
class StationaryElements {
  using T = typename Params::Storage;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates, kCount = 4;

 public:
  using States = float[kCount][kStates];

  HASTE_DEVICE StationaryElements(const Params& p, const StationaryPlace& place)
      : p_(p),
        lane_(place.lane),
        reverse_(p.reverse[place.lane] != 0),
        paired_(Paired(p)),
        row_(threadIdx.x / 32 * 8 + threadIdx.x % 4 * 2),
        unit_(place.unit_tile * 16 + threadIdx.x % 32 / 4 * 2) {}

  HASTE_DEVICE void LoadStates(int row_tile, States& states) const {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(row_tile, i);
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        states[i][s] = e.exists ? p_.carried[s][e.at] : 0.0f;
      }
    }
  }

  // What is known of a step before its product.
  HASTE_DEVICE void Load(int row_tile, int64_t step) {
    seen_ = 0;
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(row_tile, i);
      const StepFlags flags = ReadStepFlags<Cell>(p_, e, reverse_, static_cast<int>(step));
      uint32_t bits = flags.drawn << kDrawn;
      bits |= flags.live ? kLive : 0;
      bits |= flags.repeats ? kRepeats : 0;
      if (p_.dropout_rate != 0.0f && e.exists && DropScale(p_, e) == 0.0f) bits |= kDropped;
      seen_ |= bits << kBitsOfElement * i;
    }
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      const Element e = At(row_tile, 2 * r);
      const T* wx = static_cast<const T*>(p_.args.wx) + PlaceOf(e, step).gates;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        x_[r][g] = 0;
        if (e.exists) x_[r][g] = LoadPair(wx + g * p_.H);
      }
    }
  }

  // sums: of both halves of the depth. Stores what the next step multiplies.
  HASTE_DEVICE void Step(int row_tile, int64_t step, const float* sums, States& states) {
    HASTE_UNROLL for (int r = 0; r < 2; ++r) StepOfRow(row_tile, step, sums, r, states);
  }

  // Stores everything else.
  HASTE_DEVICE void Write(int row_tile, int64_t step, const States& states) const {
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      const Element e = At(row_tile, 2 * r);
      if (!e.exists) continue;
      const StepPlace place = PlaceOf(e, step);
      StorePair(p_.args.y, place.one, y_[r]);
      if (!p_.args.keep) continue;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        StorePair(p_.args.gates, place.gates + g * p_.H, kept_[r][g]);
      }
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        if (ReadsState<Cell>(s))
          StorePair(p_.args.saved[SavedAt<Cell>(s)], place.one, before_[r][s]);
      }
      HASTE_UNROLL for (int g = kGates; g < Cell::kKept; ++g) {
        StorePair(p_.args.saved[kSavedStates<Cell> + g - kGates], place.one, kept_[r][g]);
      }
    }
    if (static_cast<int>(step) != static_cast<int>(p_.T_) - 1) return;
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(row_tile, i);
      if (e.exists) StoreStates<T>(p_.args.sT, e.at, states[i]);
    }
  }

 private:
  // Of what is known of an element's step.
  static constexpr int kBitsOfElement = 8, kDrawn = 3;
  static constexpr uint32_t kLive = 1, kRepeats = 2, kDropped = 4;
  static_assert(kDrawn + kStates <= kBitsOfElement && kCount * kBitsOfElement <= 32, "");

  // The pair of units of one of the rows.
  HASTE_DEVICE void StepOfRow(int row_tile, int64_t step, const float* sums, int r,
                              States& states) {
    T stored[2][kGates];
    int units[2];
    StepFlags seen[2];
    float scale[2], prev[2][kStates], before[2][kStates], kept[2][Cell::kKept], next[2][kStates],
        y[2];
    HASTE_UNROLL for (int m = 0; m < 2; ++m) {
      const uint32_t bits = seen_ >> kBitsOfElement * (2 * r + m);
      seen[m].live = (bits & kLive) != 0;
      seen[m].repeats = (bits & kRepeats) != 0;
      seen[m].drawn = bits >> kDrawn & ((1u << kStates) - 1);
      scale[m] = 1.0f;
      if (p_.dropout_rate != 0.0f)
        scale[m] = bits & kDropped ? 0.0f : 1.0f / (1.0f - p_.dropout_rate);
      units[m] = unit_ + m;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        stored[m][g] = T{static_cast<uint16_t>(x_[r][g] >> 16 * m)};
      }
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) prev[m][s] = states[2 * r + m][s];
    }
    WalkForward<Cell>(
        p_, seen, lane_, units, stored, scale, prev,
        [&](float (&q)[2][kGates]) {
          HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
            HASTE_UNROLL for (int m = 0; m < 2; ++m) {
              const float* from =
                  sums + (16 * g + 8 * m + threadIdx.x % 32 / 4) * kStationarySumStride + row_ + r;
              q[m][g] = *from;
            }
          }
        },
        before, kept, next, y);
    HASTE_UNROLL for (int m = 0; m < 2; ++m) {
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) states[2 * r + m][s] = next[m][s];
    }
    const Element e = At(row_tile, 2 * r);
    if (e.exists) {
      uint16_t* to = p_.operand.Of(((step + 1) & 1) * p_.K + e.k, e) +
                     TiledOperandAt<T, 1>(p_.operand.RowOf(e), 0) +
                     TiledDepthAt<T, 1>(p_.operand, static_cast<uint32_t>(e.j));
      // The second unit may be one after the last: it is 0 as its R, wx and states are.
      *reinterpret_cast<uint32_t*>(to) = PackTwo<T>(next[0][0] * scale[0], next[1][0] * scale[1]);
    }
    y_[r] = PackTwo<T>(y[0], y[1]);
    HASTE_UNROLL for (int g = 0; g < Cell::kKept; ++g) kept_[r][g] =
        PackTwo<T>(kept[0][g], kept[1][g]);
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
      before_[r][s] = PackTwo<T>(before[0][s], before[1][s]);
    }
  }

  // Whether pairs of units are whole words of all tensors.
  static HASTE_DEVICE bool Paired(const Params& p) {
    uintptr_t bits = static_cast<uintptr_t>(p.H) * 2 | reinterpret_cast<uintptr_t>(p.args.wx) |
                     reinterpret_cast<uintptr_t>(p.args.y);
    if (p.args.keep) {
      bits |= reinterpret_cast<uintptr_t>(p.args.gates);
      HASTE_UNROLL for (int i = 0; i < kSavedStates<Cell> + Cell::kKept - kGates; ++i) {
        bits |= reinterpret_cast<uintptr_t>(p.args.saved[i]);
      }
    }
    return bits % 4 == 0;
  }
  HASTE_DEVICE Element At(int row_tile, int i) const {
    const int64_t n = int64_t{row_tile} * 64 + row_ + i / 2, j = unit_ + i % 2;
    return Element(p_, n, lane_, j, n < p_.N && j < p_.H);
  }
  HASTE_DEVICE StepPlace PlaceOf(const Element& e, int64_t step) const {
    return StepPlace((e.n * p_.T_ + TimeOf(p_, reverse_, step)) * p_.K + e.k, kGates, p_.H, e.j);
  }
  HASTE_DEVICE uint32_t LoadPair(const T* from) const {
    uint32_t both;
    if (paired_) {
      // Not to be delayed until after the product.
      asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(both) : "l"(from));
      return both;
    }
    both = from[0].bits;
    if (unit_ + 1 < p_.H) both |= static_cast<uint32_t>(from[1].bits) << 16;
    return both;
  }
  HASTE_DEVICE void StorePair(void* tensor, int64_t at, uint32_t both) const {
    T* to = static_cast<T*>(tensor) + at;
    if (paired_) {
      *reinterpret_cast<uint32_t*>(to) = both;
      return;
    }
    to[0] = T{static_cast<uint16_t>(both)};
    if (unit_ + 1 < p_.H) to[1] = T{static_cast<uint16_t>(both >> 16)};
  }

  const Params& p_;
  const int64_t lane_;
  const bool reverse_, paired_;
  const int row_, unit_;
  uint32_t seen_;  // of the step
  // Of pairs of units, as they are stored: wx, and results.
  uint32_t x_[2][kGates], before_[2][kStates], kept_[2][Cell::kKept], y_[2];
};

// Adds up the sums of both halves of the depth. A half of the warps goes on with a half of the
// rows, and reads here what its threads have in another order.
HASTE_DEVICE void AddUp(const float (&own)[32], float* sums, int half) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  float* first = sums + (warp * 16 + lane / 4) * kStationarySumStride + lane % 4 * 2;
  const auto each = [&](int of_half, const auto& visit) {
    HASTE_UNROLL for (int n = 0; n < 4; ++n) {
      HASTE_UNROLL for (int u = 0; u < 2; ++u) {
        // Registers have constant indices.
        const int low = 4 * n + 2 * u, high = low + 16;
        visit(first + 8 * u * kStationarySumStride + 8 * (4 * of_half + n),
              of_half == 0 ? own[low] : own[high], of_half == 0 ? own[low + 1] : own[high + 1]);
      }
    }
  };
  each(1 - half, [](float* to, float one, float two) { StoreFragment<2>(to, {one, two}); });
  NamedBarrierSyncAligned<1, kStationaryElementThreads>();
  each(half, [](float* at, float one, float two) {
    const auto other = LoadFragment<2>(at);
    StoreFragment<2>(at, {one + other.v[0], two + other.v[1]});
  });
  NamedBarrierSync<128>(2 + half);
}

// What the warps that multiply do.
template <class Cell, int kTurns, class Params>
HASTE_DEVICE void WalkStationary(const Params& p, const StationaryPlace& place,
                                 const StationaryLayout& layout, const Pipeline& pipeline,
                                 int64_t steps) {
  using T = typename Params::Storage;
  const int half = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned char* kept = stationary_shared + layout.kept;
  float* sums = reinterpret_cast<float*>(stationary_shared + layout.sums);
  StationaryProduct<T> product(p.tiling, pipeline, stationary_shared + layout.slots, kept, half);
  constexpr int kPieces = kStationaryChunkBytes / 16;
  const int64_t own = p.tiling.chunks / 2;
  product.Keep(
      p.kernel + ((place.lane * p.tiling.unit_tiles + place.unit_tile) * 2 + half) * own * kPieces,
      kept + half * (p.tiling.chunks - p.tiling.kept) / 2 * kStationaryChunkBytes);
  StationaryElements<Cell, Params> elements(p, place);
  typename StationaryElements<Cell, Params>::States states[kTurns];
  HASTE_UNROLL for (int i = 0; i < kTurns; ++i) {
    if (i < place.turns) elements.LoadStates(place.row_tile + i, states[i]);
  }
  NamedBarrierSyncAligned<1, kStationaryElementThreads>();  // the part of R in shared memory
  for (int64_t step = 0; step < steps; ++step) {
#pragma unroll 1
    for (int turn = 0; turn < place.turns; ++turn) {
      const int row_tile = place.row_tile + turn;
      elements.Load(row_tile, step);
      float own_sums[32];
      product.Multiply(own_sums);
      AddUp(own_sums, sums, half);
      elements.Step(row_tile, step, sums, states[0]);
      __syncwarp();
      if (lane == 0) {
        SetEnded(FlagsOf(p, place.lane, row_tile) + place.unit_tile * kStationaryWarps + warp,
                 step + 1);
      }
      // Other warps would wait for what is stored before they set their flags. And all have read
      // the sums.
      NamedBarrierSyncAligned<1, kStationaryElementThreads>();
      elements.Write(row_tile, step, states[0]);
      if constexpr (kTurns > 1) {
        if (place.turns > 1) {
          HASTE_UNROLL for (int i = 0; i < 4; ++i) {
            HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
              const float first = states[0][i][s];
              HASTE_UNROLL for (int k = 1; k < kTurns; ++k) states[k - 1][i][s] = states[k][i][s];
              states[kTurns - 1][i][s] = first;
            }
          }
        }
      }
    }
  }
}

// All steps of the walk. kTurns: row tiles of a block, at most.
template <class Cell, int kTurns, class Params>
__global__ void __launch_bounds__(kStationaryThreads, 1)
    StationarySteps(const __grid_constant__ Params p, int64_t steps) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // the plan never selects this kernel for other GPUs
#else
  static_assert(kTurns <= 2, "turns are rotated");
  const StationaryPlace place(p.tiling);
  const StationaryLayout layout(p.tiling);
  auto* counters = reinterpret_cast<StationaryCounters*>(stationary_shared);
  const Pipeline pipeline(counters->full, counters->empty);
  if (threadIdx.x == 0) {
    pipeline.Init(p.tiling.slots, kStationaryWarps / 2 * p.tiling.sharers);
    for (int slot = 0; slot < p.tiling.slots; ++slot) pipeline.Expect(slot, kStationaryChunkBytes);
  }
  __syncthreads();
  if (p.tiling.sharers > 1) ClusterSync();
  if (threadIdx.x >= kStationaryElementThreads) {
    DeallocateRegisters<24>();
    LoadChunks(p, place, pipeline, stationary_shared + layout.slots, steps);
  } else {
    AllocateRegisters<240>();
    WalkStationary<Cell, kTurns>(p, place, layout, pipeline, steps);
  }
  if (p.tiling.sharers > 1) ClusterSync();  // others may still signal this block
#endif
}

}  // namespace haste
