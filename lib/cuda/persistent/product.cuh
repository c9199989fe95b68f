// A step of a persistent kernel's forward walk: R, which stays on the chip for all steps, times h
// as it arrives, and then the cell.
//
// A warp has one tile of 16 units, for all gates, and a part of the depth. Partial sums go to
// shared memory, and the thread that has an element adds up its sums.
#pragma once

#include "lib/cuda/cell/state_bound.cuh"
#include "lib/cuda/persistent/state_exchange.cuh"

namespace haste {

template <class Cell, class T, int kTiles, ForwardWay kWay>
class PersistentProduct : public StateExchange<Cell, T, kTiles, kWay> {
 protected:
  using Base = StateExchange<Cell, T, kTiles, kWay>;
  using Base::Ask, Base::Await, Base::chunks_, Base::column_, Base::group_, Base::k_, Base::kAhead,
      Base::kGates, Base::kHeld, Base::kRows, Base::kStates, Base::kWords, Base::lane_, Base::p_,
      Base::rank_, Base::scales_, Base::tile_, Base::unit_, Base::warp_;
  // Whether the h for a chunk of R in shared memory is loaded while the previous chunk is
  // multiplied. Floats with two tiles leave no registers for that.
  static constexpr bool kAsksAhead = kWords * kTiles < 4;
  // A tile's sums are split into several chains where there are too few tiles to cover the latency
  // of a product.
  static constexpr int kChains = kGates == 1 ? 4 / kTiles : 1;

  using Base::kWarpSpecialized, Base::kCluster;
  using typename Base::Params;
  using Roles = ForwardRoles<kWay>;
  static constexpr PersistentCell Sizes() { return SizesOf<Cell, T, kWay>(); }
  using Sums = Fragment<float, Sizes().width()>;
  using Words = uint4[kAhead][kTiles][kWords];
  static constexpr int kSumsOfWarp = kRows * Sizes().row_stride();
  // The warps that multiply and those that have elements.
  static constexpr int kWalkers = Roles::kProducts + Roles::kElements;

  HASTE_DEVICE PersistentProduct(const Params& p, const ForwardLayout& at)
      : Base(p, at),
        two_buffers_(at.sum_buffers == 2),
        product_tile_(warp_ % Base::unit_tiles()),
        product_part_(warp_ / Base::unit_tiles()),
        first_chunk_(Opaque(product_part_ * p.tiling.chunks)),
        count_(Opaque(min(p.tiling.chunks, chunks_ - first_chunk_))),
        first_words_(Base::PlaceOfWords(first_chunk_)),
        buffer_(Opaque(two_buffers_ ? kPersistentWarps * kSumsOfWarp : 0)),
        put_(Opaque((product_tile_ * p.tiling.depth_warps() + product_part_) * kSumsOfWarp +
                    Sizes().sum_at(lane_ % 4 * 2, lane_ / 4))),
        got_(Opaque(tile_ * p.tiling.depth_warps() * kSumsOfWarp +
                    Sizes().sum_at(column_, lane_ % 16))),
        sums_(reinterpret_cast<Sums*>(persistent_shared + at.sums)),
        tiles_(reinterpret_cast<TileA<T>*>(persistent_shared + at.tiles)) {}

  // Sends the h that enters the first step, for every `every`-th pass from `first` on.
  HASTE_DEVICE void SendFirst(int first = 0, int every = 1) const {
    for (int pass = first; pass < p_.tiling.passes; pass += every) {
      Base::LoadStates(p_.args.s0, pass);
      Base::Send(0, pass, Base::State(pass, 0) * Base::Scale(pass));
    }
  }

  // --- R

  // 32 bits can index one lane's R: what fits on a chip is far smaller. make: maps a weight to the
  // value that is loaded.
  template <class Make>
  HASTE_DEVICE void LoadTile(int chunk, int i, TileA<T>* tile, const Make& make) const {
    const int half = i / kGates, gate = i % kGates;
    const int H = static_cast<int>(p_.H);
    const int first_unit = rank_ * p_.tiling.units() + product_tile_ * kTileRows + lane_ / 4;
    const int first_depth =
        (product_part_ * p_.tiling.chunks + chunk) * kChunkDepth + lane_ % 4 * 8;
    const T* r = static_cast<const T*>(p_.args.R) + k_ * p_.H * kGates * p_.H;
    tile->Load(half, [&](int row, int depth) {
      const int unit = first_unit + row * 8, from = first_depth + depth;
      return make(unit < H && from < H ? r[(from * kGates + gate) * H + unit] : FromCompute<T>(0));
    });
  }
  HASTE_DEVICE void LoadTile(int chunk, int i, TileA<T>* tile) const {
    LoadTile(chunk, i, tile, [&](T weight) { return scales_.OfWeight(weight); });
  }
  HASTE_DEVICE void LoadTiles() {
    HASTE_UNROLL for (int c = 0; c < kHeld; ++c) {
      if (c >= p_.tiling.chunks) break;
      HASTE_UNROLL for (int i = 0; i < 2 * kGates; ++i) LoadTile(c, i, &held_[c][i]);
    }
    for (int c = kHeld; c < p_.tiling.chunks; ++c) {
      for (int i = 0; i < 2 * kGates; ++i) {
        TileA<T> tile;
        LoadTile(c, i, &tile);
        *TileAt(c, i) = tile;
      }
    }
  }
  HASTE_DEVICE TileA<T>* TileAt(int chunk, int i) const {
    return tiles_ + (((chunk - kHeld) * 2 * kGates + i) * kPersistentWarps + warp_) * 32 + lane_;
  }

  // Called by all walkers. The scale of h is the same in all blocks of a group, the scale of R in
  // all warps of a block.
  HASTE_DEVICE void FindScales() {
    float2* most = reinterpret_cast<float2*>(sums_);  // of each warp
    if (!kWarpSpecialized || threadIdx.x < kPersistentWarps * 32) {
      float weight = LargestWeight<T>([&](const auto& look) {
        TileA<T> unused;
        for (int c = 0; c < count_; ++c) {
          for (int i = 0; i < 2 * kGates; ++i) LoadTile(c, i, &unused, look);
        }
      });
      const int rows = p_.tiling.group_rows();
      float state = BoundOfStates<Cell>(p_, k_, group_ % p_.tiling.row_groups * int64_t{rows}, rows,
                                        threadIdx.x, kPersistentWarps * 32);
      weight = LargestOfWarp(weight);
      state = LargestOfWarp(state);
      if (lane_ == 0) most[warp_] = make_float2(state, weight);
    }
    SyncAt<kProductName, kWalkers>();
    float state = 0, weight = 0;
    HASTE_UNROLL for (int i = 0; i < kPersistentWarps; ++i) {
      state = Larger(state, most[i].x);
      weight = Larger(weight, most[i].y);
    }
    SyncAt<kProductName, kWalkers>();  // the first sums will overwrite them
    scales_ = ProductScales(state, weight, p_.dropout_rate);
  }

  // --- A step

  // Loads the first words of h early, if arrivals are not counted.
  HASTE_DEVICE void AskFirst(int step, int pass, Words& words) const {
    Ask(first_words_ + Base::UseOf(step, pass), first_chunk_, count_, words);
  }

  // Computes this warp's part of h·R and stores it in shared memory. words: those already asked
  // for. free() is called before the sums overwrite earlier ones.
  template <class Free>
  HASTE_DEVICE void MultiplyStates(int step, int pass, int buffer, Words& words, const Free& free) {
    TileC<T> sums[kGates][kTiles][kChains];
    uint4 next[1][kTiles][kWords] = {};  // for a chunk of R in shared memory
    Base::Receive(step, pass);
    const uint4* from = first_words_ + Base::UseOf(step, pass);
    constexpr int kChunkWords = 32 * kWords;
    const int first = first_chunk_, count = count_;
    HASTE_UNROLL for (int c = 0; c < kHeld; c += kAhead, from += kAhead * kChunkWords) {
      if (c >= count) break;
      if (c > 0) ClearWords(words);
      if (kCluster || c > 0) Ask(from, first + c, count - c, words);
      Await(from, words);
      if (kAsksAhead && c + kAhead >= kHeld && count > kHeld) {
        Ask(from + (kHeld - c) * kChunkWords, first + kHeld, 1, next);
      }
      constexpr int kMost = kAhead < kHeld ? kAhead : kHeld;
      AddHeld<kMost>(words, c, count - c, sums);
    }
    from = first_words_ + Base::UseOf(step, pass) + kHeld * kChunkWords;
    for (int c = kHeld; c < count; ++c, from += kChunkWords) {
      if (!kAsksAhead) Ask(from, first + c, 1, next);
      Await(from, next);
      ChunkB<T> b[kTiles];
      HASTE_UNROLL for (int n = 0; n < kTiles; ++n) b[n].Set(next[0][n]);
      if (kAsksAhead && c + 1 < count) Ask(from + kChunkWords, first + c + 1, 1, next);
      TileA<T> tiles[2 * kGates];
      HASTE_UNROLL for (int i = 0; i < 2 * kGates; ++i) tiles[i] = *TileAt(c, i);
      AddChunk(b, tiles, sums, 0);
    }
    free();
    Sums* to = sums_ + BufferAt(buffer) + put_;
    HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
      HASTE_UNROLL for (int i = 0; i < 4; ++i) {
        Sums sum = {};
        HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
          sum.v[g] = sums[g][n][0].Get(i);
          HASTE_UNROLL for (int c = 1; c < kChains; ++c) sum.v[g] += sums[g][n][c].Get(i);
        }
        to[(n * kTileColumns + i % 2) * Sizes().row_stride() + i / 2 * 8] = sum;
      }
    }
  }

  // Adds min(count, kMost) of the chunks that registers hold, from `first` on. There is no branch
  // between their products: at a branch sums would be moved, which waits for them.
  template <int kMost>
  HASTE_DEVICE void AddHeld(const Words& words, int first, int count,
                            TileC<T> (&sums)[kGates][kTiles][kChains]) {
    if constexpr (kMost > 1) {
      if (count < kMost || first + kMost > kHeld) {
        AddHeld<kMost - 1>(words, first, count, sums);
        return;
      }
    }
    HASTE_UNROLL for (int a = 0; a < kMost; ++a) {
      ChunkB<T> b[kTiles];
      HASTE_UNROLL for (int n = 0; n < kTiles; ++n) b[n].Set(words[a][n]);
      AddChunk(b, held_[first + a], sums, a);
    }
  }

  HASTE_DEVICE void AddChunk(const ChunkB<T> (&b)[kTiles], const TileA<T> (&tiles)[2 * kGates],
                             TileC<T> (&sums)[kGates][kTiles][kChains], int chunk) {
    HASTE_UNROLL for (int half = 0; half < 2; ++half) {
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
          sums[g][n][(2 * chunk + half) % kChains].Add(tiles[half * kGates + g], b[n], half);
        }
      }
    }
  }

  HASTE_DEVICE int BufferAt(int buffer) const {
    return kWay == ForwardWay::kGrid ? 0 : buffer * buffer_;
  }

  static HASTE_DEVICE void ClearWords(Words& words) {
    HASTE_UNROLL for (int i = 0; i < kAhead * kTiles * kWords; ++i)(&words[0][0][0])[i] = uint4{};
  }

  // h·R of this thread's element, added up over all warps that have a part of it: 8, or 4 with two
  // tiles. from: the first part.
  HASTE_DEVICE void GetProduct(const Sums* from, float (&q)[kGates]) const {
    const bool all = kWarpSpecialized || kTiles == 2 || p_.tiling.unit_tiles == 1;
    static_assert(kPersistentWarps == 8);
    Sums part[kPersistentWarps] = {};  // all loaded at once
    HASTE_UNROLL for (int i = 0; i < kPersistentWarps; ++i) {
      if (i < kPersistentWarps / 2 || all) part[i] = from[i * kSumsOfWarp];
    }
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      q[g] = ((part[0].v[g] + part[1].v[g]) + (part[2].v[g] + part[3].v[g])) +
             ((part[4].v[g] + part[5].v[g]) + (part[6].v[g] + part[7].v[g]));
    }
  }

  // What is known of this thread's element before its sums are ready.
  struct Entering {
    float prev[kStates], scale;  // its states; the factor of h from dropout
    const Sums* sums;            // the first part's sums
    uint32_t* word;              // grid: where its next h goes
  };
  HASTE_DEVICE Entering Enter(int step, int pass, int buffer) const {
    Entering in;
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) in.prev[s] = Base::State(pass, s);
    in.scale = Base::Scale(pass);
    in.sums = sums_ + Opaque(BufferAt(buffer) + got_);
    if constexpr (!kCluster) in.word = Opaque(Base::WordOf(step + 1, pass));
    return in;
  }

  // Runs the cell on this thread's element. Sends h to all blocks, keeps the states for the next
  // step, and passes the results to store(y, before, kept). get(seen, x) returns the cell's inputs,
  // and is called after the sums have been read.
  template <class Get, class Store>
  HASTE_DEVICE void MakeStates(int step, int pass, const Entering& in, const Get& get,
                               const Store& store) const {
    float product[kGates];
    GetProduct(in.sums, product);
    StepFlags seen;
    T x[kGates];
    get(&seen, x);
    float y[1], before[kStates], kept[Cell::kKept] = {}, next[kStates];
    WalkForward<Cell, T, 1>(
        p_, {seen}, OfOne(x), {in.scale}, OfOne(in.prev),
        [&](float (&q)[1][kGates]) {
          RecurrentBias<Cell, T> bias;  // no registers are left to keep it
          bias.Load(p_, k_, unit_, true);
          HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
            const float scaled = kScaledTerms<T> > 0 ? product[g] * scales_.product : product[g];
            q[0][g] = bias.AddedTo(scaled, g);
          }
        },
        OfOne(before), OfOne(kept), OfOne(next), y);
    const bool last = step + 1 == p_.T_;
    if (!last) Base::Send(step + 1, pass, next[0] * in.scale, in.word);
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) Base::State(pass, s) = next[s];
    store(y[0], before, kept);
    if (last && Base::There(pass)) StoreStates<T>(p_.args.sT, Base::ElementOf(pass).at, next);
  }

  const bool two_buffers_;

 private:
  const int product_tile_, product_part_;  // of this warp: unit tile; part of the depth
  const int first_chunk_, count_;          // that part's first chunk and number of chunks
  const uint4* const first_words_;         // where that part's words of h begin, in use 0
  const int buffer_;                       // offset from one buffer of sums to the other
  const int put_;                          // in a buffer, where this lane's first sums go
  const int got_;                          // in a buffer, the first part's sums of its element
  Sums* const sums_;
  TileA<T>* const tiles_;
  TileA<T> held_[kHeld][2 * kGates];
};

}  // namespace haste
