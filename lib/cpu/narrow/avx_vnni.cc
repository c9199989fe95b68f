// int8 by AVX-VNNI, which processors without AVX-512 have: vpdpbusd on vectors of AVX2.
#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include "lib/cpu/narrow/narrow.h"

HWY_PUSH_ATTRIBUTES("avx2,avxvnni")
#include "lib/cpu/narrow/avx2.h"

namespace haste {
namespace {

struct AvxVnni {
  using Weights = __m256i;
  static HWY_INLINE __m256i Operand(__m256i x) { return x; }
  static HWY_INLINE __m256i Add(__m256i sum, __m256i x, __m256i w) {
    return _mm256_dpbusd_avx_epi32(sum, x, w);
  }
};

}  // namespace

const NarrowKernel kAvxVnniInt8 = {
    "AVX-VNNI", Narrow::kInt8, 8, 1, nullptr, nullptr, MultiplyInt8<AvxVnni, 1>, nullptr, nullptr};

}  // namespace haste
HWY_POP_ATTRIBUTES
#endif
