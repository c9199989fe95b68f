// How blocks that divide the depth add up their partial sums where R is stationary, backward
// (stationary_backward.cuh): through the shared memory of their cluster, or through global memory.
//
// What a thread has of 16 units (a tile) and eight rows (a column) is a piece: a pair of units of a
// pair of rows, which is also what it has for the cell. Products are numbered from 0. Two places
// for sums are enough: a block gives away those of a product after it has received those of the one
// before, which others give away after they have read the last.
#pragma once

#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/global_flags.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"
#include "lib/cuda/ptx/tagged.h"
#include "lib/cuda/tiled/params.cuh"
#include "lib/cuda/tiled/stationary.cuh"
#include "lib/cuda/tiled/stationary_backward_chunks.cuh"

namespace haste {

// What both ways have in common. kSplits: blocks that divide the depth.
template <int kRows, int kSplits>
class StationaryPieces {
 protected:
  static constexpr int kColumns = kRows / 8, kOwnTiles = 4 / kSplits;
  static constexpr int kPieces = kOwnTiles * kColumns;  // of a block, added up
  static_assert(kPieces == kStationaryWarps, "each warp has one");

  HASTE_DEVICE explicit StationaryPieces(const StationaryLayout& layout)
      : between_(reinterpret_cast<float4*>(stationary_shared + layout.sums)) {}

  // The block that has the units of this warp's sums, and the first of its pieces that are theirs.
  static HASTE_DEVICE int Owner() { return Tile() / kOwnTiles; }
  static HASTE_DEVICE int FirstPiece() { return Tile() % kOwnTiles * kColumns; }

  // Adds up both halves of the warps, each of which goes on with half of the columns: give(column,
  // sums). own: of one half of the depth.
  template <class Give>
  HASTE_DEVICE void AddUpHalves(const float (&own)[kRows / 2], const Give& give) const {
    const int half = threadIdx.x / 128;
    float4* between = between_ + Tile() * kColumns * 32 + threadIdx.x % 32;
    HASTE_UNROLL for (int n = 0; n < kColumns; ++n) {
      if (n / (kColumns / 2) == half) continue;
      between[n * 32] = make_float4(own[4 * n], own[4 * n + 1], own[4 * n + 2], own[4 * n + 3]);
    }
    NamedBarrierSyncAligned<1, kStationaryElementThreads>();
    HASTE_UNROLL for (int n = 0; n < kColumns; ++n) {
      if (n / (kColumns / 2) != half) continue;
      const float4 other = between[n * 32];
      give(n, make_float4(own[4 * n] + other.x, own[4 * n + 1] + other.y, own[4 * n + 2] + other.z,
                          own[4 * n + 3] + other.w));
    }
  }
  // Adds a block's part. Element i of sums is unit i % 2 of row i / 2.
  static HASTE_DEVICE void Add(float4 part, float (&sums)[4]) {
    sums[0] += part.x;
    sums[2] += part.y;
    sums[1] += part.z;
    sums[3] += part.w;
  }

 private:
  static HASTE_DEVICE int Tile() { return threadIdx.x / 32 % 4; }

  float4* const between_;
};

// Between the blocks of a cluster.
template <int kRows, int kSplits>
class StationaryMeeting : StationaryPieces<kRows, kSplits> {
  using Base = StationaryPieces<kRows, kSplits>;
  using Base::kPieces;

 public:
  template <class Params>
  HASTE_DEVICE StationaryMeeting(const Params& p, const StationaryBackwardPlace& place,
                                 const StationaryLayout& layout)
      : Base(layout),
        split_(place.split),
        twice_(p.tiling.meetings > 1),
        parts_(reinterpret_cast<float4*>(stationary_shared + layout.parts)),
        counters_(reinterpret_cast<TransactionBarrier*>(stationary_shared + layout.counters)) {}

  // Called by one thread, before the cluster's other threads see the counters.
  HASTE_DEVICE void Init() const {
    counters_[0].Init();
    if (twice_) counters_[1].Init();
  }

  // Pushes the sums of a product to the blocks that have their units.
  HASTE_DEVICE void Push(int64_t product, const float (&own)[kRows / 2]) const {
    if (threadIdx.x == 0) {
      counters_[Place(product)].ArriveAndExpect(kSplits * kPieces * kStationaryPieceBytes);
    }
    const int piece = (Place(product) * kSplits + split_) * kPieces + this->FirstPiece();
    const uint32_t owner = this->Owner();
    const uint32_t to = AddressIn(SharedAddress(parts_ + piece * 32 + threadIdx.x % 32), owner);
    const uint32_t counter = AddressIn(SharedAddress(counters_ + Place(product)), owner);
    this->AddUpHalves(own, [&](int column, float4 sums) {
      const uint4 bits = make_uint4(__float_as_uint(sums.x), __float_as_uint(sums.y),
                                    __float_as_uint(sums.z), __float_as_uint(sums.w));
      haste::Push(to + column * kStationaryPieceBytes, bits, counter);
    });
  }

  // Waits for the parts of this warp's piece, and adds them up, always in the same order.
  HASTE_DEVICE void Get(int64_t product, float (&sums)[4]) const {
    counters_[Place(product)].Wait((twice_ ? product >> 1 : product) & 1);
    const float4* from = parts_ + Place(product) * kSplits * kPieces * 32 + threadIdx.x;
    HASTE_UNROLL for (int split = 0; split < kSplits; ++split) {
      this->Add(from[split * kPieces * 32], sums);
    }
  }

 private:
  HASTE_DEVICE int Place(int64_t product) const {
    return twice_ ? static_cast<int>(product & 1) : 0;
  }

  const int split_;
  const bool twice_;     // there is room for the parts of two products
  float4* const parts_;  // [product, split, piece, lane]
  TransactionBarrier* const counters_;
};

// Of a unit tile and a group of row tiles, [product, owner, split, piece, lane]: two products'
// parts.
constexpr int64_t MeetingParts(const TiledTiling& t) {
  return 2 * t.splits * t.splits * kStationaryElementThreads;
}

// Between blocks of different clusters. A part is stored once and looked at until it is there: the
// last bit of its numbers tells of which use of the place they are. 0 is of none.
template <int kRows, int kSplits>
class StationaryMemoryMeeting : StationaryPieces<kRows, kSplits> {
  using Base = StationaryPieces<kRows, kSplits>;
  using Base::kPieces;

 public:
  template <class Params>
  HASTE_DEVICE StationaryMemoryMeeting(const Params& p, const StationaryBackwardPlace& place,
                                       const StationaryLayout& layout)
      : Base(layout), split_(place.split) {
    const TiledTiling& t = p.tiling;
    const int64_t group = place.lane * t.row_groups() + place.row_tile / t.turns;
    parts_ = p.parts + (group * t.unit_tiles + place.unit_tile) * MeetingParts(t);
  }

  HASTE_DEVICE void Init() const {}

  HASTE_DEVICE void Push(int64_t product, const float (&own)[kRows / 2]) const {
    uint4* to = Of(product, this->Owner(), split_, this->FirstPiece()) + threadIdx.x % 32;
    const uint32_t tag = TagOf(product);
    this->AddUpHalves(own, [&](int column, float4 sums) {
      StoreRelaxed(to + column * 32, make_uint4(Tagged(sums.x, tag), Tagged(sums.y, tag),
                                                Tagged(sums.z, tag), Tagged(sums.w, tag)));
    });
  }

  HASTE_DEVICE void Get(int64_t product, float (&sums)[4]) const {
    const uint4* from = Of(product, split_, 0, 0) + threadIdx.x;
    const uint32_t tag = TagOf(product);
    uint4 part[kSplits];
    bool there;
    do {
      there = true;
      HASTE_UNROLL for (int split = 0; split < kSplits; ++split) {
        part[split] = LoadRelaxed(from + split * kPieces * 32);
      }
      HASTE_UNROLL for (const uint4& v : part) {
        there &= HasTag(v.x, tag) && HasTag(v.y, tag) && HasTag(v.z, tag) && HasTag(v.w, tag);
      }
    } while (!there);
    HASTE_UNROLL for (const uint4& v : part) {
      this->Add(make_float4(Untagged(v.x), Untagged(v.y), Untagged(v.z), Untagged(v.w)), sums);
    }
  }

 private:
  static HASTE_DEVICE uint32_t TagOf(int64_t product) { return (product >> 1 & 1) ^ 1; }
  HASTE_DEVICE uint4* Of(int64_t product, int owner, int split, int piece) const {
    const int place = static_cast<int>(product & 1);
    return parts_ + (((place * kSplits + owner) * kSplits + split) * kPieces + piece) * 32;
  }

  const int split_;
  uint4* parts_;
};

}  // namespace haste
