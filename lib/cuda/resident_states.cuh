// The states of a persistent kernel's forward walk on their way between the blocks: h goes to all
// blocks of the group, which read it in the order in which tensor cores want it.
#ifndef HASTE_LIB_CUDA_RESIDENT_STATES_CUH_
#define HASTE_LIB_CUDA_RESIDENT_STATES_CUH_

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
class ResidentStates : public ResidentThread<Cell, ResidentForwardParams<T>, kTiles> {
 protected:
  using Params = ResidentForwardParams<T>;
  using Base = ResidentThread<Cell, Params, kTiles>;
  using Base::column_, Base::group_, Base::kThreads, Base::lane_, Base::p_, Base::rank_,
      Base::tile_;
  static constexpr int kHeld = SizesOf<Cell, T>().held_chunks();
  static constexpr int kWords = sizeof(T) / 2;  // of 16 bytes, that a lane has of a chunk
  // Chunks asked for at once.
  static constexpr int kAhead = kHeld < 4 ? kHeld : 4;

  __device__ __forceinline__ ResidentStates(const Params& p, const ForwardLayout& at)
      : Base(p, reinterpret_cast<float*>(resident_shared + at.states)),
        chunks_(p.tiling.hidden_chunks()),
        words_of_pass_(ReceivedStates(p.tiling, sizeof(T)) / 16),
        counters_(reinterpret_cast<ArrivalCounter*>(resident_shared + at.counters)),
        receive_(reinterpret_cast<uint4*>(resident_shared + at.receive)),
        words_(p.exchange +
               static_cast<int64_t>(group_) * kSlots * p.tiling.passes * words_of_pass_),
        send_to_(SendTo()),
        mine_(reinterpret_cast<uint32_t*>(words_ + send_to_) + lane_ % kElements / kLanes) {}

  __device__ __forceinline__ bool alone() const { return p_.tiling.blocks == 1; }

  // Before anything is sent.
  __device__ __forceinline__ void Prepare() {
    if (kCluster) PrepareToReceive();
  }

  // What all have sent for a step: for Ask and Await.
  __device__ __forceinline__ const uint4* Receive(int step, int pass) const {
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
    return (kCluster ? receive_ : words_) + UseOf(step, pass);
  }

  // This lane's word of row tile n of a chunk.
  __device__ __forceinline__ uint4 WordOf(const uint4* from, int chunk, int n, int word) const {
    const uint4* at = from + WordAt(n, chunk, word, lane_);
    return kCluster ? *at : LoadRelaxed(at);
  }
  // Behind the last unit nothing is ever sent.
  __device__ __forceinline__ bool IsSent(int chunk) const {
    return kCluster || chunk * 32 + lane_ % 4 * 8 < p_.tiling.padded_hidden();
  }
  // Words of `count` chunks or kBatch of them, from `chunk` on; there or not.
  template <int kBatch>
  __device__ __forceinline__ void Ask(const uint4* from, int chunk, int count,
                                      uint4 (&words)[kBatch][kTiles][kWords]) const {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (b >= count) break;
#pragma unroll
      for (int i = 0; i < kTiles * kWords; ++i) {
        words[b][i / kWords][i % kWords] = IsSent(chunk + b)
                                               ? WordOf(from, chunk + b, i / kWords, i % kWords)
                                               : make_uint4(0, 0, 0, 0);
      }
    }
  }
  // Until all that Ask has asked for are there.
  template <int kBatch>
  __device__ __forceinline__ void Await(const uint4* from, int chunk, int count,
                                        uint4 (&words)[kBatch][kTiles][kWords]) const {
    if constexpr (kCluster) return;
    bool waits = true;
    while (waits) {
      waits = false;
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (b >= count) break;
#pragma unroll
        for (int i = 0; i < kTiles * kWords; ++i) {
          uint4& word = words[b][i / kWords][i % kWords];
          while (!__all_sync(0xFFFFFFFFu, HasArrived(word))) {
            if (!HasArrived(word)) word = WordOf(from, chunk + b, i / kWords, i % kWords);
            waits = kTogether;
            if (kTogether) break;
          }
        }
      }
    }
  }

  // h of each lane to all blocks, as it enters `step`. A warp's two rows of 16 units are
  // kWordsOfWarp words of 16 bytes where they arrive.
  __device__ __forceinline__ void Send(int step, int pass, float h) const {
    if (tile_ >= p_.tiling.unit_tiles) return;
    uint32_t mine;
    if constexpr (kWords == 1) {
      mine = PackTwo<T>(h, __shfl_down_sync(0xFFFFFFFFu, h, 1));  // of even lanes a pair
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
      const int at = UseOf(step, pass) + send_to_;
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
      StoreRelaxed(mine_ + UseOf(step, pass) * 4, mine);
    }
  }
  // Grid: this block's words of the h before, for their next use. By one warp, whose next barrier
  // puts this before all that is sent from the next step on.
  __device__ __forceinline__ void Clear(int step, int pass) {
    // All blocks have sent their h of this step, so all have read that of the step before.
    uint4* from = words_ + UseOf(step - 1, pass);
    const int eighths = 2 * p_.tiling.unit_tiles;  // of a chunk, of this block
    for (int i = lane_; i < eighths * Base::kRows * kWords; i += 32) {
      const int word = i % kWords, row = i / kWords % Base::kRows;
      const int eighth = rank_ * eighths + i / kWords / Base::kRows;
      StoreRelaxed(from + WordAt(row / 8, eighth / 4, word, row % 8 * 4 + eighth % 4),
                   make_uint4(kAbsent, kAbsent, kAbsent, kAbsent));
    }
    __threadfence();
  }

 private:
  static constexpr int kSlots = kForwardSlots<kCluster>;
  static constexpr int kWordsOfWarp = 4 * kWords, kElements = 8 / kWords;
  static constexpr int kLanes = 4 / sizeof(T);  // that share 32 bits
  // Words that have not arrived are asked for again all together, or one after the other. Measured:
  // together is a quarter faster for Elman's network in float32, else up to a tenth slower.
  static constexpr bool kTogether = kWords == 2 && kAhead > 1;
  // [slot, pass, row tile, chunk, word, lane] of 16 bytes, in this block's memory (kCluster) or the
  // group's.
  __device__ __forceinline__ int UseOf(int step, int pass) const {
    return ((step & (kSlots - 1)) * p_.tiling.passes + pass) * words_of_pass_;
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

 protected:
  const int chunks_;

 private:
  const int words_of_pass_;
  ArrivalCounter* const counters_;
  uint4* const receive_;
  uint4* const words_;  // of the group, in global memory
  const int send_to_;
  uint32_t* const mine_;  // where in the first use this lane's go
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_RESIDENT_STATES_CUH_
