// Shared by both linear scans: the carry chain from warp to warp, and the place of a block.
#pragma once

#include <string.h>

#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/scan/params.cuh"
#include "lib/cuda/scan/tile.cuh"
#include "lib/plan/scan.h"

namespace haste {

constexpr int kMaxScanThreads = kMaxScanWarps * kScanWidth;

// What a warp of a block walks: its elements, and its tiles within the block's time chunk.
struct ScanPlace {
  int warp, warps, lane;
  int64_t unit, chunk;
  int first, end;  // steps of the walk

  template <class Params>
  __device__ explicit ScanPlace(const ScanParams<Params>& p)
      : warp(threadIdx.x / kScanWidth),
        warps(blockDim.x / kScanWidth),
        lane(threadIdx.x % kScanWidth),
        unit(blockIdx.x % p.units),
        chunk(blockIdx.x / p.units),
        first(static_cast<int>(chunk * p.chunk_steps)),
        end(static_cast<int>(p.T_ - first < p.chunk_steps ? p.T_ : first + p.chunk_steps)) {}

  // Element of this launch, in column `column` of the block.
  __device__ int64_t Index(int column) const { return unit * kScanWidth + column; }
};

// The carry of each element goes from tile to tile through its lane's own place in shared memory.
// A warp's mbarrier tells when the tile before one of its own has stored it there.
template <class C, int kValues>
class MbarrierCarry {
 public:
  struct Shared {
    TransactionBarrier there[kMaxScanWarps];
    C slots[kValues][kScanWidth];
  };

  // Called by all threads of a block, before a barrier.
  HASTE_DEVICE MbarrierCarry(unsigned char* shared, const ScanPlace& place)
      : shared_(reinterpret_cast<Shared*>(shared)), place_(place) {
    // One thread of the block does it. With one thread of each warp the code is predicated, and
    // synccheck takes the inactive threads for initialisations of other addresses.
    if (threadIdx.x == 0) TransactionBarrier::Init(shared_->there, kScanWidth);
  }

  // Takes the carry of the previous tile, if another warp had it.
  HASTE_DEVICE void Take(uint32_t turn, C (&value)[kValues]) {
    if (turn == 0 || place_.warps == 1) return;
    shared_->there[place_.warp].Wait(taken_++ & 1);
    HASTE_UNROLL for (int i = 0; i < kValues; ++i) value[i] = shared_->slots[i][place_.lane];
  }
  // Passes this tile's carry to the next.
  HASTE_DEVICE void Pass(uint32_t, const C (&value)[kValues]) const {
    if (place_.warps == 1) return;
    HASTE_UNROLL for (int i = 0; i < kValues; ++i) shared_->slots[i][place_.lane] = value[i];
    shared_->there[(place_.warp + 1) % place_.warps].Arrive();
  }

 private:
  Shared* const shared_;
  const ScanPlace& place_;
  uint32_t taken_ = 0;
};

// The same before compute capability 9.0: one access has a word and the number of the tile it is
// for, so no fence is needed.
template <class C, int kValues>
class FlaggedCarry {
  static constexpr int kWords = kValues * sizeof(C) / sizeof(uint32_t);

 public:
  using Shared = uint64_t[kWords][kScanWidth];

  // No tile waits for number 0.
  HASTE_DEVICE FlaggedCarry(unsigned char* shared, const ScanPlace& place)
      : slots_(reinterpret_cast<volatile uint64_t*>(shared) + place.lane),
        alone_(place.warps == 1) {
    if (place.warp > 0) return;
    HASTE_UNROLL for (int i = 0; i < kWords; ++i) slots_[i * kScanWidth] = 0;
  }

  HASTE_DEVICE void Take(uint32_t turn, C (&value)[kValues]) const {
    if (turn == 0 || alone_) return;
    uint32_t word[kWords];
    for (;;) {
      bool here = true;
      HASTE_UNROLL for (int i = 0; i < kWords; ++i) {
        const uint64_t slot = slots_[i * kScanWidth];
        here &= static_cast<uint32_t>(slot >> 32) == turn;
        word[i] = static_cast<uint32_t>(slot);
      }
      if (__all_sync(0xFFFFFFFFu, here)) break;
    }
    memcpy(value, word, sizeof value);
  }
  HASTE_DEVICE void Pass(uint32_t turn, const C (&value)[kValues]) const {
    if (alone_) return;
    uint32_t word[kWords];
    memcpy(word, value, sizeof value);
    HASTE_UNROLL for (int i = 0; i < kWords; ++i) {
      slots_[i * kScanWidth] = static_cast<uint64_t>(turn + 1) << 32 | word[i];
    }
  }

 private:
  volatile uint64_t* const slots_;
  const bool alone_;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <class C, int kValues>
using CarryChain = MbarrierCarry<C, kValues>;
#else
template <class C, int kValues>
using CarryChain = FlaggedCarry<C, kValues>;
#endif
// Bytes of a block's carry chain.
template <class C>
constexpr int64_t CarryBytes(int values) {
  static_assert(sizeof(typename MbarrierCarry<C, 1>::Shared) <=
                sizeof(typename FlaggedCarry<C, 1>::Shared));
  return values * sizeof(typename FlaggedCarry<C, 1>::Shared);
}

// Value `part` of the chunk summary of this lane's element, in p.summaries.
template <int kValues, class Params>
HASTE_DEVICE typename Params::C* SummaryAt(const ScanParams<Params>& p, const ScanPlace& place,
                                           int64_t chunk, int part) {
  return p.summaries + ((chunk * kValues + part) * p.units + place.unit) * kScanWidth + place.lane;
}

// The block's last warp has that of its chunk.
template <int kValues, class Params>
HASTE_DEVICE void StoreSummary(const ScanParams<Params>& p, const ScanPlace& place,
                               const typename Params::C (&chain)[kValues]) {
  if (place.warp != place.warps - 1) return;
  HASTE_UNROLL for (int i = 0; i < kValues; ++i) {
    *SummaryAt<kValues>(p, place, place.chunk, i) = chain[i];
  }
}

template <class Params>
HASTE_DEVICE RowStride RowStrideOf(const ScanParams<Params>& p, const ElementCursor& e) {
  return {e.Row(p) * p.H, e.sign * p.K * p.H, e.j, e.exists};
}

// Which of the next `count` steps are live, one bit each.
template <class Params>
HASTE_DEVICE uint32_t LiveBits(const ScanParams<Params>& p, const ElementCursor& e, int count) {
  const uint32_t there = (1u << count) - 1;
  return e.exists ? there & static_cast<uint32_t>(LiveSteps(p, e, count)) : there;
}

// Zoneout around a cell that leaves it to the engine: s becomes share · s_prev + (1 - share) · s.
// A state that is wholly old or wholly new is selected, not mixed: the other value may be infinite.
template <class Cell, class C>
HASTE_DEVICE void MixAffine(C share, C* a, C* b) {
  if (Cell::kZoneoutInGate || share == C(0)) return;
  *a = share == C(1) ? C(1) : MulAdd(share, C(1) - *a, *a);
  *b = share == C(1) ? C(0) : *b * (C(1) - share);
}

}  // namespace haste
