// Whether a single row is multiplied with R as it lies, or R is packed.
#pragma once

#include <stdint.h>

namespace haste {

// Packing costs as much as two products or more. It pays off if R is large and the walk has more
// than a few steps; or if vectors of R cross cache lines and the walk is long.
class RowInPlace {
 public:
  // bytes: of a lane's R. vector_bytes: of what is loaded at a time.
  RowInPlace(int64_t rows, int64_t steps, bool whole_vectors, int64_t bytes, int64_t vector_bytes)
      : possible_(rows == 1 && whole_vectors && (steps <= kSteps || bytes <= kBytes)),
        may_pack_(!possible_ || (vector_bytes == kLine && steps > kStepsAcrossLines)) {}

  // The workspace's size is asked for before it is known where R lies.
  bool may_pack() const { return may_pack_; }
  bool Takes(const void* r) const {
    return !may_pack_ || (possible_ && reinterpret_cast<uintptr_t>(r) % kLine == 0);
  }

 private:
  // Up to 1 MiB R is as fast in place as packed. At 4 MiB, with rows 8 KiB apart, a step takes 1.2
  // times as long on Zen 4 and 2.5 times on a Sapphire Rapids; packing takes as long as two to four
  // steps.
  static constexpr int64_t kSteps = 6, kBytes = 1 << 20;
  // Where vectors cross cache lines, steps take 1.2 to 1.45 times as long (float32, AVX-512,
  // H = 128 and 256, Sapphire Rapids).
  static constexpr int64_t kStepsAcrossLines = 32, kLine = 64;

  bool possible_, may_pack_;
};

}  // namespace haste
