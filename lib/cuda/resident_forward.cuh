// The forward walk of a persistent kernel: h goes to all blocks of the group, each multiplies it
// with its units' columns of R, and makes the next h of its units.
//
// A warp has one tile of 16 units, of all gates, and a part of the depth; the parts meet in shared
// memory. One barrier a pass behind them (`cluster`: one more where they have one buffer), and one
// with the warps that see to what does not depend on h (ResidentService): all else is a thread's
// own. What everybody waits for comes first: h is sent before anything of its step is kept.
#ifndef HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_
#define HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_

#include "lib/cuda/resident_service.cuh"
#include "lib/cuda/resident_states.cuh"

namespace haste {

template <class Cell, class T, int kTiles, bool kCluster>
class ResidentForwardRun : ResidentStates<Cell, T, kTiles, kCluster> {
  using Base = ResidentStates<Cell, T, kTiles, kCluster>;
  using Base::alone, Base::Ask, Base::Await, Base::chunks_, Base::column_, Base::group_, Base::k_,
      Base::lane_, Base::p_, Base::rank_, Base::scales_, Base::tile_, Base::unit_, Base::warp_;
  using Base::kAhead, Base::kGates, Base::kHeld, Base::kRows, Base::kStates, Base::kWords;
  using typename Base::Params;
  using Sums = Fragment<float, SizesOf<Cell, T>().width()>;
  // Whether the words of a chunk that registers do not hold are asked for while the one before is
  // multiplied: floats of two tiles leave no registers for it.
  static constexpr bool kAsksAhead = kWords * kTiles < 4;
  // A tile's sums in several chains, where there are too few tiles to cover a product's latency.
  static constexpr int kChains = kGates == 1 ? 4 / kTiles : 1;
  static constexpr int kSumsOfWarp = kRows * SizesOf<Cell, T>().row_stride();

 public:
  __device__ __forceinline__ explicit ResidentForwardRun(const Params& p)
      : ResidentForwardRun(p, ForwardLayout(p.tiling, SizesOf<Cell, T>(), kCluster)) {}

  // By the warps that have elements, and by the others.
  __device__ __forceinline__ void Walk() {
    Base::Prepare();
    WalkElements();
    Leave();
  }
  __device__ __forceinline__ void Serve() {
    Base::Prepare();
    ResidentService<Cell, T, kTiles, kCluster>(p_, *this, at_, some_idle_).Serve();
    Leave();
  }

 private:
  __device__ __forceinline__ ResidentForwardRun(const Params& p, const ForwardLayout& at)
      : Base(p, at),
        at_(at),
        product_tile_(warp_ % p.tiling.unit_tiles),
        product_part_(warp_ / p.tiling.unit_tiles),
        first_chunk_(Once(product_part_ * p.tiling.chunks)),
        count_(Once(min(p.tiling.chunks, chunks_ - first_chunk_))),
        first_words_(Base::PlaceOfWords(first_chunk_)),
        has_elements_(tile_ < p.tiling.unit_tiles),
        two_buffers_(at.sum_buffers == 2),
        some_idle_(p.tiling.unit_tiles * kTiles == 1),
        clears_(Base::PlaceToClear(lane_)),
        buffer_(Once(two_buffers_ ? kResidentWarps * kSumsOfWarp : 0)),
        put_(Once((product_tile_ * p.tiling.depth_warps() + product_part_) * kSumsOfWarp +
                  SizesOf<Cell, T>().sum_at(lane_ % 4 * 2, lane_ / 4))),
        got_(Once(tile_ * p.tiling.depth_warps() * kSumsOfWarp +
                  SizesOf<Cell, T>().sum_at(column_, lane_ % 16))),
        sums_(reinterpret_cast<Sums*>(resident_shared + at.sums)),
        seen_(resident_shared + at.seen + threadIdx.x),
        read_step_(ResidentReads(p.tiling, SizesOf<Cell, T>()).step()),
        written_step_(ResidentWrites(p.tiling, SizesOf<Cell, T>()).step()),
        read_(reinterpret_cast<T*>(resident_shared + at.reads) +
              Once(ResidentReads(p.tiling, SizesOf<Cell, T>()).At(0, column_) + BlockUnit())),
        gates_(reinterpret_cast<T*>(resident_shared + at.writes) +
               Once(ResidentWrites(p.tiling, SizesOf<Cell, T>()).At(0, column_) + BlockUnit())),
        y_(reinterpret_cast<T*>(resident_shared + at.writes) +
           Once(ResidentWrites(p.tiling, SizesOf<Cell, T>()).At(1, column_) + BlockUnit())),
        tiles_(reinterpret_cast<TileA<T>*>(resident_shared + at.tiles)) {}

  // Of this thread, in the block.
  __device__ __forceinline__ int BlockUnit() const { return tile_ * kTileRows + lane_ % 16; }

  // Nobody leaves while others may still write into its memory.
  __device__ __forceinline__ void Leave() const {
    if (kCluster && !alone()) ClusterSync();
  }

  __device__ __forceinline__ void WalkElements() {
    if constexpr (kScaledParts<T> > 0) FindScales();
    LoadTiles();
    for (int pass = 0; pass < p_.tiling.passes; ++pass) {
      Base::LoadStates(p_.args.s0, pass);
      Base::Send(0, pass, Base::State(pass, 0) * Base::Scale(pass));
    }
    Words words = {};
    AskStates(0, 0, words);
    int buffer = 0, step = 0, pass = 0;
    do {
      if (!kCluster) SyncRows();  // while h is on its way
      Multiply(step, pass, buffer, words);
      if (kCluster) {
        SyncRows();
      } else {
        SyncProduct();
      }
      const bool wraps = pass + 1 == p_.tiling.passes;
      const int next_step = wraps ? step + 1 : step, next_pass = wraps ? 0 : pass + 1;
      const auto ask = [&] {
        if (next_step < p_.T_) AskStates(next_step, next_pass, words);
      };
      if (has_elements_) {
        Finish(step, pass, buffer, ask);
      } else {
        if (!kCluster && warp_ == kResidentWarps - 1) {
          Base::Clear(step, pass, clears_);
          FenceRelease();
        }
        ask();
      }
      step = next_step;
      pass = next_pass;
      buffer ^= 1;
    } while (step < p_.T_);
    SyncRows();  // the last ones are there
  }

  // --- R

  // 32 bits index one lane's R: what stays on a chip is far smaller. make: of a weight what is
  // loaded.
  template <class Make>
  __device__ __forceinline__ void LoadTile(int chunk, int i, TileA<T>* tile,
                                           const Make& make) const {
    const int half = i / kGates, gate = i % kGates;
    const int H = static_cast<int>(p_.H);
    const int first_unit = rank_ * p_.tiling.units() + product_tile_ * kTileRows;
    const int first_depth = (product_part_ * p_.tiling.chunks + chunk) * kChunkDepth;
    const T* r = static_cast<const T*>(p_.args.R) + k_ * p_.H * kGates * p_.H;
    tile->Load(half, [&](int row, int depth) {
      const int unit = first_unit + row, from = first_depth + depth;
      return make(unit < H && from < H ? r[(from * kGates + gate) * H + unit] : FromCompute<T>(0));
    });
  }
  __device__ __forceinline__ void LoadTile(int chunk, int i, TileA<T>* tile) const {
    LoadTile(chunk, i, tile, [&](T weight) { return scales_.OfWeight(weight); });
  }
  __device__ __forceinline__ void LoadTiles() {
#pragma unroll
    for (int c = 0; c < kHeld; ++c) {
      if (c >= p_.tiling.chunks) break;
#pragma unroll
      for (int i = 0; i < 2 * kGates; ++i) LoadTile(c, i, &held_[c][i]);
    }
    for (int c = kHeld; c < p_.tiling.chunks; ++c) {
      for (int i = 0; i < 2 * kGates; ++i) {
        TileA<T> tile;
        LoadTile(c, i, &tile);
        *TileAt(c, i) = tile;
      }
    }
  }
  __device__ __forceinline__ TileA<T>* TileAt(int chunk, int i) const {
    return tiles_ + (((chunk - kHeld) * 2 * kGates + i) * kResidentWarps + warp_) * 32 + lane_;
  }

  // The same for all blocks of a group of what is h's, for all warps of a block of what is R's.
  __device__ __forceinline__ void FindScales() {
    float weight = LargestWeight<T>([&](const auto& look) {
      TileA<T> unused;
      for (int c = 0; c < count_; ++c) {
        for (int i = 0; i < 2 * kGates; ++i) LoadTile(c, i, &unused, look);
      }
    });
    const int rows = p_.tiling.group_rows();
    float state = BoundOfStates<Cell>(p_, k_, group_ % p_.tiling.row_groups * int64_t{rows}, rows,
                                      threadIdx.x, kResidentWarps * 32);
    weight = LargestOfWarp(weight);
    state = LargestOfWarp(state);
    float2* most = reinterpret_cast<float2*>(sums_);  // of each warp
    if (lane_ == 0) most[warp_] = make_float2(state, weight);
    SyncProduct();
#pragma unroll
    for (int i = 0; i < kResidentWarps; ++i) {
      state = Larger(state, most[i].x);
      weight = Larger(weight, most[i].y);
    }
    SyncProduct();  // the first sums take their place
    scales_ = ProductScales(state, weight, p_.dropout_rate);
  }

  // --- A step

  using Words = uint4[kAhead][kTiles][kWords];

  // The first words of h, where they are not counted as they arrive.
  __device__ __forceinline__ void AskStates(int step, int pass, Words& words) const {
    if constexpr (!kCluster) {
      // Not before those who have elements, as nothing can be there.
      if (some_idle_) SyncElements();
      Ask(first_words_ + Base::UseOf(step, pass), first_chunk_, count_, words);
    }
  }

  // Of all warps but the service's.
  static __device__ __forceinline__ void SyncElements() {
    asm volatile("barrier.sync 1, %0;" ::"n"(kResidentWarps * 32) : "memory");
  }

  // This warp's part of h·R into shared memory. words: those that have been asked for.
  __device__ __forceinline__ void Multiply(int step, int pass, int buffer, Words& words) {
    TileC<T> sums[kGates][kTiles][kChains];
    uint4 next[1][kTiles][kWords] = {};  // of a chunk that registers do not hold
    Base::Receive(step, pass);
    const uint4* from = first_words_ + Base::UseOf(step, pass);
    constexpr int kChunkWords = 32 * kWords;
    const int first = first_chunk_, count = count_;
#pragma unroll
    for (int c = 0; c < kHeld; c += kAhead, from += kAhead * kChunkWords) {
      if (c >= count) break;
      if (c > 0) Clear(words);
      if (kCluster || c > 0) Ask(from, first + c, count - c, words);
      Await(from, words);
      if (kAsksAhead && c + kAhead >= kHeld && count > kHeld) {
        Ask(from + (kHeld - c) * kChunkWords, first + kHeld, 1, next);
      }
#pragma unroll
      for (int a = 0; a < kAhead && c + a < kHeld; ++a) {
        if (c + a >= count) break;
        ChunkB<T> b[kTiles];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) b[n].Set(words[a][n]);
        AddChunk(b, held_[c + a], sums, a);
      }
    }
    from = first_words_ + Base::UseOf(step, pass) + kHeld * kChunkWords;
    for (int c = kHeld; c < count; ++c, from += kChunkWords) {
      if (!kAsksAhead) Ask(from, first + c, 1, next);
      Await(from, next);
      ChunkB<T> b[kTiles];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) b[n].Set(next[0][n]);
      if (kAsksAhead && c + 1 < count) Ask(from + kChunkWords, first + c + 1, 1, next);
      TileA<T> tiles[2 * kGates];
#pragma unroll
      for (int i = 0; i < 2 * kGates; ++i) tiles[i] = *TileAt(c, i);
      AddChunk(b, tiles, sums, 0);
    }
    // The sums before have been read: in `grid` since SyncRows.
    if (kCluster && !two_buffers_) SyncProduct();
    Sums* to = sums_ + BufferAt(buffer) + put_;
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
        to[(n * kTileColumns + i % 2) * SizesOf<Cell, T>().row_stride() + i / 2 * 8] = sum;
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
          sums[g][n][(2 * chunk + half) % kChains].Add(tiles[half * kGates + g], b[n], half);
        }
      }
    }
  }

  // `grid` has one buffer of sums.
  __device__ __forceinline__ int BufferAt(int buffer) const {
    return kCluster ? buffer * buffer_ : 0;
  }

  static __device__ __forceinline__ void Clear(Words& words) {
#pragma unroll
    for (int i = 0; i < kAhead * kTiles * kWords; ++i) (&words[0][0][0])[i] = uint4{};
  }

  // h·R of this thread's element, from all warps that have a part of it: 8, or 4 with two tiles.
  __device__ __forceinline__ void GetProduct(int buffer, float (&q)[kGates]) const {
    const Sums* from = sums_ + BufferAt(buffer) + got_;
    if (kTiles == 2 || p_.tiling.unit_tiles == 1) {
      AddParts<kResidentWarps>(from, q);
    } else {
      AddParts<kResidentWarps / 2>(from, q);
    }
  }
  template <int kParts>
  static __device__ __forceinline__ void AddParts(const Sums* from, float (&q)[kGates]) {
    Sums part[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) part[i] = from[i * kSumsOfWarp];
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      q[g] = (part[0].v[g] + part[1].v[g]) + (part[2].v[g] + part[3].v[g]);
      if constexpr (kParts == 8) {
        q[g] += (part[4].v[g] + part[5].v[g]) + (part[6].v[g] + part[7].v[g]);
      }
    }
  }

  // The cell, on this thread's element: its h to all blocks, the rest to where the next step finds
  // it, and what copies it to memory.
  template <class Ask>
  __device__ __forceinline__ void Finish(int step, int pass, int buffer, const Ask& ask) const {
    float product[kGates], prev[kStates];
    GetProduct(buffer, product);
    const float scale = Base::Scale(pass);
    Foreseen seen = UnpackForeseen(seen_[buffer * kResidentElements]);
    seen.live &= Base::There(pass);
    T x[kGates];
#pragma unroll
    for (int g = 0; g < kGates; ++g) x[g] = read_[buffer * read_step_ + g * p_.tiling.units()];
#pragma unroll
    for (int s = 0; s < kStates; ++s) prev[s] = Base::State(pass, s);
    float y[1], before[kStates], kept[Cell::kKept] = {}, next[kStates];
    WalkForward<Cell, T, 1>(
        p_, {seen}, k_, {unit_}, OfOne(x), {scale}, OfOne(prev),
        [&](float (&q)[1][kGates]) {
#pragma unroll
          for (int g = 0; g < kGates; ++g) {
            q[0][g] = kScaledParts<T> > 0 ? product[g] * scales_.product : product[g];
          }
        },
        OfOne(before), OfOne(kept), OfOne(next), y);
    const bool last = step + 1 == p_.T_;
    if (!last) Base::Send(step + 1, pass, next[0] * scale);
#pragma unroll
    for (int s = 0; s < kStates; ++s) Base::State(pass, s) = next[s];
    StoreForward<Cell>(RowAt(buffer), StepPlace(0, 0, 0, 0), y[0], before, kept);
    ask();
    if (last && Base::There(pass)) StoreStates<T>(p_.args.sT, Base::ElementOf(pass).at, next);
  }

  // Where what a pass leaves of this thread's element goes.
  __device__ __forceinline__ StepRow<T> RowAt(int buffer) const {
    StepRow<T> row;
    row.H = p_.tiling.units();
    row.args.gates = gates_ + buffer * written_step_;
    row.args.y = y_ + buffer * written_step_;
#pragma unroll
    for (int i = 0; i < SavedTensors<Cell>(); ++i) {
      row.args.saved[i] = row.args.y + (i + 1) * kRows * p_.tiling.units();
    }
    row.args.keep = p_.args.keep != 0;
    return row;
  }

  const ForwardLayout at_;
  const int product_tile_, product_part_;  // of this warp: unit tile, part of the depth,
  const int first_chunk_, count_;          // in chunks,
  const uint4* const first_words_;         // whose words of h, of use 0, begin here
  const bool has_elements_;
  const bool two_buffers_, some_idle_;
  const int clears_;  // words of h, where some warps have no elements
  const int buffer_;  // from one buffer of sums to the other
  const int put_;     // where this lane's first sums go, in a buffer
  const int got_;     // where its element's are, of the first part
  Sums* const sums_;
  // Of this thread's element: what is known of it, its first gate of wx, of the gates; its y.
  const unsigned char* const seen_;
  const int read_step_, written_step_;
  const T* const read_;
  T *const gates_, *const y_;
  TileA<T>* const tiles_;
  TileA<T> held_[kHeld][2 * kGates];
};

template <class Cell, class T, int kTiles, bool kCluster>
__global__ void __launch_bounds__(kResidentForwardThreads, 1)
    ResidentForward(const __grid_constant__ ResidentForwardParams<T> p) {
  if constexpr (HasOnChipCode(kCluster)) {
    using Run = ResidentForwardRun<Cell, T, kTiles, kCluster>;
    if (threadIdx.x >= kResidentWarps * 32) {
      FewerRegisters<kServiceRegisters<Cell, T>>();
      Run(p).Serve();
    } else {
      MoreRegisters<kElementRegisters<Cell, T>>();
      Run(p).Walk();
    }
  }
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_
