// Chunks of a product's operands, on their way from memory to shared memory: a pipeline of slots
// that hold one stage each. A thread loads a stage with two bulk copies, which signal the stage's
// full barrier. Warps that have read it signal its empty barrier.
#ifndef HASTE_LIB_CUDA_TILED_PIPELINE_CUH_
#define HASTE_LIB_CUDA_TILED_PIPELINE_CUH_

#include "lib/cuda/ptx/bulk_copy.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/plan/tiled.h"

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

class TiledPipeline {
 public:
  __device__ __forceinline__ TiledPipeline(TiledCounters* counters, int threads, int log_slots)
      : counters_(counters), threads_(threads), log_slots_(log_slots) {}

  // Called by one thread, before all others see the counters.
  __device__ __forceinline__ void Init() const {
    counters_->meeting.Init(1);
    counters_->kept.Init(1);
    for (int slot = 0; slot < slots(); ++slot) {
      counters_->full[slot].Init(1);
      counters_->empty[slot].Init(threads_ / 32);
    }
  }

  __device__ __forceinline__ int slots() const { return 1 << log_slots_; }

  // Is this the thread that loads a stage? Starting a load takes a warp some 500 clocks, so warps
  // take turns.
  __device__ __forceinline__ bool Asks(uint32_t stage) const {
    return threadIdx.x == stage % kAsking * 32;
  }

  // Call before loading what other blocks have written since the last call.
  __device__ __forceinline__ void FenceOthersWrites() const {
    if (threadIdx.x % 32 == 0 && threadIdx.x < kAsking * 32) FenceGlobalBulkCopies();
  }

  // Waits until the stage's slot is free. stage: counted from the first of the launch. bytes: of
  // everything that will be copied to it.
  __device__ __forceinline__ void Open(uint32_t stage, uint32_t bytes) const {
    const uint32_t lap = stage >> log_slots_;
    if (lap > 0) counters_->empty[SlotOf(stage)].Wait((lap - 1) & 1);
    counters_->full[SlotOf(stage)].ArriveAndExpect(bytes);
  }
  __device__ __forceinline__ void Copy(uint32_t stage, void* to, const void* from,
                                       uint32_t bytes) const {
    CopyBulk(to, from, bytes, &counters_->full[SlotOf(stage)]);
  }

  // Waits until the stage has arrived.
  __device__ __forceinline__ void Wait(uint32_t stage) const {
    counters_->full[SlotOf(stage)].Wait(stage >> log_slots_ & 1);
  }
  // Called by whole warps that have read the stage.
  __device__ __forceinline__ void Free(uint32_t stage) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) counters_->empty[SlotOf(stage)].Arrive();
  }

  // Loads the part of R that stays, once.
  __device__ __forceinline__ void Keep(void* to, const void* from, uint32_t bytes) const {
    counters_->kept.ArriveAndExpect(bytes);
    CopyBulk(to, from, bytes, &counters_->kept);
  }
  __device__ __forceinline__ void WaitForKept() const { counters_->kept.Wait(0); }

  __device__ __forceinline__ int SlotOf(uint32_t stage) const { return stage & (slots() - 1); }

 private:
  static constexpr int kAsking = 8;  // warps that take turns in loading

  TiledCounters* const counters_;
  const int threads_;  // of the block
  const int log_slots_;
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_TILED_PIPELINE_CUH_
