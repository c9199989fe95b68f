// The product of the backward walk of a persistent kernel.
//
// There are two ways. Either a block has the gates' gradients of its own units only. It computes
// all they add to dh of every unit of the group, and sends each block its part. The exchange is
// then a quarter of what all gates' gradients would be. Or (kShared, over the whole GPU) the blocks
// of a cluster first share their gates' gradients, and each multiplies all of them for some of the
// units. That is a second exchange a step, but a short one, and fewer sums cross the GPU.
//
// Two slots of each exchange are enough. A block sends for a step only after it has received
// results that depend on its words of two steps before, from every block that reads them.
#pragma once

#include "lib/cuda/persistent/gradient_exchange.cuh"
#include "lib/cuda/persistent/operand.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/unrolled.cuh"

namespace haste {

template <class Cell, class T, int kTiles, bool kCluster, bool kShared>
class PersistentBackwardRun : GradientExchange<Cell, T, kTiles, kCluster, kShared> {
  using Base = GradientExchange<Cell, T, kTiles, kCluster, kShared>;
  using Base::alone, Base::column_, Base::counters_, Base::CounterOf, Base::k_, Base::kGates,
      Base::lane_, Base::p_, Base::rank_, Base::TagOf, Base::tile_, Base::UseOf, Base::warp_;
  using typename Base::Params;
  friend Base;
  using Operand =
      std::conditional_t<kShared, SharedOperand<T, kGates, kTiles>, OwnOperand<T, kGates, kTiles>>;
  static constexpr int kTerms = kMmaTerms<T>;
  static constexpr int kHeld = SizesOf<Cell, T>().held_pairs();
  static constexpr bool kScales = kScaledTerms<T> > 0;
  static_assert(kShared || !kScales, "who has scales");
  // Where a tile would be one chain of products, the halves of a chunk are summed separately.
  static constexpr int kChains = kTerms == 1 && kTiles == 1 && !kScales ? 2 : 1;

 public:
  HASTE_DEVICE explicit PersistentBackwardRun(const Params& p)
      : PersistentBackwardRun(p, BackwardLayout(p.tiling, SizesOf<Cell, T>(), kCluster)) {}

  HASTE_DEVICE void Walk() {
    Base::Walk(*this);
    if (kShared || (kCluster && !alone())) ClusterSync();
  }

 private:
  HASTE_DEVICE PersistentBackwardRun(const Params& p, const BackwardLayout& at)
      : Base(p, at),
        sharers_(kShared ? kClusterPeers : 1),
        pair_warps_(kShared ? p.tiling.pair_warps : kPersistentWarps),
        places_of_pair_(p.tiling.pair_chunks),
        places_(p.tiling.pairs * p.tiling.pair_chunks),
        product_tiles_(p.tiling.product_tiles),
        pair_(warp_ % pair_warps_),
        part_(warp_ / pair_warps_),
        sender_(kShared ? rank_ / kClusterPeers * p.tiling.depth_parts + part_ : rank_),
        operand_(p.tiling, reinterpret_cast<uint4*>(persistent_shared + at.operand),
                 {tile_ * kTileRows + lane_ % 16, column_}),
        tiles_(reinterpret_cast<TileA<T>*>(persistent_shared + at.tiles)) {}

  HASTE_DEVICE void Prepare() {
    if ((kCluster || kShared) && threadIdx.x == 0) {
      for (int i = 0; i < kBackwardSlots * p_.tiling.passes; ++i) counters_[i].Init();
    }
    operand_.Clear();
    if (kShared || (kCluster && !alone())) {
      ClusterSync();
    } else {
      __syncthreads();
    }
  }

  // --- Rᵀ

  // Index among the product's unit tiles of tile `i` (0 or 1) of a warp's pair.
  HASTE_DEVICE int TileOf(int pair, int i) const { return pair_ + pair_warps_ * (2 * pair + i); }
  // The block that owns the tile, and the tile's index in that block.
  HASTE_DEVICE int ReceiverOf(int tile) const {
    return (tile >> (p_.tiling.unit_tiles - 1)) * sharers_ + rank_ % sharers_;
  }
  HASTE_DEVICE int TileThere(int tile) const { return tile & (p_.tiling.unit_tiles - 1); }
  // Tiles are at index half · 2 + (0 or 1, in the pair). 32 bits can index one lane's R: what fits
  // on a chip is far smaller.
  template <class Make>
  HASTE_DEVICE void LoadPlace(int place, TileA<T> (&tiles)[4], const Make& make) const {
    const PersistentKernel<T> kernel = {
        static_cast<const T*>(p_.args.R) + k_ * p_.H * kGates * p_.H, static_cast<int>(p_.H)};
    const int units = p_.tiling.units(), own = rank_ / sharers_ * sharers_ * units;
    const int depth =
        (part_ * places_of_pair_ + place % places_of_pair_) * kChunkDepth + lane_ % 4 * 8;
    HASTE_UNROLL for (int i = 0; i < 2; ++i) {
      const int tile = TileOf(place / places_of_pair_, i);
      int unit = ReceiverOf(tile) * units + TileThere(tile) * kTileRows + lane_ / 4;
      if (tile >= product_tiles_) unit = kernel.hidden;  // no such tile
      T row[8], further[8];
      Operand::LoadWeights(p_.tiling, kernel, unit, own, depth, row);
      Operand::LoadWeights(p_.tiling, kernel, unit + 8, own, depth, further);
      HASTE_UNROLL for (int j = 0; j < 8; ++j) {
        row[j] = make(row[j]);
        further[j] = make(further[j]);
      }
      HASTE_UNROLL for (int half = 0; half < 2; ++half) tiles[half * 2 + i].Set(half, row, further);
    }
  }
  HASTE_DEVICE void LoadPlace(int place, TileA<T> (&tiles)[4]) const {
    LoadPlace(place, tiles, [&](T weight) { return scales_.OfWeight(weight); });
  }
  // The scales of this warp's weights.
  HASTE_DEVICE void FindScales() {
    const float weight = LargestWeight<T>([&](const auto& look) {
      TileA<T> unused[4];
      for (int place = 0; place < places_; ++place) LoadPlace(place, unused, look);
    });
    scales_ = ProductScales(LargestOfWarp(weight));
  }
  HASTE_DEVICE TileA<T>* TileAt(int place, int i) const {
    return tiles_ + (((place - kHeld) * 4 + i) * kPersistentWarps + warp_) * 32 + lane_;
  }
  // Order of the places: pair by pair, and in a pair all of this warp's chunks.
  HASTE_DEVICE void LoadTiles() {
    if constexpr (kScales) FindScales();
    Unrolled<kHeld>([&](auto place) {
      if (place >= places_) return false;
      LoadPlace(place, held_[place]);
      return true;
    });
    for (int place = kHeld; place < places_; ++place) {
      TileA<T> tiles[4];
      LoadPlace(place, tiles);
      HASTE_UNROLL for (int i = 0; i < 4; ++i) * TileAt(place, i) = tiles[i];
    }
  }

  // --- A step

  HASTE_DEVICE void SetOperand(int done, int pass, const float (&dq)[kGates]) {
    operand_.Set(dq, UseOf(done, pass), CounterOf(done, pass));
  }

  // Multiplies the gates' gradients by the block's part of Rᵀ and sends the partial sums of dh to
  // the blocks that own them.
  HASTE_DEVICE void Multiply(int done, int pass) {
    const int use = Base::WordsOf(done, pass);
    const uint4* operand = operand_.Get(UseOf(done, pass), CounterOf(done, pass), TagOf(done)) +
                           part_ * places_of_pair_ * kTiles * 32 + lane_;
    TileC<T> sums[2][kTiles][kChains];
    if constexpr (kShared) {
      const int to[2] = {Opaque(WordsTo(use, 0, 0)), Opaque(WordsTo(use, 0, 1))};
      float totals[2][kTiles][4] = {};  // kScales: sums of chunks whose scales have been undone
      const auto add = [&](int place, const TileA<T>(&tiles)[4], const ChunkB<T>(&b)[kTiles]) {
        AddChunk(tiles, b, sums);
        if constexpr (kScales) {
          if ((place + 1) % Operand::kTileChunks == 0) {
            Undo(operand_.Scales(UseOf(done, pass), part_ * places_of_pair_ + place), sums, totals);
          }
        }
      };
      // One pair of tiles and many chunks: each is loaded while the previous one is multiplied.
      ChunkB<T> b[2][kTiles];
      LoadChunk(operand, 0, b[0]);
      if (places_ >= kHeld) {  // no branches between the chunks
        Unrolled<kHeld>([&](auto place) {
          if (place + 1 < kHeld) LoadChunk(operand, place + 1, b[(place + 1) % 2]);
          add(place, held_[place], b[place % 2]);
          return true;
        });
      } else {
        Unrolled<kHeld>([&](auto place) {
          if (place >= places_) return false;
          LoadChunk(operand, min(place + 1, places_ - 1), b[(place + 1) % 2]);
          add(place, held_[place], b[place % 2]);
          return true;
        });
      }
      for (int place = kHeld; place < places_; ++place) {
        TileA<T> tiles[4];
        LoadChunk(operand, place, b[0]);
        HASTE_UNROLL for (int i = 0; i < 4; ++i) tiles[i] = *TileAt(place, i);
        add(place, tiles, b[0]);
      }
      if constexpr (kScales) {
        HASTE_UNROLL for (int i = 0; i < 2; ++i) {
          HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
            HASTE_UNROLL for (int e = 0; e < 4; ++e) {
              sums[i][n][0].sum[0][e] = totals[i][n][e] * scales_.product;
            }
          }
        }
      }
      SendPair(done, pass, 0, to, sums);
    } else {
      int chunk = 0, pair = 0;
      const auto add = [&](const TileA<T>(&tiles)[4]) {
        ChunkB<T> b[kTiles];
        LoadChunk(operand, chunk, b);
        AddChunk(tiles, b, sums);
        if (++chunk < places_of_pair_) return;
        SendPair(done, pass, pair, {WordsTo(use, pair, 0), WordsTo(use, pair, 1)}, sums);
        chunk = 0;
        ++pair;
      };
      Unrolled<kHeld>([&](auto place) {
        if (place >= places_) return false;
        add(held_[place]);
        return true;
      });
      for (int place = kHeld; place < places_; ++place) {
        TileA<T> tiles[4];
        HASTE_UNROLL for (int i = 0; i < 4; ++i) tiles[i] = *TileAt(place, i);
        add(tiles);
      }
    }
  }

  HASTE_DEVICE void LoadChunk(const uint4* operand, int chunk, ChunkB<T> (&b)[kTiles]) const {
    HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
      HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
        b[n].SetTerm(s, operand[((s * p_.tiling.chunks + chunk) * kTiles + n) * 32]);
      }
    }
  }
  HASTE_DEVICE void AddChunk(const TileA<T> (&tiles)[4], const ChunkB<T> (&b)[kTiles],
                             TileC<T> (&sums)[2][kTiles][kChains]) const {
    HASTE_UNROLL for (int half = 0; half < 2; ++half) {
      HASTE_UNROLL for (int i = 0; i < 2; ++i) {
        HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
          sums[i][n][half % kChains].Add(tiles[half * 2 + i], b[n], half);
        }
      }
    }
  }
  // Adds the sums of chunks that share a scale to the totals, and clears them. scales: one pair for
  // two rows, which are the two columns that a lane of the warp has of a tile.
  HASTE_DEVICE void Undo(const float2* scales, TileC<T> (&sums)[2][kTiles][kChains],
                         float (&totals)[2][kTiles][4]) const {
    HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
      const float2 scale = scales[n * (kTileColumns / 2) + lane_ % 4];
      HASTE_UNROLL for (int i = 0; i < 2; ++i) {
        HASTE_UNROLL for (int e = 0; e < 4; ++e) {
          totals[i][n][e] =
              fmaf(sums[i][n][0].Get(e), e % 2 == 0 ? scale.x : scale.y, totals[i][n][e]);
        }
        sums[i][n][0] = TileC<T>();
      }
    }
  }
  // Where this lane's sums of tile i of a pair go. use: the result of WordsOf.
  HASTE_DEVICE int WordsTo(int use, int pair, int i) const {
    const int tile = TileOf(pair, i);
    return use + Base::PlaceOfSums(ReceiverOf(tile), sender_, TileThere(tile));
  }
  // to: WordsTo of both tiles. Clears the sums.
  HASTE_DEVICE void SendPair(int done, int pass, int pair, const int (&to)[2],
                             TileC<T> (&sums)[2][kTiles][kChains]) {
    HASTE_UNROLL for (int i = 0; i < 2; ++i) {
      const int tile = TileOf(pair, i), receiver = ReceiverOf(tile);
      HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
        float c[4];
        HASTE_UNROLL for (int e = 0; e < 4; ++e) {
          c[e] = sums[i][n][0].Get(e);
          if constexpr (kChains == 2) c[e] += sums[i][n][kChains - 1].Get(e);
        }
        if (tile < product_tiles_) Base::Send(done, pass, receiver, to[i], n, c);
        HASTE_UNROLL for (int k = 0; k < kChains; ++k) sums[i][n][k] = TileC<T>();
      }
    }
  }

  const int sharers_;                  // blocks that share their gates' gradients
  const int pair_warps_;               // warps that divide the pairs of tiles
  const int places_of_pair_, places_;  // of this warp: chunks of a pair; of all pairs
  const int product_tiles_;
  const int pair_, part_;  // of this warp: first tile, part of the depth
  const int sender_;       // its index as a sender of sums
  Operand operand_;
  TileA<T>* const tiles_;
  TileA<T> held_[kHeld][4];
  ProductScales scales_;  // only if kScales
};

template <class Cell, class T, int kTiles, bool kCluster, bool kShared>
__global__ void __launch_bounds__(kPersistentWarps * 32, 1)
    PersistentBackward(const __grid_constant__ PersistentBackwardParams<T> p) {
  if constexpr (HasOnChipCode(kCluster || kShared)) {
    PersistentBackwardRun<Cell, T, kTiles, kCluster, kShared>(p).Walk();
  }
}

}  // namespace haste
