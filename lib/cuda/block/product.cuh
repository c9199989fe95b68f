// The product of a step of the engine `block`: R in registers, times the operand of operand.cuh.
#pragma once

#include "lib/cuda/block/operand.cuh"
#include "lib/cuda/block/weights.cuh"
#include "lib/cuda/cell/state_bound.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"

namespace haste {

template <class Cell, class Params, int kRows, bool kCluster, bool kOdd, bool kBackward>
class BlockWalk : protected BlockOperand<Cell, Params, kRows, kCluster, kOdd, kBackward> {
 protected:
  using Base = BlockOperand<Cell, Params, kRows, kCluster, kOdd, kBackward>;
  using Base::at_, Base::k_, Base::lane_, Base::operand_, Base::p_, Base::row_scales_,
      Base::scales_, Base::scales_of_use_, Base::warp_, Base::words_of_use_;
  using Base::kDepths, Base::kElements, Base::kGates, Base::kTerms, Base::kScalesRows,
      Base::kSharing, Base::kTiles;
  using typename Base::T;
  static constexpr int kGroup = BlockCell::kGroup;
  static constexpr int kHeld = BlockSizesOf<Cell, T>().held_chunks(kBackward, kCluster);
  static constexpr bool kHoldsAll =
      BlockSizesOf<Cell, T>().chunks(kBackward, BlockSizesOf<Cell, T>().max_hidden(kCluster)) ==
      kHeld;
  static_assert(kHeld % kGroup == 0, "groups are held whole");
  static constexpr int kValues = kTiles == 2 ? 4 : 1;  // sums of the product for an element
  static constexpr int kChains = BlockSizesOf<Cell, T>().chains(kBackward, kCluster);

  HASTE_DEVICE explicit BlockWalk(const Params& p)
      : Base(p),
        sums_(reinterpret_cast<float*>(block_shared + at_.sums)),
        tiles_(reinterpret_cast<TileA<T>*>(block_shared + at_.tiles)) {}

  // --- R

  // This warp's weights of a lane, from a chunk of the lane's whole depth on.
  using Weights = BlockWeights<T, kGates, kTiles, kDepths, kBackward>;
  HASTE_DEVICE Weights WeightsFrom(int chunk) const {
    const T* r = static_cast<const T*>(p_.args.R) + k_ * p_.H * kGates * p_.H;
    return {r, p_.H, Base::BlockUnit() + warp_ / kSharing * kSharing * kBlockUnits, chunk};
  }
  // For Scaled. The scale of R covers all weights that contribute to this warp's sums.
  HASTE_DEVICE void FindScales() {
    if constexpr (kScaledTerms<T> > 0) {
      const Weights weights = WeightsFrom(0);
      const float weight = LargestOfWarp(LargestWeight<T>([&](const auto& look) {
        TileA<T> unused;
        for (int c = 0; c < kSharing * p_.tiling.chunks; ++c) {
          HASTE_UNROLL for (int i = 0; i < 2 * kTiles; ++i) {
            weights.Load(c, i / 2 * 2, i % 2, &unused, look);
          }
        }
      }));
      if constexpr (kBackward) {
        scales_ = ProductScales(weight);
      } else {
        const float state = BoundOfStates<Cell>(p_, k_, Base::first_row_, kRows, lane_, 32);
        scales_ = ProductScales(LargestOfWarp(state), weight, p_.dropout_rate);
      }
    }
  }
  HASTE_DEVICE void LoadTiles() {
    const Weights weights = WeightsFrom(warp_ % kSharing * p_.tiling.chunks);
    const auto load = [&](int chunk, int i, TileA<T>* tile) {
      weights.Load(chunk, i / 2 * 2, i % 2, tile,
                   [&](T weight) { return scales_.OfWeight(weight); });
    };
    HASTE_UNROLL for (int c = 0; c < kHeld; ++c) {
      if (c >= p_.tiling.chunks) break;
      HASTE_UNROLL for (int i = 0; i < 2 * kTiles; ++i) load(c, i, &held_[c][i]);
    }
    for (int c = kHeld; !kHoldsAll && c < p_.tiling.chunks; ++c) {
      HASTE_UNROLL for (int i = 0; i < 2 * kTiles; ++i) {
        TileA<T> tile;
        load(c, i, &tile);
        *TileAt(c, i) = tile;
      }
    }
  }
  HASTE_DEVICE TileA<T>* TileAt(int chunk, int i) const {
    return tiles_ + (((chunk - kHeld) * 2 * kTiles + i) * p_.tiling.warps + warp_) * 32 + lane_;
  }

  // --- A step's product, with what Put has stored for a use

  using Sums = TileC<T>[kTiles][kChains];
  // kScalesRows: the product of a chunk. Its scales are undone after the next product in its place
  // has begun.
  struct Pending {
    TileC<T> product;
    Fragment<float, kRows / 4> scales = {};
  };

  // count: of the uses before. values: for each element the product of its unit; in forward, of
  // every gate.
  HASTE_DEVICE void Multiply(int count, float (&values)[kElements][kValues]) const {
    // Known before the operand has arrived.
    const int use = count % 2, chunks = Opaque(p_.tiling.chunks);
    const uint32_t from = Opaque(static_cast<int>(
        SharedAddress(operand_ + use * words_of_use_ + warp_ % kSharing * chunks * 32 + lane_)));
    Base::Receive(count);
    // Scales of the first chunk, for the columns that this lane has of a tile.
    const float* scales = row_scales_ + use * scales_of_use_ + warp_ % kSharing * chunks * kRows +
                          lane_ % 4 * (kRows / 4);
    Sums sums;
    Pending pending[kGroup];
    ChunkB<T> b[2][kGroup];
    LoadGroup(from, 0, b[0]);
    HASTE_UNROLL for (int c = 0; c < kHeld; c += kGroup) {
      if (c >= chunks) break;
      // Loads the next group, or the last one again if there is no next.
      if (c + kGroup < kHeld) {
        LoadGroup(from, min(c + kGroup, chunks - kGroup), b[(c / kGroup + 1) % 2]);
      }
      HASTE_UNROLL for (int i = 0; i < kGroup; ++i) {
        AddChunk(held_[c + i], b[c / kGroup % 2][i], i, scales + (c + i) * kRows, pending, sums);
      }
    }
    for (int c = kHeld; !kHoldsAll && c < chunks; c += kGroup) {
      TileA<T> tiles[kGroup][2 * kTiles];
      LoadGroup(from, c, b[0]);
      HASTE_UNROLL for (int i = 0; i < kGroup * 2 * kTiles; ++i) {
        tiles[i / (2 * kTiles)][i % (2 * kTiles)] = *TileAt(c + i / (2 * kTiles), i % (2 * kTiles));
      }
      HASTE_UNROLL for (int i = 0; i < kGroup; ++i) {
        AddChunk(tiles[i], b[0][i], i, scales + (c + i) * kRows, pending, sums);
      }
    }
    if constexpr (kScalesRows) {
      HASTE_UNROLL for (int i = 0; i < kGroup; ++i) Undo(i, pending, sums);
    }
    Collect(sums, values);
  }

 private:
  HASTE_DEVICE void LoadGroup(uint32_t from, int first, ChunkB<T> (&b)[kGroup]) const {
    HASTE_UNROLL for (int i = 0; i < kGroup; ++i) {
      HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
        const int word = words_of_use_ / kTerms * s + (first + i) * 32;
        b[i].SetTerm(s, LoadShared(from + word * static_cast<int>(sizeof(uint4))));
      }
    }
  }
  HASTE_DEVICE void AddChunk(const TileA<T> (&tiles)[2 * kTiles], const ChunkB<T>& b, int chunk,
                             const float* scales, Pending (&pending)[kGroup], Sums& sums) const {
    if constexpr (kScalesRows) {
      Pending next;
      next.product.Add(tiles[0], b, 0);
      next.product.Add(tiles[1], b, 1);
      next.scales = LoadFragment<kRows / 4>(scales);
      Undo(chunk, pending, sums);
      pending[chunk] = next;
    } else {
      HASTE_UNROLL for (int half = 0; half < 2; ++half) {
        HASTE_UNROLL for (int t = 0; t < kTiles; ++t) {
          sums[t][(chunk * 2 + half) % kChains].Add(tiles[t * 2 + half], b, half);
        }
      }
    }
  }
  static HASTE_DEVICE void Undo(int chunk, const Pending (&pending)[kGroup], Sums& sums) {
    HASTE_UNROLL for (int i = 0; i < 4; i += kRows == 8 ? 1 : 2) {  // the other columns are empty
      float& sum = sums[0][chunk % kChains].sum[0][i];
      sum = fmaf(pending[chunk].product.Get(i), pending[chunk].scales.v[i % (kRows / 4)], sum);
    }
  }
  static HASTE_DEVICE float Sum(const Sums& sums, int tile, int i) {
    float sum = sums[tile][0].Get(i);
    HASTE_UNROLL for (int c = 1; c < kChains; ++c) sum += sums[tile][c].Get(i);
    return sum;
  }
  HASTE_DEVICE void Collect(const Sums& sums, float (&values)[kElements][kValues]) const {
    if constexpr (kTiles == 2) {
      // Of each tile a lane has two gates of its elements.
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        HASTE_UNROLL for (int g = 0; g < kValues; ++g) {
          values[e][g] = Sum(sums, g / 2, g % 2 * 2 + e);
        }
      }
    } else {
      // One tile: each of two warps has a part of every sum, and needs the sums of eight units.
      const bool high = warp_ % 2 != 0;
      float* shared = sums_ + warp_ * kElements * 32 + lane_;
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        const float low_one = Sum(sums, 0, e), high_one = Sum(sums, 0, 2 + e);
        values[e][0] = high ? high_one : low_one;
        shared[e * 32] = high ? low_one : high_one;
      }
      SyncPair();
      const float* theirs = shared + (high ? -kElements : kElements) * 32;
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) values[e][0] += theirs[e * 32];
    }
  }
  HASTE_DEVICE void SyncPair() const { NamedBarrierSync<64>(1 + warp_ / 2); }

  float* const sums_;
  TileA<T>* const tiles_;
  TileA<T> held_[kHeld][2 * kTiles];
};

}  // namespace haste
