// Random numbers that forward draws and backward draws again: a pure function of a seed and of an
// element's position. So no mask is stored, and every engine draws the same.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//   key      seed[0] low word xor seed[1] low word rotated by 16, seed[0] high word xor seed[1]
//   high counter  { t, n, k·H + j, stream }
// Word s of a draw decides on state s. `stream` is 0 for Zoneout; 1, with t = 0, for dropout
// on h (one mask a call), which uses word 0.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define HASTE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HASTE_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace haste {

struct PhiloxKey {
  uint32_t word[2];
};

HASTE_HOST_DEVICE PhiloxKey MakePhiloxKey(const int64_t* seed) {
  const uint64_t a = static_cast<uint64_t>(seed[0]);
  const uint64_t b = static_cast<uint64_t>(seed[1]);
  const uint32_t b_low = static_cast<uint32_t>(b);
  return {{static_cast<uint32_t>(a) ^ ((b_low << 16) | (b_low >> 16)),
           static_cast<uint32_t>(a >> 32) ^ static_cast<uint32_t>(b >> 32)}};
}

enum PhiloxStream : uint32_t { kZoneoutStream = 0, kDropoutStream = 1 };

HASTE_HOST_DEVICE void Philox(PhiloxKey key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                              uint32_t out[4]) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key.word[0];
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key.word[1];
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    key.word[0] += 0x9E3779B9u;
    key.word[1] += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

// True with probability `rate`. Compares 24 bits, so that a float holds them exactly.
HASTE_HOST_DEVICE bool Draw(uint32_t word, float rate) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f) < rate;
}

// What h is multiplied by under recurrent dropout: 0 or 1 / (1 - rate).
HASTE_HOST_DEVICE float DropoutScale(PhiloxKey key, uint32_t n, uint32_t unit, float rate) {
  uint32_t word[4];
  Philox(key, 0, n, unit, kDropoutStream, word);
  return Draw(word[0], rate) ? 0.0f : 1.0f / (1.0f - rate);
}

}  // namespace haste
