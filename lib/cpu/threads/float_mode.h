// How a thread rounds, and whether it takes subnormals for zero: the caller's mode is its helpers'
// too, or a result would depend on which thread computed it.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace haste {

class FloatMode {
 public:
  // That of the calling thread.
  FloatMode() : bits_(Read() & kControl) {}

  // The calling thread has `mode` until the end of the scope.
  class Scope {
   public:
    explicit Scope(const FloatMode& mode) : before_(Read()) {
      const uint64_t wanted = (before_ & ~kControl) | mode.bits_;
      changed_ = wanted != before_;
      if (changed_) Write(wanted);
    }
    ~Scope() {
      if (changed_) Write(before_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const uint64_t before_;
    bool changed_;
  };

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kControl = 0xFFC0;  // of MXCSR, without the flags of past operations
  static uint64_t Read() { return _mm_getcsr(); }
  static void Write(uint64_t bits) { _mm_setcsr(static_cast<uint32_t>(bits)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kControl = ~uint64_t{0};  // FPCR has no such flags
  static uint64_t Read() {
    uint64_t bits;
    __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
  }
  static void Write(uint64_t bits) { __asm__ volatile("msr fpcr, %0" : : "r"(bits)); }
#else
  static constexpr uint64_t kControl = 0;
  static uint64_t Read() { return 0; }
  static void Write(uint64_t) {}
#endif

  const uint64_t bits_;
};

}  // namespace haste
