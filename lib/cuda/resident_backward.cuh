// The backward walk of a persistent kernel. A block has the gates' gradients of its own units, all
// of what they add to dh of every unit of the group, and hands each block its part: what is
// exchanged is a quarter of what all gates' gradients would be.
//
// Sums of dh arrive in the order in which tensor cores leave them, a tile of 16 units × 8 rows from
// each block of the group.
#ifndef HASTE_LIB_CUDA_RESIDENT_BACKWARD_CUH_
#define HASTE_LIB_CUDA_RESIDENT_BACKWARD_CUH_

#include "lib/cuda/resident_forward.cuh"

namespace haste {

template <class T>
using ResidentBackwardParams = ResidentParams<T, HasteRnnBackwardArgs>;

constexpr int kBackwardSlots = 2;

// Steps are counted as they are walked, `done` before: from the last on.
template <class Cell, class T, int kTiles, bool kCluster>
class ResidentBackwardRun : ResidentThread<Cell, ResidentBackwardParams<T>, kTiles> {
  using Params = ResidentBackwardParams<T>;
  using Base = ResidentThread<Cell, Params, kTiles>;
  using Base::column_, Base::group_, Base::k_, Base::lane_, Base::p_, Base::rank_, Base::tile_,
      Base::warp_;
  using Base::kGates, Base::kStates, Base::kThreads;
  using Kept = Reserve<Cell, T, kGates>;
  static constexpr int kParts = kMmaParts<T>;
  static constexpr int kHeld = SizesOf<Cell, T>().held_pairs();
  static constexpr int kSumStride = BackwardLayout::kSumStride;
  static constexpr int kSumTile = BackwardLayout::kSumTile;
  // Tiles of sums that a thread asks for at once.
  static constexpr int kAhead = 6;
  // A chunk's halves are summed apart where a tile is one chain of products.
  static constexpr int kChains = kParts == 1 && kTiles == 1 ? 2 : 1;
  // Of words on their way: kCluster: in this block's memory; else in that of all groups.
  using Index = std::conditional_t<kCluster, int, int64_t>;

 public:
  __device__ __forceinline__ explicit ResidentBackwardRun(const Params& p)
      : ResidentBackwardRun(p, BackwardLayout(p.tiling, SizesOf<Cell, T>(), kCluster)) {}

  __device__ __forceinline__ void Walk() {
    LoadTiles();
    Prepare();
    const int steps = static_cast<int>(p_.T_);
    bool wants_initial = false;
    for (int s = 0; s < kStates; ++s) wants_initial |= p_.args.ds0[s] != nullptr;
    for (int pass = 0; pass < p_.tiling.passes; ++pass) Base::LoadStates(p_.args.dsT, pass);
    StepPlace place = Base::PlaceOf(steps - 1);
    Inputs inputs;
    inputs.Ask(*this, steps - 1, 0, place);
    auto gates_ahead = Base::template PrefetcherOf<kGates>(p_.args.gates, true);
    auto dy_ahead = Base::template PrefetcherOf<1>(p_.args.dy, true);
    // Of the states the last is what every cell reads: h comes first.
    auto saved_ahead = Base::template PrefetcherOf<1>(p_.args.saved[kSavedStates<Cell> - 1], true);
    const int passes = p_.tiling.passes;
    for (int done = 0; done < steps; ++done) {
      const int step = steps - 1 - done;
      for (int pass = 0; pass < passes; ++pass) {
        if (done > 0) Gather(done - 1, pass);
        __syncthreads();
        Finish(done, pass, place, inputs);
        __syncthreads();
        if (wants_initial || step > 0) Multiply(done, pass);
        // What comes next, and no block makes, is on its way while sums are.
        const bool wraps = pass + 1 == passes;
        place = Base::Further(place, wraps ? -1 : 0, wraps ? 1 - passes : 1);
        if (step > 0 || !wraps) {
          inputs.Ask(*this, wraps ? step - 1 : step, wraps ? 0 : pass + 1, place);
        }
        if (step >= kPrefetchSteps) {
          gates_ahead.Ask(pass, pass * Base::kRows);
          dy_ahead.Ask(pass, pass * Base::kRows);
          saved_ahead.Ask(pass, pass * Base::kRows);
        }
      }
      gates_ahead.Advance();
      dy_ahead.Advance();
      saved_ahead.Advance();
    }
    for (int pass = 0; wants_initial && pass < p_.tiling.passes; ++pass) {
      Gather(steps - 1, pass);
      __syncthreads();
      CarryOut(pass);
      __syncthreads();
    }
    if (kCluster && !alone()) ClusterSync();
  }

 private:
  __device__ __forceinline__ ResidentBackwardRun(const Params& p, const BackwardLayout& at)
      : Base(p, reinterpret_cast<float*>(resident_shared + at.states)),
        words_of_pass_(ReceivedSums(p.tiling) / 16),
        chunks_(p.tiling.chunks),
        tiles_of_block_(p.tiling.unit_tiles * kTiles),
        sum_tile_(warp_ % tiles_of_block_),
        sum_part_(warp_ / tiles_of_block_),
        sum_parts_(kResidentWarps / tiles_of_block_),
        counters_(reinterpret_cast<ArrivalCounter*>(resident_shared + at.counters)),
        receive_(reinterpret_cast<uint4*>(resident_shared + at.receive)),
        sums_(reinterpret_cast<float*>(resident_shared + at.sums)),
        operand_(reinterpret_cast<uint4*>(resident_shared + at.operand)),
        tiles_(reinterpret_cast<TileA<T>*>(resident_shared + at.tiles)) {
    const int unit = tile_ * kTileRows + lane_ % 16;
    const int word = column_ / 8 * 32 + column_ % 8 * 4 + unit / 8;
    operand_at_ = reinterpret_cast<uint16_t*>(operand_ + word) + unit % 8;
  }

  __device__ __forceinline__ bool alone() const { return p_.tiling.blocks == 1; }

  __device__ __forceinline__ void Prepare() {
    if (kCluster && threadIdx.x == 0) {
      for (int i = 0; i < kBackwardSlots * p_.tiling.passes; ++i) counters_[i].Init();
    }
    // Gates behind the last of a chunk are multiplied too.
    for (int i = threadIdx.x; i < chunks_ * kTiles * 32 * kParts; i += kThreads) {
      operand_[i] = make_uint4(0, 0, 0, 0);
    }
    if (kCluster && !alone()) {
      ClusterSync();
    } else {
      __syncthreads();
    }
  }

  // --- Rᵀ

  // Unit tile of the group: `i` of the two of a warp's pair.
  __device__ __forceinline__ int TileOf(int pair, int i) const {
    return warp_ + kResidentWarps * (2 * pair + i);
  }
  // i: half · 2 + which tile of the pair.
  __device__ __forceinline__ void LoadTile(int pair, int chunk, int i, TileA<T>* tile) const {
    const int H = static_cast<int>(p_.H);
    const int first_unit = TileOf(pair, i % 2) * kTileRows;
    const int shift = p_.tiling.unit_tiles == 2 ? 5 : 4;  // of a block's units
    const int own = rank_ << shift;
    const T* r = static_cast<const T*>(p_.args.R) + k_ * p_.H * kGates * p_.H;
    tile->Load(i / 2, [&](int row, int depth) {
      const int at = chunk * kChunkDepth + depth, gate = at >> shift;
      const int unit = first_unit + row, j = own + at - (gate << shift);
      return gate < kGates && unit < H && j < H ? r[(unit * kGates + gate) * H + j]
                                                : FromCompute<T>(0);
    });
  }
  __device__ __forceinline__ TileA<T>* TileAt(int place, int i) const {
    return tiles_ + (((place - kHeld) * 4 + i) * kResidentWarps + warp_) * 32 + lane_;
  }
  // Places: pairs one after the other, all chunks of each.
  __device__ __forceinline__ int places() const { return p_.tiling.pairs() * chunks_; }
  __device__ __forceinline__ void LoadTiles() {
#pragma unroll
    for (int place = 0; place < kHeld; ++place) {
      if (place >= places()) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        LoadTile(place / chunks_, place % chunks_, i, &held_[place][i]);
      }
    }
    for (int place = kHeld; place < places(); ++place) {
      for (int i = 0; i < 4; ++i) {
        TileA<T> tile;
        LoadTile(place / chunks_, place % chunks_, i, &tile);
        *TileAt(place, i) = tile;
      }
    }
  }

  // --- Sums on their way: [slot, pass, receiver (grid), sender, unit tile, row tile, lane]

  __device__ __forceinline__ Index SlotOf(int done, int pass, int receiver) const {
    const int use = (done & 1) * p_.tiling.passes + pass;
    if (kCluster) return use * words_of_pass_;
    return ((static_cast<Index>(group_) * kBackwardSlots * p_.tiling.passes + use) *
                p_.tiling.blocks +
            receiver) *
           words_of_pass_;
  }
  __device__ __forceinline__ ArrivalCounter* CounterOf(int done, int pass) const {
    return counters_ + (done & 1) * p_.tiling.passes + pass;
  }
  // Which use of their place words are of (grid). The first is 0: memory begins with all bits set.
  __device__ __forceinline__ uint32_t TagOf(int done) const { return done >> 1 & 1; }

  __device__ __forceinline__ void Send(int done, int pass, int tile, int n, const float* c) {
    const int second = p_.tiling.unit_tiles - 1;  // 0, or 1: has every block two
    const int receiver = tile >> second, own_tile = tile & second;
    const int at = (rank_ * tiles_of_block_ + own_tile * kTiles + n) * 32 + lane_;
    if constexpr (kCluster) {
      uint4* to = receive_ + SlotOf(done, pass, receiver) + at;
      const uint4 word = make_uint4(__float_as_uint(c[0]), __float_as_uint(c[1]),
                                    __float_as_uint(c[2]), __float_as_uint(c[3]));
      if (alone()) {
        *to = word;
      } else {
        Push(AddressIn(SharedAddress(to), receiver), word,
             AddressIn(SharedAddress(CounterOf(done, pass)), receiver));
      }
    } else {
      const uint32_t tag = TagOf(done);
      StoreRelaxed(
          p_.exchange + SlotOf(done, pass, receiver) + at,
          make_uint4(Tagged(c[0], tag), Tagged(c[1], tag), Tagged(c[2], tag), Tagged(c[3], tag)));
    }
  }

  // What all blocks have sent when `done` was `done`: a warp adds up one tile from some of them.
  __device__ __forceinline__ void Gather(int done, int pass) {
    if (kCluster) {
      if (alone()) {
        __syncthreads();
      } else {
        ArrivalCounter* counter = CounterOf(done, pass);
        if (threadIdx.x == 0) counter->Expect(ReceivedSums(p_.tiling));
        counter->Wait(TagOf(done));
      }
    }
    const uint4* from =
        (kCluster ? receive_ : p_.exchange) + SlotOf(done, pass, rank_) + sum_tile_ * 32 + lane_;
    const auto load = [&](int sender) {
      const uint4* at = from + sender * tiles_of_block_ * 32;
      return kCluster ? *at : LoadRelaxed(at);
    };
    float sum[4] = {};
    for (int first = sum_part_; first < p_.tiling.blocks; first += kAhead * sum_parts_) {
      uint4 words[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int sender = first + i * sum_parts_;
        if (sender < p_.tiling.blocks) words[i] = load(sender);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int sender = first + i * sum_parts_;
        if (sender >= p_.tiling.blocks) break;
        if constexpr (!kCluster) {
          while (!HasTag(words[i], TagOf(done))) words[i] = load(sender);
        }
        sum[0] += __uint_as_float(words[i].x);
        sum[1] += __uint_as_float(words[i].y);
        sum[2] += __uint_as_float(words[i].z);
        sum[3] += __uint_as_float(words[i].w);
      }
    }
    float* to = sums_ + warp_ * kSumTile;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[(lane_ % 4 * 2 + i % 2) * kSumStride + lane_ / 4 + i / 2 * 8] = sum[i];
    }
  }
  // The same, of this thread's element, from all warps: 8, or 4 with two tiles.
  __device__ __forceinline__ float GetSum() const {
    const int first = tile_ * kTiles + column_ / 8;
    const float* from = sums_ + first * kSumTile + column_ % 8 * kSumStride + lane_ % 16;
    const int stride = tiles_of_block_ * kSumTile;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kResidentWarps; i += 4) {
      if (i >= sum_parts_) break;
      sum += (from[i * stride] + from[(i + 1) * stride]) +
             (from[(i + 2) * stride] + from[(i + 3) * stride]);
    }
    return sum;
  }

  // --- A step

  __device__ __forceinline__ void CarryOut(int pass) {
    const Element e = Base::ElementOf(pass);
    if (!e.exists) return;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (p_.args.ds0[s] == nullptr) continue;
      float ds = Base::State(pass, s);
      if (s == 0) ds = MulAdd(GetSum(), Base::Scale(pass), ds);
      static_cast<T*>(p_.args.ds0[s])[e.at] = FromCompute<T>(ds);
    }
  }

  // What this thread reads of a pass that no block makes: the reserve, dy.
  struct Inputs {
    Kept kept;
    T dy;
    Foreseen seen;

    __device__ __forceinline__ void Ask(const ResidentBackwardRun& run, int step, int pass,
                                        const StepPlace& place) {
      const T* all_dy = static_cast<const T*>(run.p_.args.dy);
      if (run.There(pass)) {
        kept.Load(run.p_, place);
        dy = all_dy == nullptr ? FromCompute<T>(0) : all_dy[place.one];
      }
      seen = run.Foresee(step, pass);
    }
  };

  // The gradients of the cell, on this thread's element.
  __device__ __forceinline__ void Finish(int done, int pass, const StepPlace& place,
                                         const Inputs& inputs) {
    if (tile_ >= p_.tiling.unit_tiles) return;
    const Foreseen& seen = inputs.seen;
    const float scale = Base::Scale(pass);
    float ds[kStates], dx[kGates] = {}, dq[kGates] = {};
#pragma unroll
    for (int s = 0; s < kStates; ++s) ds[s] = Base::State(pass, s);
    if (done > 0) ds[0] = MulAdd(GetSum(), scale, ds[0]);
    // y of a masked step is the y before it, so its gradient belongs to that state.
    if (seen.live || seen.repeats) ds[0] += ToCompute(inputs.dy);
    if (seen.live) {
      float kept[Cell::kKept], prev[kStates], share[kStates] = {};
      inputs.kept.Get(kept, prev);
      if (p_.zoneout) Base::Shares(seen, share);
      ElementBackward<Cell, T>(p_, kept, prev, share, scale, ds, dx, dq);
    }
    SetOperand(dq);
#pragma unroll
    for (int s = 0; s < kStates; ++s) Base::State(pass, s) = ds[s];
    if (!Base::There(pass)) return;
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      static_cast<T*>(p_.args.dwx)[place.gates + g * p_.H] = FromCompute<T>(dx[g]);
      if constexpr (Cell::kSplitsGradient) {
        static_cast<T*>(p_.args.dq)[place.gates + g * p_.H] = FromCompute<T>(dq[g]);
      }
    }
  }

  // Depth of the block's own product: gate · units + unit. [part, chunk, row tile, lane].
  __device__ __forceinline__ void SetOperand(const float (&dq)[kGates]) {
    const bool two = p_.tiling.unit_tiles == 2;  // else two gates share a chunk
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      const int chunk = two ? g : g / 2, eighth = two ? 0 : g % 2 * 2;
      uint16_t part[3];
      if constexpr (kParts == 1) {
        part[0] = FromCompute<T>(dq[g]).bits;
      } else {
        Split(dq[g], part);
      }
#pragma unroll
      for (int s = 0; s < kParts; ++s) {
        operand_at_[((s * chunks_ + chunk) * kTiles * 32 + eighth) * 8] = part[s];
      }
    }
  }

  // The gradients of the block's gates with its columns of Rᵀ: parts of dh, to those who own them.
  __device__ __forceinline__ void Multiply(int done, int pass) {
    TileC<T> sums[2][kTiles][kChains];
    int chunk = 0, pair = 0;
    const auto add = [&](const TileA<T>(&tiles)[4]) {
      ChunkB<T> b[kTiles];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int s = 0; s < kParts; ++s) {
          const uint4 v = operand_[((s * chunks_ + chunk) * kTiles + n) * 32 + lane_];
          b[n].part[s][0] = v.x;
          b[n].part[s][1] = v.y;
          b[n].part[s][2] = v.z;
          b[n].part[s][3] = v.w;
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            sums[i][n][half % kChains].Add(tiles[half * 2 + i], b[n], half, p_.exact);
          }
        }
      }
      if (++chunk < chunks_) return;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int tile = TileOf(pair, i);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          float c[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            c[e] = sums[i][n][0].Get(e);
            if constexpr (kChains == 2) c[e] += sums[i][n][kChains - 1].Get(e);
          }
          if (tile < p_.tiling.blocks * p_.tiling.unit_tiles) Send(done, pass, tile, n, c);
#pragma unroll
          for (int k = 0; k < kChains; ++k) sums[i][n][k] = TileC<T>();
        }
      }
      chunk = 0;
      ++pair;
    };
#pragma unroll
    for (int place = 0; place < kHeld; ++place) {
      if (place >= places()) break;
      add(held_[place]);
    }
    for (int place = kHeld; place < places(); ++place) {
      TileA<T> tiles[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) tiles[i] = *TileAt(place, i);
      add(tiles);
    }
  }

  const int words_of_pass_, chunks_, tiles_of_block_;
  const int sum_tile_, sum_part_, sum_parts_;  // of this warp: tile of sums, which part of how many
  ArrivalCounter* const counters_;
  uint4* const receive_;
  float* const sums_;
  uint4* const operand_;
  uint16_t* operand_at_;  // this thread's gate 0
  TileA<T>* const tiles_;
  TileA<T> held_[kHeld][4];
};

template <class Cell, class T, int kTiles, bool kCluster>
__global__ void __launch_bounds__(kResidentWarps * 32, 1)
    ResidentBackward(const __grid_constant__ ResidentBackwardParams<T> p) {
  ResidentBackwardRun<Cell, T, kTiles, kCluster>(p).Walk();
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_RESIDENT_BACKWARD_CUH_
