// A polling loop that waits for another kernel, with a timeout: a thread that has waited for a
// minute in vain stops its kernel. The host turns the resulting error into a message (CudaFailure).
//
// Blocks of one kernel that wait for each other are all resident, so their waits end when the waits
// for other kernels do. They have no timeout of their own, which would take 5 to 8 % of a step. If
// an order that the driver does not promise was not kept (docs/design/gpu_products.md), a program
// sees this error instead of a GPU that never answers.
#pragma once

#include <stdint.h>

#include "lib/cuda/ptx/device_code.cuh"

namespace haste {

// Ticks of 2^32 ns, 4.3 s.
HASTE_DEVICE uint32_t GlobalTicks() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%globaltimer_hi;" : "=r"(now));
  return now;
}

// The timeout of one wait. It takes only one register, because the loops use nearly all there are:
// the low bits count polls, the high bits keep the tick at which the count was first full. The
// clock is read once in 2^20 polls.
class Patience {
 public:
  // Call after a poll without success.
  HASTE_DEVICE void Poll() {
    ++state_;
    if ((state_ & (kPolls - 1)) == 0) LookAtClock();
  }

 private:
  static constexpr int kLogPolls = 20;
  static constexpr uint32_t kPolls = 1u << kLogPolls;
  static constexpr uint32_t kTicks = 1 << 11, kSet = kTicks;
  static constexpr uint32_t kLimit = 14;  // full ticks: 60 s
  static_assert(kLogPolls <= 20, "ticks and the bit that says that they are there fill the rest");

  HASTE_DEVICE void LookAtClock() {
    state_ -= kPolls;  // the carry
    const uint32_t now = GlobalTicks() & (kTicks - 1);
    const uint32_t since = state_ >> kLogPolls;
    if (since == 0) {
      state_ += (kSet | now) << kLogPolls;
      return;
    }
    // Not assert: a call costs registers, which some kernels do not have.
    if (((now - since) & (kTicks - 1)) > kLimit) asm volatile("trap;");
  }

  uint32_t state_ = 0;
};

}  // namespace haste
