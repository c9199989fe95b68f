// Tagged floats (lib/cuda/ptx/tagged.h): what arrives is what was sent, to the last bit but one,
// and exactly where it is 0 or not finite.
#include "lib/cuda/ptx/tagged.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/lib/check.h"

namespace haste {
namespace {

uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
float OfBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

void Holds(float x) {
  for (const uint32_t tag : {0u, 1u}) {
    const uint32_t sent = Tagged(x, tag);
    const float got = Untagged(sent);
    const uint32_t bits = BitsOf(x);
    EXPECT_TRUE(HasTag(sent, tag) && !HasTag(sent, tag ^ 1), "%08x with tag %u: %08x", bits, tag,
                sent);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(got), "%08x with tag %u: %08x is no NaN", bits, tag, BitsOf(got));
    } else if (x == 0 || std::isinf(x)) {
      EXPECT_TRUE(BitsOf(got) == bits, "%08x with tag %u: %08x", bits, tag, BitsOf(got));
    } else {
      EXPECT_TRUE(bits - BitsOf(got) <= 1, "%08x with tag %u: %08x", bits, tag, BitsOf(got));
    }
  }
}

void Specials() {
  using Limits = std::numeric_limits<float>;
  for (const float x :
       {0.0f, Limits::denorm_min(), 3 * Limits::denorm_min(), Limits::min(), Limits::max(), 1.0f,
        std::nextafter(1.0f, 2.0f), Limits::infinity(), Limits::quiet_NaN()}) {
    Holds(x);
    Holds(-x);
  }
  // NaN as GPUs and tensor cores make it.
  Holds(OfBits(0x7FFFFFFFu));
  Holds(OfBits(0xFFFFFFFFu));
}

void RandomBits() {
  std::mt19937 random(1);
  for (int i = 0; i < 2000000; ++i) {
    const uint32_t bits = random();
    if ((bits & 0x7FFFFFFFu) != 0x7F800001u) Holds(OfBits(bits));
  }
}

// A place that was never written has all bits set, which is the tag of no first use.
void Unwritten() { EXPECT_TRUE(!HasTag(0xFFFFFFFFu, 0), "%s", "memory that is cleared has tag 0"); }

}  // namespace
}  // namespace haste

int main() {
  haste::Specials();
  haste::RandomBits();
  haste::Unwritten();
  return haste_test::Report("tagged_test");
}
