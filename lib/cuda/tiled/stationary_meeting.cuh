// How the blocks of a cluster add up their partial sums where R is stationary, backward
// (stationary_backward.cuh).
#pragma once

#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"
#include "lib/cuda/tiled/params.cuh"
#include "lib/cuda/tiled/stationary.cuh"

namespace haste {

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
  const bool twice_;  // there is room for the parts of two products
  float4* const between_;
  float4* const parts_;  // [product, split, piece, lane]
  TransactionBarrier* const counters_;
};

}  // namespace haste
