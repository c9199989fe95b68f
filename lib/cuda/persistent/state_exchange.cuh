// The exchange of states between blocks in a persistent kernel's forward walk: h goes to all blocks
// of the group, in the layout that tensor cores read.
#pragma once

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

// Slots for h in transit. The blocks of a cluster count what arrives, so two are enough. Words of
// global memory are cleared long before their next use, which needs more.
template <bool kCluster>
constexpr int kForwardSlots = kCluster ? 2 : 8;

// How h is exchanged, and which warps have the elements. Either the warps that multiply have them,
// with I/O warps at their side. Or (warp-specialized, `grid` only) two sets of other warps have
// them and alternate between passes: a set computes the h of one pass while the next is multiplied.
enum class ForwardWay { kCluster, kGrid, kGridWarpSpecialized };

// The roles of a block's warps, in this order.
template <ForwardWay kWay>
struct ForwardRoles {
  static constexpr bool kWarpSpecialized = kWay == ForwardWay::kGridWarpSpecialized;
  static constexpr int kProducts = kPersistentWarps;
  static constexpr int kElements =
      kWarpSpecialized ? kElementSets * kElementWarps : 0;  // warps that only run the cell
  static constexpr int kIoWarps = kWarpSpecialized ? 0 : kCopyWarps;
  static constexpr int kThreads = (kProducts + kElements + kIoWarps) * 32;
};

// Waits for wx of a step, if the input product is overlapped with the walk.
class InputFlagsReader {
 public:
  HASTE_DEVICE explicit InputFlagsReader(const OverlapFlags& flags)
      : steps_there_(flags.counts != nullptr ? 0 : INT32_MAX) {}

  template <class Params>
  HASTE_DEVICE void Await(const Params& p, bool backwards, int step) {
    p.flags.Await(static_cast<int>(p.N), backwards, step, &steps_there_,
                  [&](int part, uint32_t wanted) { WaitForFlag(p.flags.counts + part, wanted); });
  }

 private:
  int steps_there_;
};

// Registers of a thread: kRest in producer warps (the I/O warps or, if warp-specialized, the warps
// with elements), kProduct in warps that multiply. Together they are what the launch allocates. A
// product of two split terms with four gates needs every register there is; its I/O warps spill,
// and have the time for it.
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

// Named barriers instead of __syncthreads, because roles reach them from different places.
constexpr int kElementsName = 1, kProductName = 2, kRowsName = 3;
constexpr int kTakenName = 4, kThereName = kTakenName + kElementSets;  // one a set
template <int kName, int kWarps>
HASTE_DEVICE void SyncAt() {
  NamedBarrierSync<kName, kWarps * 32>();
}

// The warps that multiply.
HASTE_DEVICE void SyncProduct() { NamedBarrierSyncAligned<kProductName, kPersistentWarps * 32>(); }
// The warps that multiply and the I/O warps.
HASTE_DEVICE void SyncRows() { SyncAt<kRowsName, kPersistentWarps + kCopyWarps>(); }

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
  static constexpr int kWords = kOperandBytes<T> / 2;  // 16-byte words of a chunk in each lane
  // Chunks loaded at once. Floats with two tiles leave few registers.
  static constexpr int kAhead = kWords * kTiles == 4   ? 1
                                : kHeld < kChunksAsked ? kHeld
                                                       : kChunksAsked;

  HASTE_DEVICE StateExchange(const Params& p, const ForwardLayout& at)
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

  HASTE_DEVICE int unit_tiles() const { return kWarpSpecialized ? 1 : p_.tiling.unit_tiles; }
  HASTE_DEVICE bool alone() const { return p_.tiling.blocks == 1; }

  // Call before anything is sent.
  HASTE_DEVICE void Prepare() {
    if (kCluster) PrepareToReceive();
  }

  // Waits for what all blocks send for a step, if arrivals are counted (`cluster`).
  HASTE_DEVICE void Receive(int step, int pass) const {
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

  // Where a lane's words of use 0 are, from `chunk` on.
  HASTE_DEVICE const uint4* PlaceOfWords(int chunk) const {
    return Opaque((kCluster ? receive_ : words_) + WordAt(0, chunk, 0, lane_));
  }
  // Loads a lane's words of min(count, kBatch) chunks from `chunk` on, which begin at `from`,
  // whether they have arrived or not. Nothing is ever sent after the last unit, and in `grid` words
  // of other blocks are not cleared. If kBatch > 1, words that are not loaded keep their values.
  template <int kBatch>
  HASTE_DEVICE void Ask(const uint4* from, int chunk, int count,
                        uint4 (&words)[kBatch][kTiles][kWords]) const {
    if (!kCluster) count = min(count, sent_chunks_ - chunk);
    HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
      HASTE_UNROLL for (int b = 0; b < kBatch; ++b) {
        HASTE_UNROLL for (int w = 0; w < kWords; ++w) {
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
  // Waits until all words that Ask loads have arrived.
  template <int kBatch>
  HASTE_DEVICE void Await(const uint4* from, uint4 (&words)[kBatch][kTiles][kWords]) const {
    while (!kCluster && !__all_sync(0xFFFFFFFFu, HaveArrived(words))) {
      const uint4* at = from;
      HASTE_UNROLL for (int n = 0; n < kTiles; ++n) {
        HASTE_UNROLL for (int b = 0; b < kBatch; ++b) {
          HASTE_UNROLL for (int w = 0; w < kWords; ++w) {
            if (!HasArrived(words[b][n][w])) words[b][n][w] = Word(at, b, w);
          }
        }
        at += tile_words_;
      }
    }
  }

  // Sends the h of each lane of the warp, as it enters `step`, to all blocks. A warp's two rows of
  // 16 units arrive as kWordsOfWarp words of 16 bytes.
  HASTE_DEVICE void Send(int step, int pass, float h) const {
    Send(step, pass, h, WordOf(step, pass));
  }
  // `grid`: where this lane's word of h goes. For callers that can compute this beforehand.
  HASTE_DEVICE uint32_t* WordOf(int step, int pass) const { return mine_ + UseOf(step, pass) * 4; }
  HASTE_DEVICE void Send(int step, int pass, float h, uint32_t* to) const {
    if (!kWarpSpecialized && tile_ >= p_.tiling.unit_tiles) return;
    uint32_t mine;
    if constexpr (kScaledTerms<T> > 0) h *= scales_.state;
    if constexpr (kWords == 1) {
      mine =
          PackTwo<MmaOperand<T>>(h, __shfl_down_sync(0xFFFFFFFFu, h, 1));  // a pair in even lanes
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
      // Lanes with the same word take turns over the blocks.
      const uint32_t here = SharedAddress(receive_ + at);
      const uint32_t counter = SharedAddress(CounterOf(step, pass));
      for (int rank = lane_ / kWordsOfWarp; rank < p_.tiling.blocks; rank += 32 / kWordsOfWarp) {
        Push(AddressIn(here, rank), word, AddressIn(counter, rank));
      }
    } else if (lane_ % kLanes == 0) {
      StoreRelaxed(to, mine);
    }
  }
  // Warp-specialized: clears this thread's own word of two steps before.
  HASTE_DEVICE void ClearMine(int step, int pass) const {
    if (lane_ % kLanes == 0) StoreRelaxed(WordOf(step - 2, pass), kAbsent);
  }
  // `grid`: the index in a use of the word of this block's h that the n-th clearing thread clears;
  // -1 if none.
  HASTE_DEVICE int PlaceToClear(int n) const {
    const int eighths = 2 * p_.tiling.unit_tiles;  // units of this block, in eighths of a chunk
    if (n >= eighths * Base::kRows * kWords) return -1;
    const int word = n % kWords, row = n / kWords % Base::kRows;
    const int eighth = rank_ * eighths + n / kWords / Base::kRows;
    return WordAt(row / 8, eighth / 4, word, row % 8 * 4 + eighth % 4);
  }
  // Clears the words of h of two steps before, for their next use. All blocks have sent the h that
  // followed, so all have read these words. SyncRows orders this clear before what this block sends
  // for the next step but one, and no block asks for the next use before it has received that.
  HASTE_DEVICE void Clear(int step, int pass, int place) const {
    if (place < 0) return;
    StoreRelaxed(words_ + UseOf(step - 2, pass) + place,
                 make_uint4(kAbsent, kAbsent, kAbsent, kAbsent));
  }

  // Offset of a use in [slot, pass, row tile, chunk, word, lane] of 16 bytes, in this block's
  // memory (kCluster) or the group's.
  HASTE_DEVICE int UseOf(int step, int pass) const {
    return ((step & (kSlots - 1)) * p_.tiling.passes + pass) * words_of_pass_;
  }

 private:
  // The warp's index among warps with elements; for warps that multiply, its index in the block.
  static HASTE_DEVICE int WarpOfRole() {
    const int warp = threadIdx.x / 32;
    return kWarpSpecialized && warp >= kPersistentWarps ? warp % kElementWarps : warp;
  }

  static constexpr int kSlots = kForwardSlots<kCluster>;
  static constexpr int kWordsOfWarp = 4 * kWords, kElements = 8 / kWords;
  static constexpr int kLanes = 4 / kOperandBytes<T>;  // lanes that share 32 bits
  // Loads a word. at: a chunk of a row tile; chunk: counted from there.
  static HASTE_DEVICE uint4 Word(const uint4* at, int chunk, int word) {
    at += (chunk * kWords + word) * 32;
    return kCluster ? *at : LoadRelaxed(at);
  }
  template <int kBatch>
  static HASTE_DEVICE bool HaveArrived(const uint4 (&words)[kBatch][kTiles][kWords]) {
    uint32_t most = 0;
    HASTE_UNROLL for (int i = 0; i < kBatch * kTiles * kWords; ++i) {
      const uint4& word = words[i / (kTiles * kWords)][i / kWords % kTiles][i % kWords];
      most = max(most, max(max(word.x, word.y), max(word.z, word.w)));
    }
    return most != kAbsent;
  }
  // Index within a use of one lane's word.
  HASTE_DEVICE int WordAt(int tile, int chunk, int word, int lane) const {
    return ((tile * chunks_ + chunk) * kWords + word) * 32 + lane;
  }
  HASTE_DEVICE TransactionBarrier* CounterOf(int step, int pass) const {
    return counters_ + (step & 1) * p_.tiling.passes + pass;
  }

  // `cluster`: initializes the counters, and clears the words, because half a chunk after the last
  // unit, if there is one, is never written.
  HASTE_DEVICE void PrepareToReceive() {
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

  // Where in a use this lane's word goes.
  HASTE_DEVICE int SendTo() const {
    const int unit_tile = rank_ * p_.tiling.unit_tiles + tile_;
    const int first = lane_ % kWordsOfWarp * kElements;  // the word's first element in the warp
    const int row = kCluster ? column_ - lane_ / 16 + first / 16 : column_;
    const int unit = (kCluster ? first : lane_) % 16;
    // The receiving lane: 4 · row + the element's eighth of the chunk.
    return WordAt(row / 8, unit_tile / 2, unit % 8 / kElements,
                  row % 8 * 4 + unit_tile % 2 * 2 + unit / 8);
  }

 protected:
  const int chunks_;
  ProductScales scales_;  // only for Scaled

 private:
  const int sent_chunks_;  // chunks for which words of this lane are sent
  const int tile_words_;
  const int words_of_pass_;
  TransactionBarrier* const counters_;
  uint4* const receive_;
  uint4* const words_;  // of the group, in global memory
  const int send_to_;
  uint32_t* const mine_;  // where this lane's word goes in the first use
};

}  // namespace haste
