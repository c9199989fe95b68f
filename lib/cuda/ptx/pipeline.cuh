// A product's operands on their way to shared memory (sm_90+): a pipeline of slots, each of which
// holds one stage. A producer waits until a slot is free, and starts bulk copies that signal its
// full barrier. Warps that have read a stage signal its empty barrier.
#pragma once

#include "lib/cuda/ptx/bulk_copy.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"

namespace haste {

// parity: of the use of the slot's barrier that is waited for (mbarrier.cuh).
class Pipeline {
 public:
  HASTE_DEVICE Pipeline(TransactionBarrier* full, TransactionBarrier* empty)
      : full_(full), empty_(empty) {}

  // Called by one thread, before all others see the barriers. frees: calls of Free for a stage.
  HASTE_DEVICE void Init(int slots, int frees) const {
    for (int slot = 0; slot < slots; ++slot) {
      full_[slot].Init(1);
      empty_[slot].Init(frees);
    }
  }

  HASTE_DEVICE void AwaitFree(int slot, uint32_t parity) const { empty_[slot].Wait(parity); }
  // bytes: of everything that will be copied to the slot.
  HASTE_DEVICE void Expect(int slot, uint32_t bytes) const { full_[slot].ArriveAndExpect(bytes); }
  HASTE_DEVICE void Copy(int slot, void* to, const void* from, uint32_t bytes) const {
    CopyBulk(to, from, bytes, &full_[slot]);
  }
  // To the same slot of all blocks of the cluster whose bit is set.
  HASTE_DEVICE void CopyTo(uint16_t blocks, int slot, void* to, const void* from,
                           uint32_t bytes) const {
    CopyBulkTo(blocks, to, from, bytes, &full_[slot]);
  }

  // Waits until a stage has arrived.
  HASTE_DEVICE void Wait(int slot, uint32_t parity) const { full_[slot].Wait(parity); }
  // Called by one thread of a warp that has read the stage. FreeIn: the slot of another block.
  HASTE_DEVICE void Free(int slot) const { empty_[slot].Arrive(); }
  HASTE_DEVICE void FreeIn(uint32_t block, int slot) const { empty_[slot].ArriveIn(block); }

 private:
  TransactionBarrier *const full_, *const empty_;
};

}  // namespace haste
