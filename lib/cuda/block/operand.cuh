// Shared by both directions of the engine `block`: which thread has which elements, what I/O warps
// copy in a step, and the operand that R is multiplied by.
//
// A block walks one lane and a few rows of the batch alone, so nothing of a step crosses
// multiprocessors: the operand goes through shared memory, with one barrier. Where R is too large
// for one block, a few blocks of a cluster push the operand to each other, 16 bytes at a time. A
// warp has eight hidden units and, where their gates fill tiles, the whole depth of their product.
// Tensor cores then leave the sums where the cell needs them: in the registers of the threads that
// have the elements. Other warps copy what a step reads and writes, at the same time.
#pragma once

#include "lib/cuda/block/odd_rows.cuh"
#include "lib/cuda/cell/element.cuh"
#include "lib/cuda/cell/on_chip.cuh"
#include "lib/cuda/cell/step_io.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/fp16_scale.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/ptx/mma.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"
#include "lib/plan/engines/block.h"

namespace haste {

template <class T, class Args>
struct BlockParams : OnChipParams<T, Args> {
  BlockTiling tiling;
  int row_groups;  // of a lane: blocks, or clusters
  // Bytes of a copied piece: kPieceBytes, or fewer (odd_rows.cuh); of rows that have all gates.
  int piece, wide_piece;
};

extern __shared__ __align__(16) unsigned char block_shared[];

template <class Cell, class T>
constexpr BlockCell BlockSizesOf() {
  return {Cell::kGates, sizeof(T), kMmaTerms<T>, SavedTensors<Cell>(), Cell::kSplitsGradient};
}
template <class Cell, class T, bool kCluster>
constexpr int kMaxBlockThreads = (BlockSizesOf<Cell, T>().max_warps(kCluster) + kCopyWarps) * 32;

// kRows: rows of the batch in a block. With 4, every other column of a tile is empty, and threads
// have half as many elements. kOdd: some rows do not begin at multiples of 16 bytes (odd_rows.cuh);
// kernels of their own, because both ways to copy in one would take registers from the product.
template <class Cell, class Params, int kRows, bool kCluster, bool kOdd, bool kBackward>
class BlockOperand {
 protected:
  using T = typename Params::Storage;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kTerms = kMmaTerms<T>;
  static constexpr int kTiles = BlockSizesOf<Cell, T>().tiles(kBackward);
  static constexpr int kSharing = BlockSizesOf<Cell, T>().depth_warps(kBackward);
  static constexpr int kMostUnits = BlockSizesOf<Cell, T>().max_warps(kCluster) * kBlockUnits;
  static constexpr bool kScalesRows = BlockSizesOf<Cell, T>().scales_rows(kBackward);
  static constexpr int kElements = kRows / 4;
  // Depths that a unit takes in the operand.
  static constexpr int kDepths = kBackward ? BlockSizesOf<Cell, T>().slots() : 1;
  static constexpr int kWords = kRows * kDepths;  // 16-byte words that a warp stores

  HASTE_DEVICE explicit BlockOperand(const Params& p)
      : p_(p),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        rank_(kCluster ? blockIdx.x % p.tiling.blocks : 0),
        group_(kCluster ? blockIdx.x / p.tiling.blocks : blockIdx.x),
        k_(group_ / p.row_groups),
        first_row_(group_ % p.row_groups * kRows),
        reverse_(p.IsReverse(k_)),
        at_(p.tiling, BlockSizesOf<Cell, T>(), kBackward, p.H),
        words_of_use_(kTerms * kSharing * p.tiling.chunks * 32),
        operand_(reinterpret_cast<uint4*>(block_shared)),
        counters_(reinterpret_cast<TransactionBarrier*>(block_shared + at_.counters)),
        row_scales_(reinterpret_cast<float*>(block_shared + at_.scales)),
        scales_of_use_(kSharing * p.tiling.chunks * kRows) {
    HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
      computes_[e] = Opaque(kElements == 1 ? Unit() < p.H : ElementOf(e).exists);
      const int depth = Unit() * kDepths, column = RowOf(e) * (8 / kRows);
      puts_[e] = Opaque((depth / kChunkDepth * 32 + column * 4) * 8 + depth % kChunkDepth);
    }
    const int word = lane_ % SentWords(), depth = FirstUnit() * kDepths + word % kDepths * 8;
    sends_ = Opaque(depth / kChunkDepth * 32 + word / kDepths * (8 / kRows) * 4 +
                    depth % kChunkDepth / 8);
    if constexpr (kCluster && kBackward) {
      at_once_ = Opaque(32 / SentWords());
      first_other_ =
          Opaque(lane_ / SentWords() < at_once_ ? lane_ / SentWords() : kMaxBlockCluster);
    }
  }

  // --- Elements of this thread

  // The first unit of the block, and of this warp.
  HASTE_DEVICE int BlockUnit() const { return rank_ * kClusterUnits; }
  HASTE_DEVICE int FirstUnit() const { return BlockUnit() + warp_ * kBlockUnits; }
  // How many units the rows of a step have room for.
  HASTE_DEVICE int units() const { return kCluster ? kClusterUnits : static_cast<int>(p_.H); }
  // Of all elements of a thread.
  HASTE_DEVICE int Unit() const { return FirstUnit() + lane_ / 4; }
  HASTE_DEVICE int RowOf(int e) const { return lane_ % 4 * kElements + e; }
  HASTE_DEVICE Element ElementOf(int e) const {
    const int64_t n = first_row_ + RowOf(e), j = Unit();
    return Element(p_, n, k_, j, n < p_.N && j < p_.H);
  }
  // from: [N, K, H] each, or null.
  HASTE_DEVICE void LoadStates(const void* const* from) {
    HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
      const Element element = ElementOf(e);
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        const T* all = static_cast<const T*>(from[s]);
        state_[e][s] = all == nullptr || !element.exists ? 0.0f : ToCompute(all[element.at]);
      }
      scale_[e] = element.exists ? DropScale(p_, element) : 1.0f;
    }
  }

  HASTE_DEVICE StepFlags ReadStepFlagsOfElement(int e, int step) const {
    if (p_.mask == nullptr && !p_.zoneout) {
      StepFlags seen;
      seen.live = computes_[e] != 0;
      return seen;
    }
    return ReadStepFlags<Cell>(p_, ElementOf(e), reverse_, step);
  }

  // --- Rows of a step

  HASTE_DEVICE StepRows Reads() const {
    return BlockReads(kRows, BlockSizesOf<Cell, T>(), kBackward, units());
  }
  HASTE_DEVICE StepRows Writes() const {
    return BlockWrites(kRows, BlockSizesOf<Cell, T>(), kBackward, units());
  }
  // Where the rows of a step are: cycles through the steps in flight, from step to step of the
  // walk.
  struct Pipeline {
    T *first, *last, *now;
    int step;

    HASTE_DEVICE Pipeline(int begin, int steps, int step)
        : first(reinterpret_cast<T*>(block_shared + begin)),
          last(first + (steps - 1) * step),
          now(first),
          step(step) {}
    HASTE_DEVICE void Advance() { now = now == last ? first : now + step; }
  };
  HASTE_DEVICE Pipeline PipelineReader() const {
    return {at_.reads, BlockLayout::kReadSteps, Reads().step()};
  }
  HASTE_DEVICE Pipeline PipelineWriter() const {
    return {at_.writes, BlockLayout::kWriteSteps, Writes().step()};
  }

  // The other blocks of a cluster.
  HASTE_DEVICE int RankOfOther(int i) const { return i < rank_ ? i : i + 1; }
  // The row scales of this warp's chunk, and how many words of 16 bytes they take.
  static constexpr int kScaleWords = kRows / 4;
  HASTE_DEVICE float* OwnRowScales(int use) const {
    return row_scales_ + use * scales_of_use_ + FirstUnit() / kBlockUnits * kRows;
  }

  // Is this an I/O warp, which does nothing but copy?
  HASTE_DEVICE bool copies() const { return warp_ >= p_.tiling.warps; }
  // The work of the I/O warps: the inputs of a step are loaded kReadSteps - 1 steps ahead, and its
  // results are written while the next step is computed.
  template <int kRead, int kWritten>
  HASTE_DEVICE void Copy(void* const (&read)[kRead], void* const (&written)[kWritten]) const {
    constexpr int kAhead = BlockLayout::kReadSteps - 1;
    constexpr int kMostRead = BlockReads(kRows, BlockSizesOf<Cell, T>(), kBackward, kMostUnits)
                                  .pieces(kMostUnits, kGates, sizeof(T));
    constexpr int kMostWritten = BlockWrites(kRows, BlockSizesOf<Cell, T>(), kBackward, kMostUnits)
                                     .pieces(kMostUnits, kGates, sizeof(T));
    const int thread = static_cast<int>(threadIdx.x) - p_.tiling.warps * 32;
    const bool from_end = reverse_ != kBackward;
    if constexpr (!kOdd) {
      StepTraffic<T, kGates, kRead, kMostRead> reads(p_, Reads(), read, thread, first_row_, k_,
                                                     BlockUnit(), units(), from_end);
      StepTraffic<T, kGates, kWritten, kMostWritten> writes(
          p_, Writes(), written, thread, first_row_, k_, BlockUnit(), units(), from_end);
      CopySteps<kAhead>(reads, writes, [] {});
    } else {
      constexpr int kUnits = kCluster ? kClusterUnits : kMostUnits;
      OddRows<T, kGates, kRead, kRows, kUnits, kCluster> reads(
          p_, Reads(), read, thread, first_row_, k_, BlockUnit(), from_end);
      OddRows<T, kGates, kWritten, kRows, kUnits, kCluster> writes(
          p_, Writes(), written, thread, first_row_, k_, BlockUnit(), from_end);
      CopySteps<kAhead>(reads, writes, [&] { reads.Settle(); });
    }
  }
  // settle: called a step after a read.
  template <int kAhead, class Reader, class Writer, class Settle>
  HASTE_DEVICE void CopySteps(Reader& reads, Writer& writes, const Settle& settle) const {
    Pipeline reading = PipelineReader(), writing = PipelineWriter();
    const auto read_next = [&](int step) {
      settle();
      if (step < p_.T_) reads.Read(reading.now);
      CommitCopies();
      reading.Advance();
    };
    for (int step = 0; step < kAhead; ++step) read_next(step);
    EndClear();
    WaitCopies(kAhead - 2);
    EndStep();
    for (int step = 0; step < p_.T_; ++step) {
      WaitCopies(kAhead - 2);  // waits for all but this many: the next step's have arrived
      EndStep();
      writes.Write(writing.now);
      writing.Advance();
      read_next(step + kAhead);
    }
    EndWalk();
  }

  // --- The operand: [use, split term, chunk, lane] of 16 bytes

  // Nothing is ever written after the last unit and in empty columns.
  HASTE_DEVICE void ClearOperand() {
    for (int i = threadIdx.x; i < 2 * words_of_use_; i += p_.tiling.warps * 32) {
      operand_[i] = make_uint4(0, 0, 0, 0);
    }
    for (int i = threadIdx.x; kScalesRows && i < 2 * scales_of_use_; i += p_.tiling.warps * 32) {
      row_scales_[i] = 0;
    }
  }
  // Barriers of all warps. EndClear and EndWalk, if kCluster: of all blocks, before the first sends
  // and after the last.
  HASTE_DEVICE void EndClear() const {
    if constexpr (kCluster) {
      if (threadIdx.x == 0) {
        counters_[0].Init();
        counters_[1].Init();
      }
      ClusterSync();
    } else {
      EndStep();
    }
  }
  // Not __syncthreads: I/O warps and those that multiply get here from different places.
  HASTE_DEVICE void EndStep() const { NamedBarrierSyncOf<15>((p_.tiling.warps + kCopyWarps) * 32); }
  HASTE_DEVICE void EndWalk() const {
    if constexpr (kCluster) ClusterSync();
  }

  // Where this thread stores and sends the depths of a use. Made before the product that they
  // depend on, nothing is left to compute between a step's results and their way to the other
  // blocks.
  struct Stores {
    int use;
    int puts[kElements];
    int sends, counter;  // kCluster: addresses

    HASTE_DEVICE Stores(const BlockOperand& operand, int use) : use(use) {
      const int first = use * operand.words_of_use_;
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        puts[e] = Opaque(first * 8 + operand.puts_[e]);
      }
      if constexpr (kCluster) {
        sends = Opaque(static_cast<int>(SharedAddress(operand.operand_ + first + operand.sends_)));
        counter = Opaque(static_cast<int>(SharedAddress(operand.counters_ + use)));
      }
    }
  };

  // Stores the depths of element e in the operand.
  HASTE_DEVICE void Put(const Stores& at, int e, const float (&v)[kDepths]) const {
    uint16_t* to = reinterpret_cast<uint16_t*>(operand_) + at.puts[e];
    if constexpr (kTerms == 1) {
      using Operand = MmaOperand<T>;
      if constexpr (kDepths == 4) {
        *reinterpret_cast<uint2*>(to) =
            make_uint2(PackTwo<Operand>(v[0], v[1]), PackTwo<Operand>(v[2], v[3]));
      } else {
        *to = static_cast<uint16_t>(PackTwo<Operand>(v[0], 0.0f));
      }
    } else {
      uint16_t part[kDepths][3];
      HASTE_UNROLL for (int d = 0; d < kDepths; ++d) SplitOperand<T>(v[d], part[d]);
      HASTE_UNROLL for (int s = 0; s < kTerms; ++s, to += words_of_use_ / kTerms * 8) {
        if constexpr (kDepths == 4) {
          *reinterpret_cast<uint2*>(to) =
              make_uint2(part[0][s] | static_cast<uint32_t>(part[1][s]) << 16,
                         part[2][s] | static_cast<uint32_t>(part[3][s]) << 16);
        } else {
          *to = part[0][s];
        }
      }
    }
  }

  // Scales what is to be stored with Put. A row has one scale for all elements of this warp.
  HASTE_DEVICE void ScaleRows(int use, float (&v)[kElements][kDepths]) const {
    if constexpr (kScalesRows) {
      float most[kElements];
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        most[e] = fabsf(v[e][0]);
        HASTE_UNROLL for (int d = 1; d < kGates; ++d) most[e] = fmaxf(most[e], fabsf(v[e][d]));
      }
      HASTE_UNROLL for (int distance = 4; distance < 32; distance *= 2) {  // lanes of one row
        HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
          most[e] = fmaxf(most[e], __shfl_xor_sync(0xFFFFFFFFu, most[e], distance));
        }
      }
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        const RowScale scale(__float_as_uint(most[e]));
        HASTE_UNROLL for (int d = 0; d < kGates; ++d) v[e][d] *= scale.up;
        if (lane_ < 4) OwnRowScales(use)[RowOf(e)] = scale.down;
      }
    }
  }

  // Words that a warp sends to another block: backward, where a row takes several, of the rows that
  // there are.
  HASTE_DEVICE int SentWords() const {
    return kBackward ? min(kRows, static_cast<int>(p_.N) - first_row_) * kDepths : kWords;
  }
  // kCluster: sends what the warp has stored to the other blocks. Two uses are enough: a block
  // sends for a step only after it has received results that depend on its words of two steps
  // before, from every block that reads them.
  HASTE_DEVICE void Send(const Stores& at) const {
    if constexpr (kCluster) {
      __syncwarp();
      const uint32_t to = at.sends, counter = at.counter;
      const int part_words = words_of_use_ / kTerms;
      uint4 part[kTerms];
      HASTE_UNROLL for (int s = 0; s < kTerms; ++s) part[s] = LoadShared(to + s * part_words * 16);
      const int first = kBackward ? first_other_ : lane_ / kWords;
      const int at_once = kBackward ? at_once_ : 32 / kWords;
      for (int i = first; i < p_.tiling.blocks - 1; i += at_once) {
        const int rank = RankOfOther(i);
        HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
          Push(AddressIn(to + s * part_words * 16, rank), part[s], AddressIn(counter, rank));
        }
      }
      if constexpr (kScalesRows) {
        const uint4* scales = reinterpret_cast<uint4*>(OwnRowScales(at.use)) + lane_ % kScaleWords;
        const uint4 v = *scales;
        const uint32_t there = SharedAddress(scales);
        if (const int i = lane_ / kScaleWords; i < p_.tiling.blocks - 1) {
          Push(AddressIn(there, RankOfOther(i)), v, AddressIn(counter, RankOfOther(i)));
        }
      }
    }
  }
  // Waits for what the other blocks send. count: of the uses before this one.
  HASTE_DEVICE void Receive(int count) const {
    if constexpr (kCluster) {
      TransactionBarrier* counter = counters_ + count % 2;
      if (threadIdx.x == 0) {
        const int pushed = SentWords() * kTerms + (kScalesRows ? kScaleWords : 0);
        counter->ArriveAndExpect((p_.tiling.blocks - 1) * kClusterWarps * pushed * 16);
      }
      counter->Wait(count >> 1 & 1);
    }
  }

 protected:
  const Params& p_;
  const int warp_, lane_;
  const int rank_, group_;  // the block's index in its cluster, and the cluster's index
  const int k_, first_row_;
  const bool reverse_;
  float state_[kElements][kStates], scale_[kElements];
  ProductScales scales_;  // only for Scaled
  // Whether this thread computes an element: if it exists and, of a single one, also if only its
  // unit does. No lane then waits for others at a branch, and nobody copies rows that do not exist.
  int computes_[kElements];
  const BlockLayout at_;
  const int words_of_use_;
  uint4* const operand_;

 private:
  TransactionBarrier* const counters_;

 protected:
  float* const row_scales_;  // kScalesRows: [use, chunk, row], factors that undo the scales
  const int scales_of_use_;

 private:
  int puts_[kElements];        // where an element's depths go, in numbers of 16 bits
  int sends_;                  // the word that this lane sends
  int first_other_, at_once_;  // backward: to which other block first, and to how many together
};

}  // namespace haste
