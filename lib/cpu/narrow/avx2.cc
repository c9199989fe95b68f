// int8 by AVX2, also for AVX-512 without VNNI.
//
// vpmaddubsw adds two products in 16 bits, and saturates if an unsigned byte is above 128. So the
// unsigned byte is |w|, and the signed one the operand's value with the sign of w: two products are
// at most 2 · 128 · 127. (A value of -128, whose sign cannot change, is only where weights are 0.)
#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include "lib/cpu/narrow/narrow.h"

HWY_PUSH_ATTRIBUTES("avx2")
#include "lib/cpu/narrow/avx2.h"

namespace haste {
namespace {

struct Avx2 {
  struct Weights {
    Weights() = default;
    HWY_INLINE explicit Weights(__m256i w) : value(w), magnitude(_mm256_abs_epi8(w)) {}
    __m256i value, magnitude;
  };
  // Bytes that stand for their value - 128, as values.
  static HWY_INLINE __m256i Operand(__m256i x) {
    return _mm256_xor_si256(x, _mm256_set1_epi8(-128));
  }
  static HWY_INLINE __m256i Add(__m256i sum, __m256i x, const Weights& w) {
    const __m256i pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.value));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

}  // namespace

const NarrowKernel kAvx2Int8 = {"AVX2",  Narrow::kInt8,         8,       1,      nullptr,
                                nullptr, MultiplyInt8<Avx2, 1>, nullptr, nullptr};
const NarrowKernel kAvx2Int8Wide = {"AVX2",  Narrow::kInt8,         16,      1,      nullptr,
                                    nullptr, MultiplyInt8<Avx2, 2>, nullptr, nullptr};

}  // namespace haste
HWY_POP_ATTRIBUTES
#endif
