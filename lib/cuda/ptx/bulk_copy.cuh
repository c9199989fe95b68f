// Bulk copies from global to shared memory (sm_90+), which run asynchronously and which an mbarrier
// counts. On older architectures the functions do nothing.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/assembly.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"

namespace haste {

// What threads have written where a bulk copy reads, or have read or written where it writes, must
// be fenced.
HASTE_DEVICE void FenceSharedBulkCopies() {
  HASTE_ASM_90("fence.proxy.async.shared::cta;" :: : "memory");
}
HASTE_DEVICE void FenceGlobalBulkCopies() {
  HASTE_ASM_90("fence.proxy.async.global;" :: : "memory");
}
// Called by one thread. Addresses and bytes are multiples of 16. The mbarrier counts bytes.
HASTE_DEVICE void CopyBulk(void* shared, const void* global, uint32_t bytes,
                           TransactionBarrier* counter) {
  HASTE_ASM_90(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(counter)) : "memory");
}

// The same to all blocks of the cluster whose bit is set in `blocks`, at the same place in each.
// Their counters, also at the same place, count it.
HASTE_DEVICE void CopyBulkTo(uint16_t blocks, void* shared, const void* global, uint32_t bytes,
                             TransactionBarrier* counter) {
  HASTE_ASM_90(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(counter)), "h"(blocks) : "memory");
}

}  // namespace haste
