// Waiting in a loop for another kernel, with an end: a thread that waits for a minute without
// seeing what it waits for stops its kernel. The host makes a sentence of the error that comes of
// it (CudaFailure).
//
// Blocks of one kernel that wait for each other are all there, so that their waits end where those
// for other kernels do, and have no end of their own: it takes 5 to 8 % of a step. Where an order
// that the driver does not promise was not kept (docs/design/gpu_products.md), this is what a
// program sees in place of a GPU that never answers.
#ifndef HASTE_LIB_CUDA_PTX_PATIENCE_CUH_
#define HASTE_LIB_CUDA_PTX_PATIENCE_CUH_

#include <stdint.h>

namespace haste {

// Ticks of 2^32 ns, 4.3 s.
__device__ __forceinline__ uint32_t GlobalTicks() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%globaltimer_hi;" : "=r"(now));
  return now;
}

// Of one wait. It takes one register, since loops hold nearly all that there are: the low bits
// count polls, those above keep the tick in which the count was first full. The clock is read once
// in 2^20 polls.
class Patience {
 public:
  // After a poll that has not seen it.
  __device__ __forceinline__ void Poll() {
    ++state_;
    if ((state_ & (kPolls - 1)) == 0) LookAtClock();
  }

 private:
  static constexpr int kLogPolls = 20;
  static constexpr uint32_t kPolls = 1u << kLogPolls;
  static constexpr uint32_t kTicks = 1 << 11, kSet = kTicks;
  static constexpr uint32_t kLimit = 14;  // full ticks: 60 s
  static_assert(kLogPolls <= 20, "ticks and the bit that says that they are there fill the rest");

  __device__ __forceinline__ void LookAtClock() {
    state_ -= kPolls;  // the carry
    const uint32_t now = GlobalTicks() & (kTicks - 1);
    const uint32_t since = state_ >> kLogPolls;
    if (since == 0) {
      state_ += (kSet | now) << kLogPolls;
      return;
    }
    // Not assert: room for a call costs registers, which some kernels do not have.
    if (((now - since) & (kTicks - 1)) > kLimit) asm volatile("trap;");
  }

  uint32_t state_ = 0;
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_PTX_PATIENCE_CUH_
