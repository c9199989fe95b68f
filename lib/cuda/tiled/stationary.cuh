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

#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"
#include "lib/cuda/ptx/pipeline.cuh"
#include "lib/cuda/ptx/step_flags.cuh"
#include "lib/cuda/tiled/stationary_elements.cuh"

namespace haste {

extern __shared__ __align__(16) unsigned char stationary_shared[];

// The flags of a row tile: [loading warp of the cluster, its chunk, unit tile of the chunk, warp],
// how many steps a warp has ended.
template <class Params>
HASTE_DEVICE uint32_t* FlagsOf(const Params& p, int64_t lane, int row_tile) {
  return p.arrived + (lane * p.tiling.row_tiles + row_tile) * p.tiling.flags();
}

// In shared memory.
struct StationaryCounters {
  TransactionBarrier full[kMaxStationarySlots], empty[kMaxStationarySlots];
};
static_assert(sizeof(StationaryCounters) <= kStationaryCounterBytes, "the layout's room");

// Called by each of the warps that load. They take turns, and so do the blocks of a cluster: all
// uses of a slot belong to one of them.
template <class Params>
class ChunkLoader {
 public:
  HASTE_DEVICE ChunkLoader(const Params& p, const StationaryPlace& place, const Pipeline& pipeline,
                           unsigned char* slots)
      : p_(p), place_(place), pipeline_(pipeline), slots_(slots), lane_(threadIdx.x % 32) {}

  HASTE_DEVICE void Walk(int64_t steps) {
    const TiledTiling& t = p_.tiling;
    const int loader = static_cast<int>(threadIdx.x) / 32 - kStationaryWarps;
    if (loader >= StationaryLoaders(t.sharers)) return;
    const int stride = t.loaders(), tile_size = t.chunks * kChunk;
    const int first = static_cast<int>(blockIdx.x) % t.sharers + t.sharers * loader;
    const int64_t parity_stride = p_.operand.At(p_.K, 0, 0);
    const uint16_t* operand = p_.operand.a + p_.operand.At(place_.lane, place_.row_tile, 0);
    const uint32_t* flags = FlagsOf(p_, place_.lane, place_.row_tile);
    int slot = first, chunk = first;
    uint32_t lap = 1;  // parity of the use before, of which the first has none
    for (int64_t step = 0; step < steps; ++step) {
      for (int turn = 0; turn < place_.turns; ++turn) {
        const uint16_t* of_tile = operand + (step & 1) * parity_stride + turn * tile_size;
        const uint32_t* of_chunks = flags + turn * t.flags() + chunk * t.flag_rounds() * kFlags;
        int ready = 0;  // rounds whose chunks have been made
        const int residue = chunk;
        for (int round = 0; chunk < t.chunks; ++round, chunk += stride) {
          if (round >= ready) ready = AwaitRound(of_chunks, residue, round, step);
          pipeline_.AwaitFree(slot, lap);
          if (lane_ == 0) Load(slot, of_tile + chunk * kChunk);
          __syncwarp();
          slot += stride;
          if (slot >= t.slots) {
            slot -= t.slots;
            lap ^= 1;
          }
        }
        chunk -= t.chunks;
      }
    }
  }

 private:
  static constexpr int kChunk = kStationaryChunkBytes / 2, kFlags = kStationaryChunkFlags;

  // Waits until the chunk of a round has been made. Looks at four rounds, and returns the first
  // that has not. residue: the chunk of round 0.
  HASTE_DEVICE int AwaitRound(const uint32_t* flags, int residue, int round, int64_t step) const {
    static_assert(kFlags == 32, "eight lanes look at a round's flags");
    const TiledTiling& t = p_.tiling;
    const int before = round & ~3, of_lane = before + lane_ / 8;
    const int tile = (residue + of_lane * t.loaders()) * 4 + lane_ % 8 / 2;
    const uint32_t* from = flags + of_lane * kFlags + lane_ % 8 * 4;
    uint32_t missing;
    do {
      missing = ~__ballot_sync(0xFFFFFFFFu, tile >= t.unit_tiles || HaveEnded(from, step));
    } while ((missing >> round % 4 * 8 & 0xFF) != 0);
    if (lane_ == 0) FenceGlobalBulkCopies();  // other blocks have written the operand
    return before + (missing == 0 ? 4 : (__ffs(missing) - 1) / 8);
  }
  HASTE_DEVICE void Load(int slot, const uint16_t* from) const {
    unsigned char* to = slots_ + slot * kStationaryChunkBytes;
    const int sharers = p_.tiling.sharers;
    if (sharers == 1) {
      pipeline_.Copy(slot, to, from, kStationaryChunkBytes);
    } else {
      const uint16_t all = static_cast<uint16_t>((1 << sharers) - 1);
      pipeline_.CopyTo(all, slot, to, from, kStationaryChunkBytes);
    }
  }

  const Params& p_;
  const StationaryPlace& place_;
  const Pipeline& pipeline_;
  unsigned char* const slots_;
  const int lane_;
};

// The product of a tile's step: of a group of four warps, over its half of the depth.
template <class T>
class StationaryProduct {
  static constexpr int kKept = kStationaryRegisterChunks;
  static constexpr int kStep = 32 * kStationaryRows;  // bytes of 16 of the depth

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
        WarpgroupMma<MmaOperand<T>, 64>(sums, Matrices(a + k * kStep), b);
      });
    }
    WaitWarpgroupMma<0>();
    Free(last);
  }

 private:
  static HASTE_DEVICE uint64_t Matrices(uint32_t at) {
    return CoreMatricesAt<16 * kStationaryRows, 128>(at);
  }

  template <class Issue>
  HASTE_DEVICE void Chunk(int c, int* last, const Issue& issue) {
    pipeline_.Wait(slot_, lap_);
    if (threadIdx.x % 128 == 0) pipeline_.Expect(slot_, kStationaryChunkBytes);  // the next use
    const uint32_t b = slots_ + slot_ * kStationaryChunkBytes;
    BeginWarpgroupMma();
    HASTE_UNROLL for (int k = 0; k < 4; ++k) issue(k, Matrices(b + k * kStep));
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

// Adds up the sums of both halves of the depth. A half of the warps goes on with a half of the
// rows, and reads here what its threads have in another order.
template <int kHalf>
HASTE_DEVICE void AddUp(const float (&own)[32], float* sums) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  float* first = sums + (warp * 16 + lane / 4) * kStationarySumStride + lane % 4 * 2;
  // Calls visit(place, number) for pairs of sums of a half's rows.
  const auto each = [&](int half, const auto& visit) {
    HASTE_UNROLL for (int n = 4 * half; n < 4 * half + 4; ++n) {
      HASTE_UNROLL for (int u = 0; u < 2; ++u) {
        visit(first + 8 * u * kStationarySumStride + 8 * n, 4 * n + 2 * u);
      }
    }
  };
  each(1 - kHalf, [&](float* to, int i) { StoreFragment<2>(to, {own[i], own[i + 1]}); });
  NamedBarrierSyncAligned<1, kStationaryElementThreads>();
  each(kHalf, [&](float* at, int i) {
    const auto other = LoadFragment<2>(at);
    StoreFragment<2>(at, {own[i] + other.v[0], own[i + 1] + other.v[1]});
  });
  NamedBarrierSyncAligned<2 + kHalf, kStationaryElementThreads / 2>();
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
    if (i < place.turns) elements.LoadStates(i, states[i]);
  }
  const int chunk = place.unit_tile / 4, loaders = p.tiling.loaders();
  uint32_t* flag =
      FlagsOf(p, place.lane, place.row_tile) +
      (chunk % loaders * p.tiling.flag_rounds() + chunk / loaders) * kStationaryChunkFlags +
      place.unit_tile % 4 * kStationaryWarps + warp;
  NamedBarrierSyncAligned<1, kStationaryElementThreads>();  // the part of R in shared memory
  for (int64_t step = 0; step < steps; ++step, elements.NextStep()) {
#pragma unroll 1
    for (int turn = 0; turn < place.turns; ++turn) {
      elements.Load(turn, step);
      float own_sums[32];
      product.Multiply(own_sums);
      if (half == 0) {
        AddUp<0>(own_sums, sums);
      } else {
        AddUp<1>(own_sums, sums);
      }
      elements.Step(turn, step, sums, states[0]);
      __syncwarp();
      if (lane == 0) SetEnded(flag + turn * p.tiling.flags(), step + 1);
      // Other warps would wait for what is stored before they set their flags. And all have read
      // the sums.
      NamedBarrierSyncAligned<1, kStationaryElementThreads>();
      elements.Write(turn, step, states[0]);
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
    ChunkLoader<Params>(p, place, pipeline, stationary_shared + layout.slots).Walk(steps);
  } else {
    AllocateRegisters<240>();
    WalkStationary<Cell, kTurns>(p, place, layout, pipeline, steps);
  }
  if (p.tiling.sharers > 1) ClusterSync();  // others may still signal this block
#endif
}

}  // namespace haste
