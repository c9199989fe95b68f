// Sums over whole rows where R is stationary (lib/cuda/tiled/stationary.cuh): the blocks of a row
// tile have units of the same rows, and each of them needs the sums of all.
//
//   warps: parts of rows ──► one warp a row adds them up ──► a copy of the sums for each block
//
// Both ways go through global memory. The words tell by a tag whether they have arrived
// (lib/cuda/ptx/tagged.h), so nothing waits for a flag after the data. Sums have one order.
#pragma once

#include "lib/cuda/layer_norm/rows_params.cuh"
#include "lib/cuda/ptx/global_flags.cuh"
#include "lib/cuda/ptx/reduce.cuh"
#include "lib/cuda/ptx/tagged.h"
#include "lib/plan/engines/tiled.h"

namespace haste {

constexpr int kAllReduceUnits = 16;  // of a warp's eight rows
static_assert(kAllReduceUnits == kStationaryUnits && kAllReduceUnits == kStationarySums / 4,
              "a warp has one tile, forward and backward");

// Called by all warps that compute the cell. A thread has units {0, 1} + lane / 4 * 2 of its warp's
// and rows {0, 1} + lane % 4 * 2. reduction: which of a step; calls of the same one are numbered:
// count. Two places take turns. Who writes a part to one again has received sums of what came
// after. Sums are written again only after all warps have read them, those without units too: parts
// come of a product that waits for the flags of all blocks' step before.
template <class P>
class RowAllReduce {
 public:
  // Words of 16 bytes that must be 0 before the walk.
  static __host__ __device__ int64_t Size(const P& p, int reductions) {
    return int64_t{reductions} * 2 * ParityStride(p);
  }

  // row: the thread's first, in the row tile. unit: its first.
  HASTE_DEVICE RowAllReduce(const P& p, int64_t lane, int row_tile, int row, int unit)
      : p_(p),
        row_(row),
        unit_(unit),
        turn_stride_(TurnStride(p)),
        parity_stride_(ParityStride(p)),
        blocks_(static_cast<int>(p.tiling.group_blocks())),
        block_(static_cast<int>(blockIdx.x) % blocks_),
        first_(p.norm.partials + (lane * p.tiling.row_tiles + row_tile) * turn_stride_) {}

  // sums: of two rows, of this thread's units; becomes those of all units.
  HASTE_DEVICE void Sum(int reduction, int turn, int64_t count, float (&sums)[2][2]) const {
    SumOfUnits(sums);
    Exchange(reduction, turn, count, sums, [&](const uint4* parts, uint32_t tag, float (&sum)[2]) {
      for (int i = threadIdx.x % 32; i < Pairs(p_); i += 32) {
        EachOf(i, AwaitPair(parts, i, tag), [&](int, float first, float second) {
          sum[0] += first;
          sum[1] += second;
        });
      }
      SumOfWarp(sum);
    });
  }

  // Of values [element, of a unit]: element i is unit i % 2 of row i / 2. Warps add up squares of
  // distances from their own means.
  template <int kOfUnit>
  HASTE_DEVICE void MomentsOf(int reduction, int turn, int64_t count,
                              const float (&values)[4][kOfUnit], Moments<float> (&of)[2]) const {
    float own[2][2] = {}, mean[2][1] = {};
    EachValue(values, [&](int r, float v) { mean[r][0] += v; });
    SumOfUnits(mean);
    const float share = 1.0f / static_cast<float>(UnitsOf(unit_ / kAllReduceUnits) * kOfUnit);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) mean[r][0] *= share;
    float squares[2][1] = {};
    EachValue(values, [&](int r, float v) {
      const float from_mean = v - mean[r][0];
      squares[r][0] = MulAdd(from_mean, from_mean, squares[r][0]);
    });
    SumOfUnits(squares);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      own[r][0] = mean[r][0];
      own[r][1] = squares[r][0];
    }
    Exchange(reduction, turn, count, own,
             [&](const uint4* parts, uint32_t tag, float (&moments)[2]) {
               CombineMoments<kOfUnit>(parts, tag, moments);
             });
    HASTE_UNROLL for (int r = 0; r < 2; ++r) of[r] = {own[r][0], own[r][1]};
  }

 private:
  static __host__ __device__ int Tiles(const P& p) {
    return static_cast<int>((p.H + kAllReduceUnits - 1) / kAllReduceUnits);
  }
  // Of tiles: parts of 8 bytes, 16 together.
  static __host__ __device__ int Pairs(const P& p) { return (Tiles(p) + 1) / 2; }
  // Distances in memory. Of a row tile there are parts [row, tile], then sums [block, row].
  static __host__ __device__ int TurnStride(const P& p) {
    return p.tiling.rows * (Pairs(p) + static_cast<int>(p.tiling.group_blocks()) / 2 + 1);
  }
  static __host__ __device__ int ParityStride(const P& p) {
    return static_cast<int>(p.K) * p.tiling.row_tiles * TurnStride(p);
  }
  HASTE_DEVICE int UnitsOf(int tile) const {
    return min(static_cast<int>(p_.H) - tile * kAllReduceUnits, kAllReduceUnits);
  }

  // Adds up over the lanes that have other units of the same rows.
  template <int kCount>
  static HASTE_DEVICE void SumOfUnits(float (&sums)[2][kCount]) {
    HASTE_UNROLL for (int distance = 4; distance < 32; distance *= 2) {
      HASTE_UNROLL for (int r = 0; r < 2; ++r) {
        HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
          sums[r][i] += __shfl_xor_sync(0xFFFFFFFFu, sums[r][i], distance);
        }
      }
    }
  }
  template <int kOfUnit, class Visit>
  HASTE_DEVICE void EachValue(const float (&values)[4][kOfUnit], const Visit& visit) const {
    HASTE_UNROLL for (int i = 0; i < 4; ++i) {
      if (unit_ + i % 2 >= p_.H) continue;
      HASTE_UNROLL for (int v = 0; v < kOfUnit; ++v) visit(i / 2, values[i][v]);
    }
  }

  // own: [row, number], of the warp's units. combine(parts, tag, sums): adds up a row's parts.
  template <class Combine>
  HASTE_DEVICE void Exchange(int reduction, int turn, int64_t count, float (&own)[2][2],
                             const Combine& combine) const {
    const TiledTiling& t = p_.tiling;
    const int lane = threadIdx.x % 32, tile = unit_ / kAllReduceUnits, pairs = Pairs(p_);
    const uint32_t tag = static_cast<uint32_t>(count >> 1 & 1) ^ 1;
    uint4* const parts = first_ + ((reduction * 2 + static_cast<int>(count & 1)) * parity_stride_ +
                                   turn * turn_stride_);
    uint2* const sums = reinterpret_cast<uint2*>(parts + t.rows * pairs);
    if (lane < 4 && tile < Tiles(p_)) {
      HASTE_UNROLL for (int r = 0; r < 2; ++r) {
        StoreRelaxed(reinterpret_cast<uint2*>(parts + (row_ + r) * pairs) + tile,
                     make_uint2(Tagged(own[r][0], tag), Tagged(own[r][1], tag)));
      }
    }
    // Rows are shared out over the warps of all blocks, and first over blocks.
    int row = static_cast<int>(threadIdx.x / 32) * blocks_ + block_;
    for (; row < t.rows; row += kStationaryWarps * blocks_) {
      float sum[2] = {};
      combine(parts + row * pairs, tag, sum);
      const uint2 tagged = make_uint2(Tagged(sum[0], tag), Tagged(sum[1], tag));
      for (int to = lane; to < blocks_; to += 32) StoreRelaxed(sums + to * t.rows + row, tagged);
    }
    const uint4* own_sums = reinterpret_cast<const uint4*>(sums + block_ * t.rows + row_);
    uint4 of_rows;
    do {
      of_rows = LoadRelaxed(own_sums);
    } while (!HasTag(of_rows.x, tag) || !HasTag(of_rows.y, tag) || !HasTag(of_rows.z, tag) ||
             !HasTag(of_rows.w, tag));
    __syncwarp();
    own[0][0] = Untagged(of_rows.x);
    own[0][1] = Untagged(of_rows.y);
    own[1][0] = Untagged(of_rows.z);
    own[1][1] = Untagged(of_rows.w);
  }

  // Of two tiles; of the last there may be one.
  HASTE_DEVICE uint4 AwaitPair(const uint4* parts, int i, uint32_t tag) const {
    const bool two = 2 * i + 1 < Tiles(p_);
    uint4 v;
    do {
      v = LoadRelaxed(parts + i);
    } while (!HasTag(v.x, tag) || !HasTag(v.y, tag) ||
             (two && (!HasTag(v.z, tag) || !HasTag(v.w, tag))));
    return v;
  }
  // Calls visit(tile, numbers).
  template <class Visit>
  HASTE_DEVICE void EachOf(int i, const uint4& pair, const Visit& visit) const {
    visit(2 * i, Untagged(pair.x), Untagged(pair.y));
    if (2 * i + 1 < Tiles(p_)) visit(2 * i + 1, Untagged(pair.z), Untagged(pair.w));
  }

  // Of a row: from means and squares of tiles to its mean and scale. Distances are from the mean of
  // the first tile.
  template <int kOfUnit>
  HASTE_DEVICE void CombineMoments(const uint4* parts, uint32_t tag, float (&moments)[2]) const {
    const int pairs = Pairs(p_);
    int i = threadIdx.x % 32;
    uint4 pair = {};
    if (i < pairs) pair = AwaitPair(parts, i, tag);
    __syncwarp();
    const float from = Untagged(__shfl_sync(0xFFFFFFFFu, pair.x, 0));
    float sums[2] = {};
    while (i < pairs) {
      EachOf(i, pair, [&](int tile, float mean, float squares) {
        const float distance = mean - from;
        const float weighted = static_cast<float>(UnitsOf(tile) * kOfUnit) * distance;
        sums[0] += weighted;
        sums[1] += MulAdd(weighted, distance, squares);
      });
      i += 32;
      if (i < pairs) pair = AwaitPair(parts, i, tag);
    }
    SumOfWarp(sums);
    const float share = 1.0f / static_cast<float>(p_.H * kOfUnit), distance = sums[0] * share;
    moments[0] = from + distance;
    const float variance = sums[1] * share - distance * distance;
    // NaN stays NaN.
    moments[1] = InverseDeviation(variance < 0 ? 0.0f : variance, 1.0f, p_.norm.epsilon);
  }

  const P& p_;
  const int row_, unit_;
  const int turn_stride_, parity_stride_;
  const int blocks_, block_;  // of the row tile: how many, and which is this one
  uint4* const first_;
};

}  // namespace haste
