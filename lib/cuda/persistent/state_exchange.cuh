// The states of a persistent kernel's forward walk on their way between the blocks: h goes to all
// blocks of the group, which read it in the order in which tensor cores want it.
#ifndef HASTE_LIB_CUDA_PERSISTENT_STATE_EXCHANGE_CUH_
#define HASTE_LIB_CUDA_PERSISTENT_STATE_EXCHANGE_CUH_

#include "lib/cuda/cell/cell_step.cuh"
#include "lib/cuda/persistent/params.cuh"
#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/fp16_scale.cuh"
#include "lib/cuda/ptx/global_flags.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"

namespace haste {

template <class T>
using PersistentForwardParams = PersistentParams<T, HasteRnnForwardArgs>;

extern __shared__ __align__(16) unsigned char persistent_shared[];

// Slots of h on its way. A cluster's blocks count what arrives, so two will do; words of global
// memory are cleared long before their next use.
template <bool kCluster>
constexpr int kForwardSlots = kCluster ? 2 : 8;

// How h travels, and who has the elements: the warps that multiply, beside others that serve them;
// or (`grid`) two sets of warps of their own, which take passes by turns: they make one's h while
// those that multiply have the next.
enum class ForwardWay { kCluster, kGrid, kGridWarpSpecialized };

// The roles of a block's warps, in this order.
template <ForwardWay kWay>
struct ForwardRoles {
  static constexpr bool kWarpSpecialized = kWay == ForwardWay::kGridWarpSpecialized;
  static constexpr int kProducts = kPersistentWarps;
  static constexpr int kElements =
      kWarpSpecialized ? kElementSets * kElementWarps : 0;  // and nothing else
  static constexpr int kIoWarps = kWarpSpecialized ? 0 : kCopyWarps;
  static constexpr int kThreads = (kProducts + kElements + kIoWarps) * 32;
};

// Waits for wx of a step, where it is made beside the walk.
class InputFlagsReader {
 public:
  __device__ __forceinline__ explicit InputFlagsReader(const OverlapFlags& flags)
      : steps_there_(flags.counts != nullptr ? 0 : INT32_MAX) {}

  template <class Params>
  __device__ __forceinline__ void Await(const Params& p, bool backwards, int step) {
    p.flags.Await(static_cast<int>(p.N), backwards, step, &steps_there_,
                  [&](int part, uint32_t wanted) { WaitForFlag(p.flags.counts + part, wanted); });
  }

 private:
  int steps_there_;
};

// Registers of a thread of the warps that produce (the I/O warps; where elements are apart,
// those that have them), and of those that multiply: together what the launch gives all. A product
// of two parts with four gates wants every register there is; its I/O warps spill, and have the
// time for it.
template <class Cell, class T, ForwardWay kWay>
struct ForwardRegisters {
  using Roles = ForwardRoles<kWay>;
  static constexpr int kAll = 65536 / Roles::kThreads / 8 * 8;
  static constexpr int kRest = Roles::kWarpSpecialized                  ? 96
                               : kMmaTerms<T> == 2 && Cell::kGates == 4 ? 24
                                                                        : 72;
  static constexpr int kProduct =
      kAll + (kAll - kRest) * (Roles::kElements + Roles::kIoWarps) / Roles::kProducts;
};

// Named barriers. They are not __syncthreads, as roles come to them from different places.
constexpr int kElementsName = 1, kProductName = 2, kRowsName = 3;
constexpr int kTakenName = 4, kThereName = kTakenName + kElementSets;  // one a set
template <int kName, int kWarps>
__device__ __forceinline__ void SyncAt() {
  NamedBarrierSync<kName, kWarps * 32>();
}

// The warps that multiply.
__device__ __forceinline__ void SyncProduct() {
  NamedBarrierSyncAligned<kProductName, kPersistentWarps * 32>();
}
// Those, and the I/O warps.
__device__ __forceinline__ void SyncRows() { SyncAt<kRowsName, kPersistentWarps + kCopyWarps>(); }

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr int kForwardTiles = kFewerPersistentTiles;
#else
constexpr int kForwardTiles = kPersistentTiles;
#endif

template <class Cell, class T, ForwardWay kWay = ForwardWay::kGrid>
constexpr PersistentCell SizesOf() {
  return {Cell::kGates,
          Cell::kStates,
          sizeof(T),
          kOperandBytes<T>,
          kMmaTerms<T>,
          SavedTensors<Cell>(),
          kWay == ForwardWay::kGridWarpSpecialized ? kWarpSpecializedTiles : kForwardTiles};
}

template <class Cell, class T, int kTiles, ForwardWay kWay>
class StateExchange : public PersistentThread<Cell, PersistentForwardParams<T>, kTiles> {
  template <class, class, int, ForwardWay>
  friend class IoWarps;

 protected:
  using Params = PersistentForwardParams<T>;
  using Base = PersistentThread<Cell, Params, kTiles>;
  using Base::column_, Base::group_, Base::kThreads, Base::lane_, Base::p_, Base::rank_,
      Base::tile_;
  static constexpr bool kCluster = kWay == ForwardWay::kCluster;
  static constexpr bool kWarpSpecialized = ForwardRoles<kWay>::kWarpSpecialized;
  static constexpr int kHeld = SizesOf<Cell, T, kWay>().held_chunks();
  static constexpr int kWords = kOperandBytes<T> / 2;  // of 16 bytes, that a lane has of a chunk
  // Chunks asked for at once: floats of two tiles leave few registers.
  static constexpr int kAhead = kWords * kTiles == 4   ? 1
                                : kHeld < kChunksAsked ? kHeld
                                                       : kChunksAsked;

  __device__ __forceinline__ StateExchange(const Params& p, const ForwardLayout& at)
      : Base(p, WarpOfRole(), threadIdx.x % 32,
             reinterpret_cast<float*>(persistent_shared + at.states)),
        chunks_(p.tiling.hidden_chunks()),
        sent_chunks_(Opaque((p.tiling.padded_hidden() - lane_ % 4 * 8 + 31) / 32)),
        tile_words_(Opaque(chunks_ * kWords * 32)),
        words_of_pass_(ReceivedStates(p.tiling, kOperandBytes<T>) / 16),
        counters_(reinterpret_cast<TransactionBarrier*>(persistent_shared + at.counters)),
        receive_(reinterpret_cast<uint4*>(persistent_shared + at.receive)),
        words_(p.exchange +
               static_cast<int64_t>(group_) * kSlots * p.tiling.passes * words_of_pass_),
        send_to_(SendTo()),
        mine_(reinterpret_cast<uint32_t*>(words_ + send_to_) + lane_ % kElements / kLanes) {}

  __device__ __forceinline__ int unit_tiles() const {
    return kWarpSpecialized ? 1 : p_.tiling.unit_tiles;
  }
  __device__ __forceinline__ bool alone() const { return p_.tiling.blocks == 1; }

  // Before anything is sent.
  __device__ __forceinline__ void Prepare() {
    if (kCluster) PrepareToReceive();
  }

  // Waits for what all have sent for a step, where that is counted.
  __device__ __forceinline__ void Receive(int step, int pass) const {
    if constexpr (kCluster) {
      if (alone()) {
        SyncProduct();
      } else {
        TransactionBarrier* counter = CounterOf(step, pass);
        if (threadIdx.x == 0) {
          counter->ArriveAndExpect(p_.tiling.padded_hidden() * Base::kRows * kOperandBytes<T>);
        }
        counter->Wait(step >> 1 & 1);
      }
    }
  }

  // Where a lane's words of a use are, from this chunk on.
  __device__ __forceinline__ const uint4* PlaceOfWords(int chunk) const {
    return Opaque((kCluster ? receive_ : words_) + WordAt(0, chunk, 0, lane_));
  }
  // A lane's words of `count` chunks or kBatch of them, from `chunk` on, which begin at `from`;
  // there or not. Behind the last unit nothing is ever sent, and other blocks' words of the grid
  // are not cleared: of several, those that are not asked for are left as they are.
  template <int kBatch>
  __device__ __forceinline__ void Ask(const uint4* from, int chunk, int count,
                                      uint4 (&words)[kBatch][kTiles][kWords]) const {
    if (!kCluster) count = min(count, sent_chunks_ - chunk);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          if (b < count) {
            words[b][n][w] = Word(from, b, w);
          } else if (kBatch == 1) {
            words[b][n][w] = uint4{};
          }
        }
      }
      from += tile_words_;
    }
  }
  // Until all that Ask has asked for are there.
  template <int kBatch>
  __device__ __forceinline__ void Await(const uint4* from,
                                        uint4 (&words)[kBatch][kTiles][kWords]) const {
    while (!kCluster && !__all_sync(0xFFFFFFFFu, HaveArrived(words))) {
      const uint4* at = from;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
#pragma unroll
          for (int w = 0; w < kWords; ++w) {
            if (!HasArrived(words[b][n][w])) words[b][n][w] = Word(at, b, w);
          }
        }
        at += tile_words_;
      }
    }
  }

  // h of each lane to all blocks, as it enters `step`. A warp's two rows of 16 units are
  // kWordsOfWarp words of 16 bytes where they arrive.
  __device__ __forceinline__ void Send(int step, int pass, float h) const {
    Send(step, pass, h, WordOf(step, pass));
  }
  // Grid: where this lane's word of it goes, for those who have the time to find that beforehand.
  __device__ __forceinline__ uint32_t* WordOf(int step, int pass) const {
    return mine_ + UseOf(step, pass) * 4;
  }
  __device__ __forceinline__ void Send(int step, int pass, float h, uint32_t* to) const {
    if (!kWarpSpecialized && tile_ >= p_.tiling.unit_tiles) return;
    uint32_t mine;
    if constexpr (kScaledTerms<T> > 0) h *= scales_.state;
    if constexpr (kWords == 1) {
      mine =
          PackTwo<MmaOperand<T>>(h, __shfl_down_sync(0xFFFFFFFFu, h, 1));  // of even lanes a pair
    } else if constexpr (kMmaTerms<T> == 2) {
      mine = PackedTerms<T>(h);
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
      StoreRelaxed(to, mine);
    }
  }
  // Where elements are apart, this thread's own.
  __device__ __forceinline__ void ClearMine(int step, int pass) const {
    if (lane_ % kLanes == 0) StoreRelaxed(WordOf(step - 2, pass), kAbsent);
  }
  // Grid: which of this block's words of h the n-th thread of those that clear them has, in a use;
  // -1: none.
  __device__ __forceinline__ int PlaceToClear(int n) const {
    const int eighths = 2 * p_.tiling.unit_tiles;  // of a chunk, of this block
    if (n >= eighths * Base::kRows * kWords) return -1;
    const int word = n % kWords, row = n / kWords % Base::kRows;
    const int eighth = rank_ * eighths + n / kWords / Base::kRows;
    return WordAt(row / 8, eighth / 4, word, row % 8 * 4 + eighth % 4);
  }
  // The h two steps before, for its words' next use. All blocks have sent what came after it, so
  // all have read it; SyncRows puts this before what this block sends of the next step but one, and
  // nobody asks for that use before he has that.
  __device__ __forceinline__ void Clear(int step, int pass, int place) const {
    if (place < 0) return;
    StoreRelaxed(words_ + UseOf(step - 2, pass) + place,
                 make_uint4(kAbsent, kAbsent, kAbsent, kAbsent));
  }

  // [slot, pass, row tile, chunk, word, lane] of 16 bytes, in this block's memory (kCluster) or the
  // group's.
  __device__ __forceinline__ int UseOf(int step, int pass) const {
    return ((step & (kSlots - 1)) * p_.tiling.passes + pass) * words_of_pass_;
  }

 private:
  // Of those that have elements, the warp that has them.
  static __device__ __forceinline__ int WarpOfRole() {
    const int warp = threadIdx.x / 32;
    return kWarpSpecialized && warp >= kPersistentWarps ? warp % kElementWarps : warp;
  }

  static constexpr int kSlots = kForwardSlots<kCluster>;
  static constexpr int kWordsOfWarp = 4 * kWords, kElements = 8 / kWords;
  static constexpr int kLanes = 4 / kOperandBytes<T>;  // that share 32 bits
  // Of a row tile, from its first chunk on.
  static __device__ __forceinline__ uint4 Word(const uint4* at, int chunk, int word) {
    at += (chunk * kWords + word) * 32;
    return kCluster ? *at : LoadRelaxed(at);
  }
  template <int kBatch>
  static __device__ __forceinline__ bool HaveArrived(const uint4 (&words)[kBatch][kTiles][kWords]) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kBatch * kTiles * kWords; ++i) {
      const uint4& word = words[i / (kTiles * kWords)][i / kWords % kTiles][i % kWords];
      most = max(most, max(max(word.x, word.y), max(word.z, word.w)));
    }
    return most != kAbsent;
  }
  // Of one lane's words of a chunk, within a slot.
  __device__ __forceinline__ int WordAt(int tile, int chunk, int word, int lane) const {
    return ((tile * chunks_ + chunk) * kWords + word) * 32 + lane;
  }
  __device__ __forceinline__ TransactionBarrier* CounterOf(int step, int pass) const {
    return counters_ + (step & 1) * p_.tiling.passes + pass;
  }

  // Cluster: counters; and half a chunk behind the last unit, if there is one, is never written.
  __device__ __forceinline__ void PrepareToReceive() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2 * p_.tiling.passes; ++i) counters_[i].Init();
    }
    for (int i = threadIdx.x; i < 2 * p_.tiling.passes * words_of_pass_; i += blockDim.x) {
      receive_[i] = make_uint4(0, 0, 0, 0);
    }
    if (alone()) {
      SyncRows();
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
  ProductScales scales_;  // Scaled alone

 private:
  const int sent_chunks_;  // those of which this lane's words are sent
  const int tile_words_;
  const int words_of_pass_;
  TransactionBarrier* const counters_;
  uint4* const receive_;
  uint4* const words_;  // of the group, in global memory
  const int send_to_;
  uint32_t* const mine_;  // where in the first use this lane's go
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_PERSISTENT_STATE_EXCHANGE_CUH_
