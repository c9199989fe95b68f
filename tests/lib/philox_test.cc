// Philox4x32-10 against the known answers published with Random123, and the rates of Draw.
#include "lib/base/philox.h"

#include "tests/lib/check.h"

namespace haste {
namespace {

void KnownAnswers() {
  const struct {
    uint32_t counter[4], key[2], want[4];
  } cases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& c : cases) {
    uint32_t got[4];
    Philox({{c.key[0], c.key[1]}}, c.counter[0], c.counter[1], c.counter[2], c.counter[3], got);
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(got[i] == c.want[i], "word %d: got %08x, want %08x", i, got[i], c.want[i]);
    }
  }
}

void Rates() {
  const int64_t seed[2] = {1234567890123, -42};
  const PhiloxKey key = MakePhiloxKey(seed);
  for (const float rate : {0.0f, 0.1f, 0.5f, 1.0f}) {
    int kept = 0;
    constexpr int kDraws = 200000;
    for (int i = 0; i < kDraws; ++i) {
      uint32_t word[4];
      Philox(key, i, 3, 5, kZoneoutStream, word);
      kept += Draw(word[0], rate);
    }
    const double deviation = std::sqrt(rate * (1 - rate) / kDraws);
    EXPECT_NEAR(static_cast<double>(kept) / kDraws, rate, 5 * deviation + 1e-12, "rate %g", rate);
  }
}

}  // namespace
}  // namespace haste

int main() {
  haste::KnownAnswers();
  haste::Rates();
  return haste_test::Report("philox_test");
}
