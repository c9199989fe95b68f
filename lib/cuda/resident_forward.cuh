// The forward walk of a persistent kernel: h goes to all blocks of the group, each multiplies it
// with its units' columns of R, and makes the next h of its units.
//
// A warp has one tile of 16 units, of all gates, and a part of the depth; the parts meet in shared
// memory. One barrier a pass where these are double-buffered: all else is a thread's own.
#ifndef HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_
#define HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_

#include "lib/cuda/resident_states.cuh"

namespace haste {

template <class Cell, class T, int kTiles, bool kCluster>
class ResidentForwardRun : ResidentStates<Cell, T, kTiles, kCluster> {
  using Base = ResidentStates<Cell, T, kTiles, kCluster>;
  using Base::alone, Base::Ask, Base::Await, Base::chunks_, Base::column_, Base::k_, Base::lane_,
      Base::p_, Base::rank_, Base::tile_, Base::unit_, Base::warp_;
  using Base::kAhead, Base::kGates, Base::kHeld, Base::kStates, Base::kWords;
  using typename Base::Params;
  using Sums = Fragment<float, SizesOf<Cell, T>().width()>;
  // Whether the words of a chunk that registers do not hold are asked for while the one before is
  // multiplied. Where they hold but one there are few registers left.
  static constexpr bool kAsksAhead = kHeld > 1;
  // A tile's sums in several chains, where there are too few tiles to cover a product's latency.
  static constexpr int kChains = kGates == 1 ? 4 / kTiles : 1;

 public:
  __device__ __forceinline__ explicit ResidentForwardRun(const Params& p)
      : ResidentForwardRun(p, ForwardLayout(p.tiling, SizesOf<Cell, T>(), kCluster)) {}

  __device__ __forceinline__ void Walk() {
    LoadTiles();
    Base::Prepare();
    for (int pass = 0; pass < p_.tiling.passes; ++pass) {
      Base::LoadStates(p_.args.s0, pass);
      Base::Send(0, pass, Base::State(pass, 0) * Base::Scale(pass));
    }
    StepPlace place = Base::PlaceOf(0);
    Inputs inputs;
    inputs.Ask(*this, 0, 0, place);
    auto ahead = Base::template PrefetcherOf<kGates>(p_.args.wx, false);
    int buffer = 0;
    const int steps = static_cast<int>(p_.T_), passes = p_.tiling.passes;
    for (int step = 0; step < steps; ++step) {
      for (int pass = 0; pass < passes; ++pass, buffer ^= 1) {
        Multiply(step, pass, buffer);
        __syncthreads();
        Finish(step, pass, buffer, place, inputs);
        // What comes next, and no block makes, is on its way while h is.
        const bool wraps = pass + 1 == passes;
        place = Base::Further(place, wraps ? 1 : 0, wraps ? 1 - passes : 1);
        if (step + 1 < steps || !wraps) {
          inputs.Ask(*this, wraps ? step + 1 : step, wraps ? 0 : pass + 1, place);
        }
        if (step + kPrefetchSteps < steps) ahead.Ask(pass, pass * Base::kRows);
        if (!kCluster && warp_ == kResidentWarps - 1) Base::Clear(step, pass);
      }
      ahead.Advance();
    }
    // Nobody leaves while others may still write into its memory.
    if (kCluster && !alone()) ClusterSync();
  }

 private:
  __device__ __forceinline__ ResidentForwardRun(const Params& p, const ForwardLayout& at)
      : Base(p, at),
        product_tile_(warp_ % p.tiling.unit_tiles),
        product_part_(warp_ / p.tiling.unit_tiles),
        two_buffers_(at.sum_buffers == 2),
        buffer_(Once(two_buffers_ ? kResidentWarps * at.sums_of_warp : 0)),
        got_(Once(tile_ * at.sums_of_warp + SizesOf<Cell, T>().sum_at(column_, lane_ % 16))),
        got_stride_(Once(p.tiling.unit_tiles * at.sums_of_warp)),
        sums_(reinterpret_cast<Sums*>(resident_shared + at.sums)),
        tiles_(reinterpret_cast<TileA<T>*>(resident_shared + at.tiles)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane_ % 4 * 2 + i % 2, unit = lane_ / 4 + i / 2 * 8;
      put_[i] = Once(warp_ * at.sums_of_warp + SizesOf<Cell, T>().sum_at(row, unit));
    }
  }

  // --- R

  // 32 bits index one lane's R: what stays on a chip is far smaller.
  __device__ __forceinline__ void LoadTile(int chunk, int half, int gate, TileA<T>* tile) const {
    const int H = static_cast<int>(p_.H);
    const int first_unit = rank_ * p_.tiling.units() + product_tile_ * kTileRows;
    const int first_depth = (product_part_ * p_.tiling.chunks + chunk) * kChunkDepth;
    const T* r = static_cast<const T*>(p_.args.R) + k_ * p_.H * kGates * p_.H;
    tile->Load(half, [&](int row, int depth) {
      const int unit = first_unit + row, from = first_depth + depth;
      return unit < H && from < H ? r[(from * kGates + gate) * H + unit] : FromCompute<T>(0);
    });
  }
  __device__ __forceinline__ void LoadTiles() {
#pragma unroll
    for (int c = 0; c < kHeld; ++c) {
      if (c >= p_.tiling.chunks) break;
#pragma unroll
      for (int i = 0; i < 2 * kGates; ++i) LoadTile(c, i / kGates, i % kGates, &held_[c][i]);
    }
    for (int c = kHeld; c < p_.tiling.chunks; ++c) {
      for (int i = 0; i < 2 * kGates; ++i) {
        TileA<T> tile;
        LoadTile(c, i / kGates, i % kGates, &tile);
        *TileAt(c, i) = tile;
      }
    }
  }
  __device__ __forceinline__ TileA<T>* TileAt(int chunk, int i) const {
    return tiles_ + (((chunk - kHeld) * 2 * kGates + i) * kResidentWarps + warp_) * 32 + lane_;
  }

  // --- A step

  // What this thread reads of a pass that no block makes.
  struct Inputs {
    T x[kGates];
    Foreseen seen;

    __device__ __forceinline__ void Ask(const ResidentForwardRun& run, int step, int pass,
                                        const StepPlace& place) {
      const T* from = static_cast<const T*>(run.p_.args.wx) + place.gates;
      if (run.There(pass)) {
#pragma unroll
        for (int g = 0; g < kGates; ++g) x[g] = from[g * run.p_.H];
      }
      seen = run.Foresee(step, pass);
    }
  };

  // This warp's part of h·R into shared memory.
  __device__ __forceinline__ void Multiply(int step, int pass, int buffer) {
    TileC<T> sums[kGates][kTiles][kChains];
    uint4 next[1][kTiles][kWords];  // of a chunk that registers do not hold
    const uint4* from = Base::Receive(step, pass);
    const int first = product_part_ * p_.tiling.chunks;
    const int count = min(p_.tiling.chunks, chunks_ - first);
#pragma unroll
    for (int c = 0; c < kHeld; c += kAhead) {
      if (c >= count) break;
      uint4 words[kAhead][kTiles][kWords];
      Ask(from, first + c, count - c, words);
      Await(from, first + c, count - c, words);
      if (kAsksAhead && c + kAhead >= kHeld && count > kHeld) Ask(from, first + kHeld, 1, next);
#pragma unroll
      for (int a = 0; a < kAhead && c + a < kHeld; ++a) {
        if (c + a >= count) break;
        ChunkB<T> b[kTiles];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) b[n].Set(words[a][n]);
        AddChunk(b, held_[c + a], sums, a);
      }
    }
    for (int c = kHeld; c < count; ++c) {
      if (!kAsksAhead) Ask(from, first + c, 1, next);
      Await(from, first + c, 1, next);
      ChunkB<T> b[kTiles];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) b[n].Set(next[0][n]);
      if (kAsksAhead && c + 1 < count) Ask(from, first + c + 1, 1, next);
      TileA<T> tiles[2 * kGates];
#pragma unroll
      for (int i = 0; i < 2 * kGates; ++i) tiles[i] = *TileAt(c, i);
      AddChunk(b, tiles, sums, 0);
    }
    if (!two_buffers_) __syncthreads();  // the sums before have been read
    Sums* to = sums_ + buffer * buffer_;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Sums sum = {};
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          sum.v[g] = sums[g][n][0].Get(i);
#pragma unroll
          for (int c = 1; c < kChains; ++c) sum.v[g] += sums[g][n][c].Get(i);
        }
        to[put_[i] + n * kTileColumns * SizesOf<Cell, T>().row_stride()] = sum;
      }
    }
  }

  __device__ __forceinline__ void AddChunk(const ChunkB<T> (&b)[kTiles],
                                           const TileA<T> (&tiles)[2 * kGates],
                                           TileC<T> (&sums)[kGates][kTiles][kChains], int chunk) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          sums[g][n][(2 * chunk + half) % kChains].Add(tiles[half * kGates + g], b[n], half,
                                                       p_.exact);
        }
      }
    }
  }

  // h·R of this thread's element, from all warps that have a part of it: 8, or 4 with two tiles.
  __device__ __forceinline__ void GetProduct(int buffer, float (&q)[kGates]) const {
    const int tiles = p_.tiling.unit_tiles;
    const Sums* from = sums_ + buffer * buffer_ + got_;
    constexpr int kBatch = 4;  // asked for side by side
#pragma unroll
    for (int g = 0; g < kGates; ++g) q[g] = 0;
#pragma unroll
    for (int first = 0; first < kResidentWarps; first += kBatch) {
      if (first * tiles >= kResidentWarps) break;
      Sums part[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) part[i] = from[(first + i) * got_stride_];
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        q[g] += (part[0].v[g] + part[1].v[g]) + (part[2].v[g] + part[3].v[g]);
      }
    }
  }

  // The cell, on this thread's element.
  __device__ __forceinline__ void Finish(int step, int pass, int buffer, const StepPlace& place,
                                         const Inputs& inputs) {
    const bool last = step == p_.T_ - 1;
    const float scale = Base::Scale(pass);
    float prev[kStates], next[kStates], before[kStates], kept[Cell::kKept] = {}, y[1];
#pragma unroll
    for (int s = 0; s < kStates; ++s) prev[s] = Base::State(pass, s);
    WalkForward<Cell, T, 1>(
        p_, {inputs.seen}, k_, {unit_}, OfOne(inputs.x), {scale}, OfOne(prev),
        [&](float (&q)[1][kGates]) { GetProduct(buffer, q[0]); }, OfOne(before), OfOne(kept),
        OfOne(next), y);
    if (!last) Base::Send(step + 1, pass, next[0] * scale);
#pragma unroll
    for (int s = 0; s < kStates; ++s) Base::State(pass, s) = next[s];
    if (!Base::There(pass)) return;
    StoreForward<Cell>(p_, place, y[0], before, kept);
    if (last) StoreStates<T>(p_.args.sT, Base::ElementOf(pass).at, next);
  }

  const int product_tile_, product_part_;  // of this warp: unit tile, part of the depth
  const bool two_buffers_;
  const int buffer_;            // from one buffer of sums to the other
  int put_[4];                  // where this lane's sums go, in a buffer
  const int got_, got_stride_;  // where its element's are: of the first part, and to the next
  Sums* const sums_;
  TileA<T>* const tiles_;
  TileA<T> held_[kHeld][2 * kGates];
};

template <class Cell, class T, int kTiles, bool kCluster>
__global__ void __launch_bounds__(kResidentWarps * 32, 1)
    ResidentForward(const __grid_constant__ ResidentForwardParams<T> p) {
  if constexpr (HasOnChipCode(kCluster)) ResidentForwardRun<Cell, T, kTiles, kCluster>(p).Walk();
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_
