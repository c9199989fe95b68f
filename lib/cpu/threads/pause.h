// What a loop that waits for another thread executes in each round.
#pragma once

namespace haste {

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace haste
