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

// What the kernels of both directions begin with.
template <int kTurns>
struct StationaryBlock {
  StationaryLayout layout;
  StationaryCounters* counters;
  Pipeline pipeline;
  StationarySignal<kTurns> signal;

  HASTE_DEVICE explicit StationaryBlock(const TiledTiling& t)
      : layout(t),
        counters(reinterpret_cast<StationaryCounters*>(stationary_shared)),
        pipeline(counters->full, counters->empty),
        signal(counters) {}

  HASTE_DEVICE unsigned char* slots() const { return stationary_shared + layout.slots; }

  // Called by one thread, before the other threads of the cluster see the barriers.
  HASTE_DEVICE void Init(const TiledTiling& t) const {
    InitStationary(t, pipeline);
    signal.Init();
  }
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
// split terms of one; kDividesR: each of a step's two products has chunks of its own. Each half of
// the warps multiplies every other chunk of R, by one term after the other.
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

  // What a turn of a product multiplies. step: of the walk, or which of its products this is.
  HASTE_DEVICE void Load(int turn, int step) {
    const int stride = tiling_.loaders();
    const int operand = chunks_.First(turn, step);
    const int first = FirstChunk(step);
    StationaryReady ready;
    for (; chunk_ < Loads(step); chunk_ += stride) {
      ready.Await([&](int round, int part) {
        const int chunk = chunk_ + round * stride;
        return chunk >= Loads(step) || chunks_.IsMade(turn, first + ChunkOf(chunk), part, step);
      });
      pipeline_.AwaitFree(slot_, lap_);
      if (threadIdx.x % 32 == 0) {
        constexpr int kBytes = Chunks::kSlotBytes;
        unsigned char* to = slots_ + slot_ * kBytes;
        const int term = chunk_ / 2 % Chunks::kTerms;
        const int number = chunks_.Number(first + ChunkOf(chunk_)) * Chunks::kTerms + term;
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
    chunk_ -= Loads(step);
  }

 private:
  // Of a product: its first chunk of R, and how much it loads.
  HASTE_DEVICE int FirstChunk(int step) const {
    return Chunks::kDividesR && step % 2 != 0 ? tiling_.first_chunks : 0;
  }
  HASTE_DEVICE int Loads(int step) const {
    if constexpr (!Chunks::kDividesR) return tiling_.loads();
    const int of_first = tiling_.first_chunks * Chunks::kTerms;
    return step % 2 == 0 ? of_first : tiling_.loads() - of_first;
  }
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

// What the other warps do: load, and set flags. steps: or products, where a step has two. The first
// `alone` of them multiply nothing. stored: how many store an operand.
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

}  // namespace haste
