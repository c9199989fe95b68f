// A block's part of the product of a step: sums of its units × its rows over its part of the depth.
//
// The operand comes through shared memory chunk by chunk, with the chunks of R that do not stay in
// shared memory: a pipeline whose stages are chunks, numbered from the first of the launch. A
// thread loads a stage with two bulk copies.
#pragma once

#include "lib/cuda/ptx/pipeline.cuh"
#include "lib/cuda/tiled/params.cuh"

namespace haste {

// Before the first stage is multiplied, loads are started for all slots. Then each stage refills
// the slot of the stage this many before it, which even late warps have finished reading.
constexpr int kTiledEpilogue = 2;

// In shared memory.
struct TiledCounters {
  TransactionBarrier meeting;  // of the cluster
  TransactionBarrier kept;     // for the part of R that stays
  TransactionBarrier full[kMaxTiledStages], empty[kMaxTiledStages];
};
static_assert(sizeof(TiledCounters) <= kTiledCounterBytes, "the layout's room for counters");

// kRows: rows of a block.
template <class Phase, int kRows>
class TiledProduct {
  using Params = typename Phase::Params;
  using T = typename Params::Storage;
  static constexpr int kTerms = kMmaTerms<T>, kOfOperand = Params::kTerms;
  static constexpr int kTiles = ShapeOf<Phase>().tiles();
  // Bytes of a chunk.
  static constexpr int kKernelBytes = ShapeOf<Phase>().kernel_bytes();
  static constexpr int kChunkOperandBytes = ShapeOf<Phase>().operand_bytes(kRows);
  static constexpr int kScaleBytes = kScalesRows<Phase> ? kRows * 4 : 0;
  // And of the last split term of each.
  static constexpr int kLastOfKernel = kKernelBytes / kTerms;
  static constexpr int kLastOfOperand = (kChunkOperandBytes - kScaleBytes) / kOfOperand;
  static constexpr int kGroupChunks = Phase::kDepth;  // that share their rows' scales
  static constexpr int kAsking = 8;                   // warps that take turns in loading

 public:
  HASTE_DEVICE TiledProduct(const Params& p, const TiledPlace& place, unsigned char* shared)
      : p_(p),
        t_(p.tiling),
        layout_(ShapeOf<Phase>(), p.tiling),
        shared_(shared),
        counters_(reinterpret_cast<TiledCounters*>(shared + layout_.counters)),
        threads_(ShapeOf<Phase>().threads()),
        log_slots_(p.tiling.log_stages),
        all_parts_(kTerms == 1 || p.exact),
        streamed_(p.tiling.chunks - p.tiling.kept) {
    const int64_t chunk = static_cast<int64_t>(place.split) * t_.chunks;
    first_group_ = kGroupChunks - static_cast<int>(chunk % kGroupChunks);
    kernel_ =
        reinterpret_cast<const unsigned char*>(p.kernel) +
        ((place.lane * t_.unit_tiles + place.unit_tile) * t_.total_chunks() + chunk) * kKernelBytes;
    operand_ = p.operand.a + p.operand.At(place.lane, place.row_tile, chunk);
    parity_stride_ = p.operand.At(p.K, 0, 0);
  }

  // Called by one thread, before all others see the counters.
  HASTE_DEVICE void Init() const {
    const int slots = 1 << t_.log_stages;
    counters_->meeting.Init(1);
    counters_->kept.Init(1);
    pipeline().Init(slots, threads_ / 32);
  }

  // Fetches the part of R that stays in shared memory.
  HASTE_DEVICE void Keep() const {
    if (t_.kept == 0 || !Asks(0)) return;
    const unsigned char* from = kernel_ + static_cast<int64_t>(streamed_) * kKernelBytes;
    const uint32_t bytes = t_.kept * kKernelBytes;
    counters_->kept.ArriveAndExpect(bytes);
    CopyBulk(shared_ + layout_.kept, from, bytes, &counters_->kept);
  }

  // Starts to load R of the first chunks, which no step writes.
  HASTE_DEVICE void Begin() const {
    for (int chunk = 0; chunk < min(slots(), t_.chunks); ++chunk) {
      if (Asks(asked_ + chunk)) AskForKernel(chunk);
    }
  }

  // After Begin. step: the step whose operand R is multiplied by.
  HASTE_DEVICE void Multiply(int64_t step) {
    const unsigned char* operand =
        reinterpret_cast<const unsigned char*>(operand_ + (step & 1) * parity_stride_);
    // Other blocks have written the operand.
    if (threadIdx.x % 32 == 0 && threadIdx.x < kAsking * 32) FenceGlobalBulkCopies();
    for (int chunk = 0; chunk < slots(); ++chunk) {
      if (chunk < t_.chunks && Asks(asked_ + chunk)) AskForOperand(operand, chunk);
    }
    tiles_.Clear();
    if (t_.kept > 0 && asked_ == 0) counters_->kept.Wait(0);
    int chunk = 0;
    bool begins = true;           // at the first chunk of a group, or of this block's part of it
    int of_group = first_group_;  // chunks to come
    do {
      const uint32_t stage = asked_ + chunk;
      pipeline().Wait(SlotOf(stage), stage >> log_slots_ & 1);
      if (chunk >= kTiledEpilogue) {
        const int ask = chunk - kTiledEpilogue + slots();
        if (ask < t_.chunks && Asks(asked_ + ask)) {
          AskForKernel(ask);
          AskForOperand(operand, ask);
        }
      }
      const unsigned char* a = chunk < streamed_
                                   ? KernelSlot(chunk)
                                   : shared_ + layout_.kept + (chunk - streamed_) * kKernelBytes;
      const unsigned char* scales = OperandSlot(chunk);
      const unsigned char* b = scales + kScaleBytes;
      if (kTerms == 1 || all_parts_) {
        tiles_.template Chunk<true>(a, b, begins);
      } else if constexpr (kTerms > 1) {
        tiles_.template Chunk<false>(a, b, begins);
      }
      begins = --of_group == 0 || chunk + 1 == t_.chunks;
      if (kScalesRows<Phase> && begins) {
        tiles_.EndGroup(reinterpret_cast<const float*>(scales));
        of_group = kGroupChunks;
      } else {
        tiles_.template Wait<1>();
      }
      if (chunk > 0) Free(asked_ + chunk - 1);
    } while (++chunk < t_.chunks);
    tiles_.template Wait<0>();
    Free(asked_ + t_.chunks - 1);
    asked_ += t_.chunks;
    __syncthreads();  // the sums overwrite the stages
  }

  // Calls take(tile, tile of 8 rows, sums) for all tiles of this warp. sums: those of this lane.
  template <class Take>
  HASTE_DEVICE void Each(const Take& take) const {
    tiles_.Each(take);
  }

 private:
  HASTE_DEVICE Pipeline pipeline() const { return {counters_->full, counters_->empty}; }
  HASTE_DEVICE int slots() const { return 1 << log_slots_; }
  HASTE_DEVICE int SlotOf(uint32_t stage) const { return stage & (slots() - 1); }
  // Called by whole warps that have read a chunk.
  HASTE_DEVICE void Free(uint32_t stage) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) pipeline().Free(SlotOf(stage));
  }
  // Is this the thread that loads a stage? Starting a load takes a warp some 500 clocks, so warps
  // take turns.
  HASTE_DEVICE bool Asks(uint32_t stage) const { return threadIdx.x == stage % kAsking * 32; }

  HASTE_DEVICE unsigned char* KernelSlot(int chunk) const {
    return shared_ + layout_.stages + SlotOf(asked_ + chunk) * layout_.stage_bytes;
  }
  HASTE_DEVICE unsigned char* OperandSlot(int chunk) const {
    return KernelSlot(chunk) + (t_.streams() ? kKernelBytes : 0);
  }

  // Bytes of a chunk that are read: its split terms follow one another.
  HASTE_DEVICE int ReadOfKernel() const { return kKernelBytes - (all_parts_ ? 0 : kLastOfKernel); }
  HASTE_DEVICE int ReadOfOperand() const {
    return kChunkOperandBytes - (all_parts_ ? 0 : kLastOfOperand);
  }
  HASTE_DEVICE void AskForKernel(int chunk) const {
    const bool streams = chunk < streamed_;
    const uint32_t stage = asked_ + chunk, lap = stage >> log_slots_;
    const uint32_t bytes = (streams ? ReadOfKernel() : 0) + ReadOfOperand();
    if (lap > 0) pipeline().AwaitFree(SlotOf(stage), (lap - 1) & 1);
    pipeline().Expect(SlotOf(stage), bytes);
    if (!streams) return;
    pipeline().Copy(SlotOf(stage), KernelSlot(chunk),
                    kernel_ + static_cast<int64_t>(chunk) * kKernelBytes, ReadOfKernel());
  }
  // After AskForKernel.
  HASTE_DEVICE void AskForOperand(const unsigned char* operand, int chunk) const {
    pipeline().Copy(SlotOf(asked_ + chunk), OperandSlot(chunk),
                    operand + static_cast<int64_t>(chunk) * kChunkOperandBytes, ReadOfOperand());
  }

  const Params& p_;
  const TiledTiling& t_;
  const TiledLayout layout_;
  unsigned char* const shared_;
  TiledCounters* const counters_;
  const int threads_, log_slots_;  // of the block; of the pipeline
  const bool all_parts_;           // all split terms are read; else all but the last
  const int streamed_;             // chunks of R that do not stay in shared memory
  int first_group_;                // chunks of the first group, from this block's first on
  const unsigned char* kernel_;
  const uint16_t* operand_;
  int64_t parity_stride_;
  uint32_t asked_ = 0;  // chunks loaded in earlier steps
  BlockTiles<T, kOfOperand, kTiles, kRows, ShapeOf<Phase>().row_groups(), kScalesRows<Phase>>
      tiles_;
};

}  // namespace haste
