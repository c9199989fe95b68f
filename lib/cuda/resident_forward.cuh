// The forward walk of a persistent kernel: h goes to all blocks of the group, each multiplies it
// with its units' columns of R, and makes the next h of its units.
//
// A warp has one tile of 16 units, of all gates, and a part of the depth; the parts meet in shared
// memory. One barrier a pass where these are double-buffered: all else is a thread's own.
#ifndef HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_
#define HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_

#include "lib/cuda/async.cuh"
#include "lib/cuda/resident_params.cuh"
#include "lib/cuda/stepwise_cell.cuh"

namespace haste {

template <class T>
using ResidentForwardParams = ResidentParams<T, HasteRnnForwardArgs>;

extern __shared__ __align__(16) unsigned char resident_shared[];

// Slots of h on its way. A cluster's blocks count what arrives, so two will do; words of global
// memory are cleared for their next use while two more are in use, and one being written.
template <bool kCluster>
constexpr int kForwardSlots = kCluster ? 2 : 4;

template <class Cell, class T>
constexpr ResidentCell SizesOf() {
  return {Cell::kGates, Cell::kStates, sizeof(T)};
}

template <class Cell, class T, int kTiles, bool kCluster>
class ResidentForwardRun : ResidentThread<Cell, ResidentForwardParams<T>, kTiles> {
  using Params = ResidentForwardParams<T>;
  using Base = ResidentThread<Cell, Params, kTiles>;
  using Base::column_, Base::group_, Base::k_, Base::lane_, Base::p_, Base::rank_, Base::tile_,
      Base::unit_, Base::warp_;
  using Base::kGates, Base::kStates, Base::kThreads;
  static constexpr int kHeld = SizesOf<Cell, T>().held_chunks();
  using Sums = Fragment<float, SizesOf<Cell, T>().width()>;
  static constexpr int kWords = sizeof(T) / 2;  // of 16 bytes, that a lane has of a chunk
  static constexpr int kSlots = kForwardSlots<kCluster>;
  // Chunks asked for at once.
  static constexpr int kAhead = kHeld < 4 ? kHeld : 4;
  // A tile's sums in several chains, where there are too few tiles to cover a product's latency.
  static constexpr int kChains = kGates == 1 ? 4 / kTiles : 1;
  // Of words on their way: kCluster: in this block's memory; else in that of all groups.
  using Index = std::conditional_t<kCluster, int, int64_t>;

 public:
  __device__ __forceinline__ explicit ResidentForwardRun(const Params& p)
      : ResidentForwardRun(p, ForwardLayout(p.tiling, SizesOf<Cell, T>(), kCluster)) {}

  __device__ __forceinline__ void Walk() {
    LoadTiles();
    if (kCluster) PrepareToReceive();
    for (int pass = 0; pass < p_.tiling.passes; ++pass) {
      Base::LoadStates(p_.args.s0, pass);
      Send(0, pass, Base::State(pass, 0) * Base::Scale(pass));
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
        if (!kCluster && warp_ == kResidentWarps - 1) Clear(step, pass);
      }
      ahead.Advance();
    }
    // Nobody leaves while others may still write into its memory.
    if (kCluster && !alone()) ClusterSync();
  }

 private:
  __device__ __forceinline__ ResidentForwardRun(const Params& p, const ForwardLayout& at)
      : Base(p, reinterpret_cast<float*>(resident_shared + at.states)),
        product_tile_(warp_ % p.tiling.unit_tiles),
        product_part_(warp_ / p.tiling.unit_tiles),
        sums_of_warp_(at.sums_of_warp),
        two_buffers_(at.sum_buffers == 2),
        words_of_pass_(ReceivedStates(p.tiling, sizeof(T)) / 16),
        chunks_(p.tiling.hidden_chunks()),
        counters_(reinterpret_cast<ArrivalCounter*>(resident_shared + at.counters)),
        receive_(reinterpret_cast<uint4*>(resident_shared + at.receive)),
        sums_(reinterpret_cast<Sums*>(resident_shared + at.sums)),
        tiles_(reinterpret_cast<TileA<T>*>(resident_shared + at.tiles)),
        send_to_(SendTo()) {}

  __device__ __forceinline__ bool alone() const { return p_.tiling.blocks == 1; }

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

  // --- h on its way: [slot, pass, row tile, chunk, word, lane] of 16 bytes

  __device__ __forceinline__ Index SlotOf(int step, int pass) const {
    const int use = (step & (kSlots - 1)) * p_.tiling.passes + pass;
    if (kCluster) return use * words_of_pass_;
    return (static_cast<Index>(group_) * kSlots * p_.tiling.passes + use) * words_of_pass_;
  }
  // Of one lane's words of a chunk, within a slot.
  __device__ __forceinline__ int WordAt(int tile, int chunk, int word, int lane) const {
    return ((tile * chunks_ + chunk) * kWords + word) * 32 + lane;
  }
  __device__ __forceinline__ ArrivalCounter* CounterOf(int step, int pass) const {
    return counters_ + (step & 1) * p_.tiling.passes + pass;
  }

  // Cluster: counters; and half a chunk behind the last unit, if there is one, is never written.
  __device__ __forceinline__ void PrepareToReceive() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2 * p_.tiling.passes; ++i) counters_[i].Init();
    }
    for (int i = threadIdx.x; i < 2 * p_.tiling.passes * words_of_pass_; i += kThreads) {
      receive_[i] = make_uint4(0, 0, 0, 0);
    }
    if (alone()) {
      __syncthreads();
    } else {
      ClusterSync();
    }
  }

  // h of each lane to all blocks, as it enters `step`. A warp's two rows of 16 units are
  // kWordsOfWarp words of 16 bytes where they arrive.
  static constexpr int kWordsOfWarp = 4 * kWords, kElements = 8 / kWords;
  static constexpr int kLanes = 4 / sizeof(T);  // that share 32 bits
  __device__ __forceinline__ void Send(int step, int pass, float h) const {
    if (tile_ >= p_.tiling.unit_tiles) return;
    uint32_t mine;
    if constexpr (kWords == 1) {
      mine = FromCompute<T>(h).bits;
      mine |= __shfl_down_sync(0xFFFFFFFFu, mine, 1) << 16;  // of even lanes a pair
    } else {
      mine = h == h ? __float_as_uint(h) : 0x7FC00000u;  // NaN, but not kAbsent
    }
    if constexpr (kCluster) {
      const int first = lane_ % kWordsOfWarp * kElements;
      uint4 word;
      word.x = __shfl_sync(0xFFFFFFFFu, mine, first);
      word.y = __shfl_sync(0xFFFFFFFFu, mine, first + kLanes);
      word.z = __shfl_sync(0xFFFFFFFFu, mine, first + 2 * kLanes);
      word.w = __shfl_sync(0xFFFFFFFFu, mine, first + 3 * kLanes);
      const int at = SlotOf(step, pass) + send_to_;
      if (alone()) {
        if (lane_ < kWordsOfWarp) receive_[at] = word;
        return;
      }
      // Lanes with the same word take the blocks by turns.
      const uint32_t here = SharedAddress(receive_ + at);
      const uint32_t counter = SharedAddress(CounterOf(step, pass));
      for (int rank = lane_ / kWordsOfWarp; rank < p_.tiling.blocks; rank += 32 / kWordsOfWarp) {
        Push(AddressIn(here, rank), word, AddressIn(counter, rank));
      }
    } else if (lane_ % kLanes == 0) {
      uint4* to = p_.exchange + SlotOf(step, pass) + send_to_;
      StoreRelaxed(reinterpret_cast<uint32_t*>(to) + lane_ % kElements / kLanes, mine);
    }
  }
  // Where in a slot this lane's word goes.
  __device__ __forceinline__ int SendTo() const {
    const int unit_tile = rank_ * p_.tiling.unit_tiles + tile_;
    const int first = lane_ % kWordsOfWarp * kElements;  // element of the word, in the warp's order
    const int row = kCluster ? column_ - lane_ / 16 + first / 16 : column_;
    const int unit = (kCluster ? first : lane_) % 16;
    // A receiver's lane: 4 · the row + the element's eighth of the chunk.
    return WordAt(row / 8, unit_tile / 2, unit % 8 / kElements,
                  row % 8 * 4 + unit_tile % 2 * 2 + unit / 8);
  }

  // Grid: this block's words of the h before, for their next use. By one warp, whose next barrier
  // puts this before all that is sent from the next step on.
  __device__ __forceinline__ void Clear(int step, int pass) {
    // All blocks have sent their h of this step, so all have read that of the step before.
    uint4* from = p_.exchange + SlotOf(step - 1, pass);
    const int eighths = 2 * p_.tiling.unit_tiles;  // of a chunk, of this block
    for (int i = lane_; i < eighths * Base::kRows * kWords; i += 32) {
      const int word = i % kWords, row = i / kWords % Base::kRows;
      const int eighth = rank_ * eighths + i / kWords / Base::kRows;
      StoreRelaxed(from + WordAt(row / 8, eighth / 4, word, row % 8 * 4 + eighth % 4),
                   make_uint4(kAbsent, kAbsent, kAbsent, kAbsent));
    }
    __threadfence();
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
    if (kCluster) {
      if (alone()) {
        __syncthreads();
      } else {
        ArrivalCounter* counter = CounterOf(step, pass);
        if (threadIdx.x == 0) {
          counter->Expect(p_.tiling.padded_hidden() * Base::kRows * static_cast<int>(sizeof(T)));
        }
        counter->Wait(step >> 1 & 1);
      }
    }
    TileC<T> sums[kGates][kTiles][kChains];
    const uint4* from = (kCluster ? receive_ : p_.exchange) + SlotOf(step, pass);
    const int first = product_part_ * p_.tiling.chunks;
    const int count = min(p_.tiling.chunks, chunks_ - first);
#pragma unroll
    for (int c = 0; c < kHeld; c += kAhead) {
      if (c >= count) break;
      uint4 words[kAhead][kTiles][kWords];
      Receive(from, first + c, count - c, words);
#pragma unroll
      for (int a = 0; a < kAhead && c + a < kHeld; ++a) {
        if (c + a >= count) break;
        AddChunk(words[a], held_[c + a], sums, a);
      }
    }
    for (int c = kHeld; c < count; ++c) {
      uint4 words[1][kTiles][kWords];
      Receive(from, first + c, 1, words);
      TileA<T> tiles[2 * kGates];
#pragma unroll
      for (int i = 0; i < 2 * kGates; ++i) tiles[i] = *TileAt(c, i);
      AddChunk(words[0], tiles, sums, 0);
    }
    if (!two_buffers_) __syncthreads();  // the sums before have been read
    Sums* to = SumsOf(buffer, warp_);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = n * kTileColumns + lane_ % 4 * 2 + i % 2, unit = lane_ / 4 + i / 2 * 8;
        Sums sum = {};
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          sum.v[g] = sums[g][n][0].Get(i);
#pragma unroll
          for (int c = 1; c < kChains; ++c) sum.v[g] += sums[g][n][c].Get(i);
        }
        to[SizesOf<Cell, T>().sum_at(row, unit)] = sum;
      }
    }
  }

  __device__ __forceinline__ Sums* SumsOf(int buffer, int warp) const {
    return sums_ + ((two_buffers_ ? buffer * kResidentWarps : 0) + warp) * sums_of_warp_;
  }

  // Words of `count` chunks or kBatch of them, from `chunk` on.
  template <int kBatch>
  __device__ __forceinline__ void Receive(const uint4* from, int chunk, int count,
                                          uint4 (&words)[kBatch][kTiles][kWords]) {
    const auto load = [&](int b, int n, int w) {
      const uint4* at = from + WordAt(n, chunk + b, w, lane_);
      return kCluster ? *at : LoadRelaxed(at);
    };
    // Behind the last unit nothing is ever sent.
    const auto there = [&](int b) {
      return kCluster || (chunk + b) * 32 + lane_ % 4 * 8 < p_.tiling.padded_hidden();
    };
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (b >= count) break;
#pragma unroll
      for (int i = 0; i < kTiles * kWords; ++i) {
        words[b][i / kWords][i % kWords] =
            there(b) ? load(b, i / kWords, i % kWords) : make_uint4(0, 0, 0, 0);
      }
    }
    if constexpr (!kCluster) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (b >= count) break;
#pragma unroll
        for (int i = 0; i < kTiles * kWords; ++i) {
          uint4& word = words[b][i / kWords][i % kWords];
          while (!__all_sync(0xFFFFFFFFu, HasArrived(word))) {
            if (!HasArrived(word)) word = load(b, i / kWords, i % kWords);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void AddChunk(const uint4 (&words)[kTiles][kWords],
                                           const TileA<T> (&tiles)[2 * kGates],
                                           TileC<T> (&sums)[kGates][kTiles][kChains], int chunk) {
    ChunkB<T> b[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) b[n].Set(words[n]);
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
    const int tiles = p_.tiling.unit_tiles, stride = tiles * sums_of_warp_;
    const Sums* from = SumsOf(buffer, tile_) + SizesOf<Cell, T>().sum_at(column_, lane_ % 16);
    constexpr int kBatch = 4;  // asked for side by side
#pragma unroll
    for (int g = 0; g < kGates; ++g) q[g] = 0;
#pragma unroll
    for (int first = 0; first < kResidentWarps; first += kBatch) {
      if (first * tiles >= kResidentWarps) break;
      Sums part[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) part[i] = from[(first + i) * stride];
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
    const Foreseen& seen = inputs.seen;
    const float scale = Base::Scale(pass);
    float prev[kStates], next[kStates], before[kStates], kept[Cell::kKept] = {};
    float y = 0;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      next[s] = prev[s] = Base::State(pass, s);
      before[s] = s == 0 ? prev[0] * scale : prev[s];
    }
    if (seen.live) {
      float x[kGates], q[kGates], share[kStates] = {};
      GetProduct(buffer, q);
#pragma unroll
      for (int g = 0; g < kGates; ++g) x[g] = ToCompute(inputs.x[g]);
      if constexpr (Cell::kRecurrentBias) {
        const T* bias = static_cast<const T*>(p_.args.extra[kRecurrentBiasAt<Cell>]) +
                        k_ * kGates * p_.H + unit_;
#pragma unroll
        for (int g = 0; g < kGates; ++g) q[g] += ToCompute(bias[g * p_.H]);
      }
      if (p_.zoneout) Base::Shares(seen, share);
      ElementForward<Cell, T>(p_, x, q, before, prev, share, kept, next);
      y = next[0];
    } else if (seen.repeats) {
      y = prev[0];
    }
    if (!last) Send(step + 1, pass, next[0] * scale);
#pragma unroll
    for (int s = 0; s < kStates; ++s) Base::State(pass, s) = next[s];
    if (!Base::There(pass)) return;
    static_cast<T*>(p_.args.y)[place.one] = FromCompute<T>(y);
    if (p_.args.keep) {
      KeepGates<Cell, 0, kGates>(p_, place, kept);
      KeepSaved<Cell>(p_, place, before, kept);
    }
    if (!last) return;
    const int64_t at = Base::ElementOf(pass).at;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (p_.args.sT[s] != nullptr) {
        static_cast<T*>(p_.args.sT[s])[at] = FromCompute<T>(next[s]);
      }
    }
  }

  const int product_tile_, product_part_;  // of this warp: unit tile, part of the depth
  const int sums_of_warp_, words_of_pass_, chunks_;
  const bool two_buffers_;
  ArrivalCounter* const counters_;
  uint4* const receive_;
  Sums* const sums_;
  TileA<T>* const tiles_;
  const int send_to_;
  TileA<T> held_[kHeld][2 * kGates];
};

template <class Cell, class T, int kTiles, bool kCluster>
__global__ void __launch_bounds__(kResidentWarps * 32, 1)
    ResidentForward(const __grid_constant__ ResidentForwardParams<T> p) {
  ResidentForwardRun<Cell, T, kTiles, kCluster>(p).Walk();
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_RESIDENT_FORWARD_CUH_
