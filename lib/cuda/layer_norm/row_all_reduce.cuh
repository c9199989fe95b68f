// Sums over whole rows where R is stationary (lib/cuda/tiled/stationary.cuh): the blocks of a row
// tile have units of the same rows, and each of them needs the sums of all.
//
//   warps: parts of rows ──► a warp adds up those of two rows ──► a copy of the sums for each block
//
// Both ways go through global memory, two rows in 16 bytes. Words tell by a tag whether they have
// arrived (lib/cuda/ptx/tagged.h), so nothing waits for a flag after the data. Sums have one order.
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
    Exchange(reduction, turn, count, sums, [&](const uint4* parts, uint32_t tag, float (&sum)[4]) {
      EachTwoParts(parts, tag, [&](int tile, const uint4(&part)[2]) {
        HASTE_UNROLL for (int u = 0; u < 2; ++u) {
          if (tile + 32 * u >= Tiles(p_)) continue;
          float numbers[4];
          Unpack(part[u], numbers);
          HASTE_UNROLL for (int i = 0; i < 4; ++i) sum[i] += numbers[i];
        }
      });
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
             [&](const uint4* parts, uint32_t tag, float (&moments)[4]) {
               CombineMoments<kOfUnit>(parts, tag, moments);
             });
    HASTE_UNROLL for (int r = 0; r < 2; ++r) of[r] = {own[r][0], own[r][1]};
  }

 private:
  static __host__ __device__ int Tiles(const P& p) {
    return static_cast<int>((p.H + kAllReduceUnits - 1) / kAllReduceUnits);
  }
  // Distances in memory. Of a row tile there are parts [pair of rows, tile], then sums [block, pair
  // of rows].
  static __host__ __device__ int TurnStride(const P& p) {
    return p.tiling.rows / 2 * (Tiles(p) + static_cast<int>(p.tiling.group_blocks()));
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

  // Two rows' two numbers, first those of the first row, and back.
  static HASTE_DEVICE uint4 Pack(const float (&of)[4], uint32_t tag) {
    return make_uint4(Tagged(of[0], tag), Tagged(of[1], tag), Tagged(of[2], tag),
                      Tagged(of[3], tag));
  }
  static HASTE_DEVICE void Unpack(const uint4& words, float (&of)[4]) {
    of[0] = Untagged(words.x);
    of[1] = Untagged(words.y);
    of[2] = Untagged(words.z);
    of[3] = Untagged(words.w);
  }
  static HASTE_DEVICE bool HaveTag(const uint4& words, uint32_t tag) {
    return HasTag(words.x, tag) && HasTag(words.y, tag) && HasTag(words.z, tag) &&
           HasTag(words.w, tag);
  }

  // own: [row, number], of the warp's units. combine(parts, tag, sums): adds up two rows' parts.
  template <class Combine>
  HASTE_DEVICE void Exchange(int reduction, int turn, int64_t count, float (&own)[2][2],
                             const Combine& combine) const {
    const int lane = threadIdx.x % 32, tile = unit_ / kAllReduceUnits;
    const int tiles = Tiles(p_), pairs = p_.tiling.rows / 2;
    const uint32_t tag = static_cast<uint32_t>(count >> 1 & 1) ^ 1;
    uint4* const parts = first_ + ((reduction * 2 + static_cast<int>(count & 1)) * parity_stride_ +
                                   turn * turn_stride_);
    uint4* const sums = parts + pairs * tiles;
    float rows[4] = {own[0][0], own[0][1], own[1][0], own[1][1]};
    if (lane < 4 && tile < tiles) StoreRelaxed(parts + row_ / 2 * tiles + tile, Pack(rows, tag));
    // Pairs are shared out over the warps of all blocks, and first over blocks.
    int pair = static_cast<int>(threadIdx.x / 32) * blocks_ + block_;
    for (; pair < pairs; pair += kStationaryWarps * blocks_) {
      float sum[4] = {};
      combine(parts + pair * tiles, tag, sum);
      const uint4 words = Pack(sum, tag);
      for (int to = lane; to < blocks_; to += 32) StoreRelaxed(sums + to * pairs + pair, words);
    }
    const uint4* own_sums = sums + block_ * pairs + row_ / 2;
    uint4 words;
    do {
      words = LoadRelaxed(own_sums);
    } while (!HaveTag(words, tag));
    __syncwarp();
    Unpack(words, rows);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int i = 0; i < 2; ++i) own[r][i] = rows[2 * r + i];
    }
  }

  // Calls visit(tile, parts) with those of `tile` and of tile + 32, as far as there are such.
  template <class Visit>
  HASTE_DEVICE void EachTwoParts(const uint4* parts, uint32_t tag, const Visit& visit) const {
    const int tiles = Tiles(p_);
    for (int first = 0; first < tiles; first += 64) {
      const int tile = first + static_cast<int>(threadIdx.x % 32);
      uint4 part[2] = {};
      if (tile < tiles) {
        const bool two = tile + 32 < tiles;
        do {
          part[0] = LoadRelaxed(parts + tile);
          if (two) part[1] = LoadRelaxed(parts + tile + 32);
        } while (!HaveTag(part[0], tag) || (two && !HaveTag(part[1], tag)));
      }
      __syncwarp();
      visit(tile, part);
    }
  }

  // Of two rows: from means and squares of tiles to their means and scales. Distances are from the
  // mean of the first tile.
  template <int kOfUnit>
  HASTE_DEVICE void CombineMoments(const uint4* parts, uint32_t tag, float (&moments)[4]) const {
    float from[2], sums[4] = {};
    EachTwoParts(parts, tag, [&](int tile, const uint4(&part)[2]) {
      if (tile < 32) {
        from[0] = __shfl_sync(0xFFFFFFFFu, Untagged(part[0].x), 0);
        from[1] = __shfl_sync(0xFFFFFFFFu, Untagged(part[0].z), 0);
      }
      HASTE_UNROLL for (int u = 0; u < 2; ++u) {
        if (tile + 32 * u >= Tiles(p_)) continue;
        const float count = static_cast<float>(UnitsOf(tile + 32 * u) * kOfUnit);
        float numbers[4];
        Unpack(part[u], numbers);
        HASTE_UNROLL for (int r = 0; r < 2; ++r) {
          const float distance = numbers[2 * r] - from[r], weighted = count * distance;
          sums[2 * r] += weighted;
          sums[2 * r + 1] += MulAdd(weighted, distance, numbers[2 * r + 1]);
        }
      }
    });
    SumOfWarp(sums);
    const float share = 1.0f / static_cast<float>(p_.H * kOfUnit);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      const float distance = sums[2 * r] * share;
      moments[2 * r] = from[r] + distance;
      const float variance = sums[2 * r + 1] * share - distance * distance;
      // NaN stays NaN.
      moments[2 * r + 1] = InverseDeviation(variance < 0 ? 0.0f : variance, 1.0f, p_.norm.epsilon);
    }
  }

  const P& p_;
  const int row_, unit_;
  const int turn_stride_, parity_stride_;
  const int blocks_, block_;  // of the row tile: how many, and which is this one
  uint4* const first_;
};

}  // namespace haste
