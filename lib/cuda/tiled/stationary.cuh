// The main loop of `tiled` in the form in which R stays on the chip: in registers, as the first
// operand of wgmma, and what they do not hold in shared memory (StationaryLayout).
//
// Two groups of four warps multiply a half of a block's depth each, by chunks of the operand that
// other warps load, and then compute the cell: their threads keep the states.
//
// When a block's warps have stored their parts of the next operand, another warp sets the block's
// flag. A chunk is loaded once the flags of what is in it are set, so nothing waits for a whole
// step. A block may take turns with two tiles of rows: while it multiplies one, the flag of the
// other is set.
#pragma once

#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"
#include "lib/cuda/ptx/pipeline.cuh"
#include "lib/cuda/ptx/step_flags.cuh"
#include "lib/cuda/tiled/params.cuh"

namespace haste {

extern __shared__ __align__(128) unsigned char stationary_shared[];

// The rows of a block. group: of row tiles, in all lanes.
struct StationaryRows {
  int64_t lane;
  int row_tile, turns;  // the first of this block; how many it has

  HASTE_DEVICE StationaryRows(const TiledTiling& t, int group) {
    const int groups = t.row_groups();
    row_tile = group % groups * t.turns;
    lane = group / groups;
    turns = min(static_cast<int>(t.turns), t.row_tiles - row_tile);
  }
};

// In shared memory.
struct StationaryCounters {
  TransactionBarrier full[kMaxStationarySlots], empty[kMaxStationarySlots];
  TransactionBarrier stored, flagged;  // of turns
};
static_assert(sizeof(StationaryCounters) <= kStationaryCounterBytes, "the layout's room");

// Called by one thread, before the other threads of the cluster see the barriers.
HASTE_DEVICE void InitStationary(const TiledTiling& t, const Pipeline& pipeline) {
  pipeline.Init(t.slots, kStationaryWarps / 2 * t.sharers);
  for (int slot = 0; slot < t.slots; ++slot) pipeline.Expect(slot, t.slot_bytes());
}

// How the warps that compute the cell tell others, turn by turn, what they have stored. kTurns: row
// tiles of a block, at most.
template <int kTurns>
class StationarySignal {
 public:
  HASTE_DEVICE explicit StationarySignal(StationaryCounters* counters) : counters_(counters) {}

  // Called by one thread, before the other threads of the block see the barriers.
  HASTE_DEVICE void Init() const {
    counters_->stored.Init(kTurns == 1 ? kStationaryWarps : kStationaryElementThreads);
    counters_->flagged.Init();
  }

  // Called by each of these warps when it has stored its part of a turn's operand.
  HASTE_DEVICE void Stored() {
    __syncwarp();
    if (kTurns > 1 || threadIdx.x % 32 == 0) counters_->stored.Arrive();
    // The fence before the flag would wait for what is stored from here on.
    if constexpr (kTurns == 1) AwaitFlagged();
  }
  // Called between two calls of Stored, after the product. After it, all have made the first call.
  HASTE_DEVICE void AwaitLast() {
    if constexpr (kTurns > 1) AwaitFlagged();
  }

  // Called by one warp for each turn. flag: of the block's row tile.
  HASTE_DEVICE void SetFlag(uint32_t* flag, int64_t steps) {
    counters_->stored.Wait(parity_);
    parity_ ^= 1;
    if (threadIdx.x % 32 == 0) {
      SetEnded(flag, steps);
      counters_->flagged.Arrive();
    }
    __syncwarp();
  }

 private:
  HASTE_DEVICE void AwaitFlagged() {
    // The flag tells of the same, but racecheck follows neither a third warp, nor a lane that
    // arrives for its warp. Each way is the one that takes no longer here.
    if constexpr (kTurns == 1) {
      NamedBarrierSyncAligned<1, kStationaryElementThreads>();
    } else {
      counters_->stored.Wait(parity_);
    }
    counters_->flagged.Wait(parity_);
    parity_ ^= 1;
  }

  StationaryCounters* const counters_;
  uint32_t parity_ = 0;
};

// Of the chunks that a warp has still to load in a turn, how many have been made.
class StationaryReady {
  static constexpr int kRounds = 32 / kStationaryMakers;  // that are looked at together

 public:
  // Called for one chunk after the other: waits until it has been made. A lane looks at a block
  // that makes a part of this one, or of one of the next: made(round, part), with rounds counted
  // from here.
  template <class Made>
  HASTE_DEVICE void Await(const Made& made) {
    if (ready_ > 0) {
      --ready_;
      return;
    }
    constexpr uint32_t kAll = (1u << kStationaryMakers) - 1;
    const int lane = threadIdx.x % 32;
    bool is_made = false;  // a lane that has seen it does not look again
    uint32_t missing;
    do {
      if (!is_made) is_made = made(lane / kStationaryMakers, lane % kStationaryMakers);
      missing = ~__ballot_sync(0xFFFFFFFFu, is_made);
    } while ((missing & kAll) != 0);
    __syncwarp();
    if (lane == 0) FenceGlobalBulkCopies();  // other blocks have written the operand
    ready_ = (missing == 0 ? kRounds : (__ffs(missing) - 1) / kStationaryMakers) - 1;
  }

 private:
  int ready_ = 0;  // after this one
};

// Where chunks of the operand are, and flags. Places have 32 bits: warps that load have few
// registers. own_flag: of the block, among those of a row tile.
template <class Params>
class StationaryChunks {
 public:
  // A place of a turn of a step: that of its first chunk, among all of the operand's.
  HASTE_DEVICE int First(int turn, int step) const {
    const int parity = (step & 1) * static_cast<int>(p_.K) * p_.operand.row_tiles;
    return (parity + tile_ + turn) * p_.operand.chunks;
  }
  HASTE_DEVICE const void* At(int place, int bytes) const {
    return reinterpret_cast<const unsigned char*>(p_.operand.a) + int64_t{place} * bytes;
  }
  HASTE_DEVICE uint32_t* OwnFlag(int turn) const { return Flag(turn, own_flag_); }

 protected:
  HASTE_DEVICE StationaryChunks(const Params& p, int64_t lane, int row_tile, int own_flag)
      : p_(p), tile_(static_cast<int>(lane) * p.tiling.row_tiles + row_tile), own_flag_(own_flag) {}

  HASTE_DEVICE uint32_t* Flag(int turn, int flag) const {
    return p_.arrived + ((tile_ + turn) * p_.tiling.flags() + flag);
  }

  const Params& p_;

 private:
  const int tile_, own_flag_;
};

// One of the warps that load. They take turns, and so do the blocks that share the operand: all
// uses of a slot belong to one of them. chunks: of a direction, where they are and when they have
// been made (StationaryForwardChunks, StationaryBackwardChunks); kSlotBytes, kTerms: bytes and
// split terms of one. Each half of the warps multiplies every other chunk of R, by one term after
// the other.
//
// These warps have 24 registers. What would not fit goes to local memory, which is slow here: each
// look at a flag invalidates the first-level cache. So places have 32 bits (StationaryChunks), and
// what follows from `warp`, the same in all lanes (UniformOfWarp), is in uniform registers.
template <class Chunks>
class StationaryLoader {
 public:
  HASTE_DEVICE StationaryLoader(const TiledTiling& t, const Chunks& chunks,
                                const Pipeline& pipeline, unsigned char* slots, int warp)
      : tiling_(t),
        chunks_(chunks),
        pipeline_(pipeline),
        slots_(slots),
        chunk_(static_cast<int>(blockIdx.x) % t.sharers + t.sharers * warp),
        slot_(chunk_) {}

  // What a turn of a step multiplies.
  HASTE_DEVICE void Load(int turn, int step) {
    const int stride = tiling_.loaders();
    const int operand = chunks_.First(turn, step);
    StationaryReady ready;
    for (; chunk_ < tiling_.loads(); chunk_ += stride) {
      ready.Await([&](int round, int part) {
        const int chunk = chunk_ + round * stride;
        return chunk >= tiling_.loads() || chunks_.IsMade(turn, ChunkOf(chunk), part, step);
      });
      pipeline_.AwaitFree(slot_, lap_);
      if (threadIdx.x % 32 == 0) {
        constexpr int kBytes = Chunks::kSlotBytes;
        unsigned char* to = slots_ + slot_ * kBytes;
        const int term = chunk_ / 2 % Chunks::kTerms;
        const int number = chunks_.Number(ChunkOf(chunk_)) * Chunks::kTerms + term;
        const void* from = chunks_.At(operand + number, kBytes);
        if (tiling_.sharers == 1) {
          pipeline_.Copy(slot_, to, from, kBytes);
        } else {
          const uint16_t all = static_cast<uint16_t>((1 << tiling_.sharers) - 1);
          pipeline_.CopyTo(all, slot_, to, from, kBytes);
        }
      }
      __syncwarp();
      slot_ += stride;
      if (slot_ >= tiling_.slots) {
        slot_ -= tiling_.slots;
        lap_ ^= 1;
      }
    }
    chunk_ -= tiling_.loads();
  }

 private:
  // Of R, that is multiplied by what is loaded as number `load`.
  static HASTE_DEVICE int ChunkOf(int load) {
    return Chunks::kTerms == 1 ? load : load / (2 * Chunks::kTerms) * 2 + load % 2;
  }

  const TiledTiling& tiling_;
  const Chunks& chunks_;
  const Pipeline pipeline_;
  unsigned char* const slots_;
  int chunk_, slot_;
  uint32_t lap_ = 1;  // parity of the use before, of which the first has none
};

// What the other warps do: load, and set flags. steps: of which the first `alone` multiply nothing.
// stored: how many store an operand.
template <int kTurns, class Chunks>
HASTE_DEVICE void ServeStationary(const TiledTiling& t, const Chunks& chunks,
                                  const Pipeline& pipeline, unsigned char* slots,
                                  StationarySignal<kTurns> signal, int turns, int alone, int steps,
                                  int stored) {
  const int warp = UniformOfWarp(static_cast<int>(threadIdx.x) / 32) - kStationaryWarps;
  const bool loads = warp < t.loading;
  const bool sets_flags = warp == kStationaryServiceWarps - 1;
  if (!loads && !sets_flags) return;
  StationaryLoader<Chunks> loader(t, chunks, pipeline, slots, warp);
  for (int step = 0; step < steps; ++step) {
    for (int turn = 0; turn < turns; ++turn) {
      if (loads && step >= alone) loader.Load(turn, step - alone);
      if (sets_flags && step < stored) signal.SetFlag(chunks.OwnFlag(turn), step + 1);
    }
  }
}

// A block's product of a step: of a group of four warps, over its half of the chunks.
// kRegisterDepth: of R in registers. kShares: blocks of the cluster share the operand. kScaled:
// steps of 16 of the depth in which a row of the operand has one scale, or 0 without scales.
// kTerms: split terms of the operand.
template <class T, int kRows, int kRegisterDepth, bool kShares, int kScaled = 0, int kTerms = 1>
class StationaryProduct {
  using Sums = float[kRows / 2];  // 64 × kRows of the block, as WarpgroupMma has them
  // Of a chunk: its depth, in steps of 16; bytes in shared memory; bytes of R.
  static constexpr int kSteps = kStationaryChunkBytes / (32 * kRows);
  static constexpr int kSlotBytes = SlotBytesOfGates(kScaled);
  static constexpr int kKernelBytes = kStationarySums * 32 * kSteps;
  static constexpr int kKept = kRegisterDepth / (16 * kSteps);
  static constexpr int kUnit = 16;  // bytes: of addresses in descriptors
  static_assert(kRegisterDepth % (16 * kSteps) == 0, "whole chunks");

 public:
  HASTE_DEVICE StationaryProduct(const TiledTiling& t, const Pipeline& pipeline,
                                 unsigned char* slots, unsigned char* kept, int half)
      : pipeline_(pipeline),
        slots_(SharedAddress(slots)),
        kept_(SharedAddress(kept) + half * (t.chunks - t.kept) / 2 * kKernelBytes),
        chunks_(t.chunks / 2),
        slot_count_(t.slots),
        sharers_(t.sharers),
        slot_(half) {}

  // from: R, packed, of this block (PackStationary). kept: the region in shared memory.
  HASTE_DEVICE void Keep(const uint4* from, unsigned char* kept, int half) {
    constexpr int kPieces = kKernelBytes / 16;
    from += static_cast<int64_t>(half) * chunks_ * kPieces;
    // 0, unknown to the compiler: results of this operation need no scoreboard. A register that may
    // still be loaded makes each wgmma wait for what else has its scoreboard, which is a step's
    // inputs.
    const uint32_t zero = static_cast<uint32_t>(chunks_) >> 31;
    HASTE_UNROLL for (int c = 0; c < kKept; ++c) {
      HASTE_UNROLL for (int k = 0; k < kSteps; ++k) {
        const uint4 v = c < chunks_ ? from[(c * kSteps + k) * 128 + threadIdx.x % 128] : uint4{};
        a_[c][k][0] = v.x ^ zero;
        a_[c][k][1] = v.y ^ zero;
        a_[c][k][2] = v.z ^ zero;
        a_[c][k][3] = v.w ^ zero;
      }
    }
    const int others = max(chunks_ - kKept, 0);
    uint4* to = reinterpret_cast<uint4*>(kept + half * others * kKernelBytes);
    for (int i = threadIdx.x % 128; i < others * kPieces; i += 128) {
      to[i] = from[kKept * kPieces + i];
    }
    FenceSharedBulkCopies();
  }

  HASTE_DEVICE void Multiply(Sums& sums) {
    int last = 0;
    if constexpr (kScaled > 0) {
      HASTE_UNROLL for (float& sum : sums) sum = 0.0f;
    }
    HASTE_UNROLL for (int c = 0; c < kKept; ++c) {
      if (c < chunks_) {
        HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
          Chunk(c + s == 0, &last, sums, [&](Sums& to, int k, uint64_t b, bool adds) {
            WarpgroupMmaKept<MmaOperand<T>, kRows>(to, a_[c][k], b, adds);
          });
        }
      }
    }
    uint64_t a = Matrices<kStationarySums>(kept_);
    for (int c = kKept; c < chunks_; ++c, a += kKernelBytes / kUnit) {
      HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
        Chunk(false, &last, sums, [&](Sums& to, int k, uint64_t b, bool adds) {
          const uint64_t of_kernel = a + k * (32 * kStationarySums / kUnit);
          WarpgroupMma<MmaOperand<T>, kRows>(to, of_kernel, b, adds);
        });
      }
    }
    if constexpr (kScaled == 0) {
      WaitWarpgroupMma<0>();
      Free(last);
    }
  }

 private:
  // Chunks have all rows of 8 of the depth, then those of the next.
  template <int kOfRows>
  static HASTE_DEVICE uint64_t Matrices(uint32_t at) {
    return CoreMatricesAt<16 * kOfRows, 128>(at);
  }

  // issue(to, k, b, adds): a step. begins: the first chunk.
  template <class Issue>
  HASTE_DEVICE void Chunk(bool begins, int* last, Sums& sums, const Issue& issue) {
    pipeline_.Wait(slot_, lap_);
    if (threadIdx.x % 128 == 0) pipeline_.Expect(slot_, kSlotBytes);  // the next use
    const uint32_t slot = slots_ + slot_ * kSlotBytes;
    const uint64_t b = Matrices<kRows>(slot);
    if constexpr (kScaled > 0) {
      const float* down = reinterpret_cast<const float*>(
          stationary_shared + (slot - SharedAddress(stationary_shared)) + kStationaryChunkBytes);
      HASTE_UNROLL for (int s = 0; s < kSteps / kScaled; ++s) {
        AddScaled(s, b, down, sums, issue);
      }
      FenceSharedBulkCopies();  // to come: ordinary loads have read the scales
      Free(slot_);
    } else {
      BeginWarpgroupMma();
      HASTE_UNROLL for (int k = 0; k < kSteps; ++k) {
        issue(sums, k, b + k * (32 * kRows / kUnit), !begins || k > 0);
      }
      CommitWarpgroupMma();
      if (!begins) {
        WaitWarpgroupMma<1>();
        Free(*last);
      }
    }
    *last = slot_;
    slot_ += 2;
    if (slot_ >= slot_count_) {
      slot_ -= slot_count_;
      lap_ ^= 1;
    }
  }
  // Adds the products of a chunk whose rows have scale s. The other half of the warps keeps the
  // tensor cores busy meanwhile. down: of each scale and row what undoes it.
  template <class Issue>
  static HASTE_DEVICE void AddScaled(int s, uint64_t b, const float* down, Sums& sums,
                                     const Issue& issue) {
    Sums scaled;
    BeginWarpgroupMma();
    HASTE_UNROLL for (int k = s * kScaled; k < (s + 1) * kScaled; ++k) {
      issue(scaled, k, b + k * (32 * kRows / kUnit), k > s * kScaled);
    }
    CommitWarpgroupMma();
    WaitWarpgroupMma<0>();
    HASTE_UNROLL for (int n = 0; n < kRows / 8; ++n) {
      const auto of_pair = LoadFragment<2>(down + s * kRows + n * 8 + threadIdx.x % 4 * 2);
      HASTE_UNROLL for (int i = 0; i < 4; ++i) {
        float& product = scaled[4 * n + i];
        asm volatile("" : "+f"(product));  // keeps reads after the wait
        sums[4 * n + i] = fmaf(product, of_pair.v[i % 2], sums[4 * n + i]);
      }
    }
  }
  // Tells the block that fills a slot, its own and those of its cluster, that this warp has read
  // it.
  HASTE_DEVICE void Free(int slot) const {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    if constexpr (kShares) {
      // StationaryLoader: blocks take turns in the slots. sharers_ is a power of two.
      pipeline_.FreeIn(slot & (sharers_ - 1), slot);
    } else {
      pipeline_.Free(slot);
    }
  }

  const Pipeline pipeline_;
  const uint32_t slots_, kept_;
  const int chunks_, slot_count_;
  const uint32_t sharers_;
  int slot_;
  uint32_t lap_ = 0;
  uint32_t a_[kKept][kSteps][4];
};

}  // namespace haste
