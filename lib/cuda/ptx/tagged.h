// Floats that say themselves to which use of their place they belong: by their last bit. It is
// taken off where they arrive, so that 0 stays 0 and infinity infinity, at 2^-23 of other values.
#ifndef HASTE_LIB_CUDA_PTX_TAGGED_H_
#define HASTE_LIB_CUDA_PTX_TAGGED_H_

#include <stdint.h>
#include <string.h>

#include "lib/base/per_target.h"

HASTE_TARGET_BEGIN

// tag: 0 or 1. NaN stays NaN but for one, 0x7F800001 of either sign, which no instruction of a GPU
// makes.
HASTE_FN uint32_t Tagged(float x, uint32_t tag) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits & ~1u) | tag;
}
HASTE_FN bool HasTag(uint32_t bits, uint32_t tag) { return ((bits ^ tag) & 1u) == 0; }
HASTE_FN float Untagged(uint32_t bits) {
  bits &= ~1u;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

HASTE_TARGET_END

#endif  // HASTE_LIB_CUDA_PTX_TAGGED_H_
