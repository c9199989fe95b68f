// Loads and stores of 16-bit types, on every SIMD target that this machine can run: every half and
// bfloat16, and rounding to nearest even at and around midpoints.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/lib/storage_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lib/cpu/simd/simd-inl.h"
#include "tests/lib/check.h"

HASTE_TARGET_BEGIN
namespace {

template <class T>
void LoadAll(const std::vector<T>& from, std::vector<float>* to) {
  const int64_t n = static_cast<int64_t>(from.size());
  for (int64_t i = 0; i < n; i += Width<float>()) {
    StorePart<float>(LoadPart<T>(&from[i], n - i), &(*to)[i], n - i);
  }
}
template <class T>
void StoreAll(const std::vector<float>& from, std::vector<T>* to) {
  const int64_t n = static_cast<int64_t>(from.size());
  for (int64_t i = 0; i < n; i += Width<float>()) {
    StorePart<T>(LoadPart<float>(&from[i], n - i), &(*to)[i], n - i);
  }
}

void LoadHalf(const std::vector<Half>& from, std::vector<float>* to) { LoadAll(from, to); }
void StoreHalf(const std::vector<float>& from, std::vector<Half>* to) { StoreAll(from, to); }
void LoadBfloat16(const std::vector<Bfloat16>& from, std::vector<float>* to) { LoadAll(from, to); }
void StoreBfloat16(const std::vector<float>& from, std::vector<Bfloat16>* to) {
  StoreAll(from, to);
}
void RoundBfloat16(const std::vector<float>& from, std::vector<float>* to) {
  const int64_t n = static_cast<int64_t>(from.size());
  for (int64_t i = 0; i < n; i += Width<float>()) {
    const auto rounded = Storage<Bfloat16>::Rounded(LoadPart<float>(&from[i], n - i));
    StorePart<float>(rounded, &(*to)[i], n - i);
  }
}

}  // namespace
HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

struct Format {
  const char* name;
  int mantissa, least_exponent;  // bits of the fraction; exponent of the smallest normal number
  double largest;
};
const Format kHalf = {"half", 10, -14, 65504};
const Format kBfloat16 = {"bfloat16", 7, -126, 3.3895313892515355e38};

// The value of 16 bits.
double Decode(uint16_t bits, const Format& format) {
  const int mantissa = bits & ((1 << format.mantissa) - 1);
  const int exponent = (bits & 0x7FFF) >> format.mantissa;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (0x7FFF >> format.mantissa)) return mantissa ? NAN : sign * INFINITY;
  const double fraction = exponent == 0 ? 0 : 1;
  return sign * std::ldexp(fraction + std::ldexp(mantissa, -format.mantissa),
                           format.least_exponent + std::max(exponent, 1) - 1);
}

// The nearest number of the format, ties to even.
double Round(float x, const Format& format) {
  if (std::isnan(x) || std::isinf(x)) return x;
  int exponent;
  std::frexp(x, &exponent);
  const double ulp =
      std::ldexp(1.0, std::max(exponent - 1, format.least_exponent) - format.mantissa);
  const double rounded = std::nearbyint(x / ulp) * ulp;
  return std::fabs(rounded) > format.largest ? std::copysign(INFINITY, x) : rounded;
}

bool Same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

template <class T>
void Check(const char* target, void (*load)(const std::vector<T>&, std::vector<float>*),
           void (*store)(const std::vector<float>&, std::vector<T>*),
           void (*round)(const std::vector<float>&, std::vector<float>*), const Format& format,
           unsigned seed) {
  if (load == nullptr) return;  // a target that was not compiled
  std::vector<T> all(1 << 16);
  for (int i = 0; i < 1 << 16; ++i) all[i].bits = static_cast<uint16_t>(i);
  std::vector<float> values(all.size());
  load(all, &values);
  std::vector<float> x;
  for (int i = 0; i < 1 << 16; ++i) {
    const double want = Decode(all[i].bits, format);
    EXPECT_TRUE(Same(values[i], want), "%s %s: %04x is %g, loaded %g", target, format.name, i, want,
                values[i]);
    // The number, the midpoint to the next, and both sides of that.
    const double next = Decode(static_cast<uint16_t>(i + 1), format);
    const float middle = static_cast<float>((want + next) / 2);
    for (const float v : {static_cast<float>(want), middle, std::nextafter(middle, INFINITY),
                          std::nextafter(middle, -INFINITY)}) {
      x.push_back(v);
    }
  }
  std::mt19937 random(seed);
  for (int i = 0; i < 200000; ++i) {
    const uint32_t bits = random();
    float v;
    memcpy(&v, &bits, sizeof v);
    x.push_back(v);
  }
  std::vector<T> stored(x.size());
  store(x, &stored);
  for (size_t i = 0; i < x.size(); ++i) {
    const double got = Decode(stored[i].bits, format), want = Round(x[i], format);
    EXPECT_TRUE(Same(got, want), "%s %s: %.9g should round to %.9g, got %.9g", target, format.name,
                x[i], want, got);
    if (haste_test::Failures() > 20) return;
  }
  if (round != nullptr) {  // the bits of what is stored, as floats
    std::vector<float> rounded(x.size()), loaded(x.size());
    round(x, &rounded);
    load(stored, &loaded);
    EXPECT_TRUE(memcmp(rounded.data(), loaded.data(), x.size() * sizeof(float)) == 0,
                "%s %s: rounded floats differ from stored ones", target, format.name);
  }
  std::printf("%-9s %s: %zu values\n", target, format.name, x.size());
}

}  // namespace
}  // namespace haste

#define HASTE_CHECK_TARGET(NAME, CHOOSE)                                                      \
  haste::Check<haste::Half>(NAME, CHOOSE(LoadHalf), CHOOSE(StoreHalf), nullptr, haste::kHalf, \
                            seed);                                                            \
  haste::Check<haste::Bfloat16>(NAME, CHOOSE(LoadBfloat16), CHOOSE(StoreBfloat16),            \
                                CHOOSE(RoundBfloat16), haste::kBfloat16, seed)

int main() {
  using namespace haste;
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
#define HASTE_BASELINE(FN) &HWY_STATIC_DISPATCH(FN)
  HASTE_CHECK_TARGET("baseline", HASTE_BASELINE);
#if defined(__x86_64__)
  const SimdTarget best = BestTarget();
  if (best != SimdTarget::kBaseline) {
    HASTE_CHECK_TARGET("avx2", HWY_CHOOSE_AVX2);
  }
  if (best >= SimdTarget::kAvx3) {
    HASTE_CHECK_TARGET("avx512", HWY_CHOOSE_AVX3);
  }
#endif
  return haste_test::Report("storage_test");
}
#endif  // HWY_ONCE
