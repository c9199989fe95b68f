// Floats whose last bit tells to which use of their place they belong. The receiver clears this
// bit, so that 0 stays 0 and infinity stays infinity. The error of other values is 2^-23.
#pragma once

#include <stdint.h>
#include <string.h>

#include "lib/base/per_target.h"

HASTE_TARGET_BEGIN

// tag: 0 or 1. NaN stays NaN, except 0x7F800001 of either sign, which no GPU instruction produces.
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
