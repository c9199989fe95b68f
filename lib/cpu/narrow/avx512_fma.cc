// bfloat16 by multiply-adds of float32 on AVX-512: where there is no BF16, and on Intel's
// processors since Sapphire Rapids. There vdpbf16ps takes as long as four multiply-adds, and does
// the work of two.
//
// A group of a column is 32 bits: its first element is the lower half, its second the upper one.
// One shift or one mask makes a float of either. The operand is floats.
#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <type_traits>

#include "lib/cpu/narrow/narrow.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl")
#include "lib/cpu/narrow/avx512_pack.h"
#include "lib/cpu/narrow/avx512_tile.h"

namespace haste {
namespace {

struct WidenedBfloat16 : FloatSums {
  template <int kRows, int kVectors>
  static HWY_INLINE void Step(const char* a, int64_t a_row, const char* b, int64_t i,
                              V (&sum)[kRows][kVectors]) {
    b += i * kVectors * 64;
    a += 8 * i;
    if constexpr (kRows == 1) {  // otherwise there is time to wait for the second-level cache
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) _mm_prefetch(b + v * 64 + kAhead, _MM_HINT_T0);
    }
    V w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      // With a mask of all lanes, where GCC 12 would warn that lanes are not initialised.
      const __m512i group = _mm512_loadu_si512(b + v * 64);
      w[v] = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, group, 16));
    }
    AddProducts(a, a_row, w, sum);
    // The weights are read twice: there are no registers to keep them.
    asm("" : "+r"(b));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
      w[v] = _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(b + v * 64), upper));
    }
    AddProducts(a + 4, a_row, w, sum);
  }

 private:
  static constexpr int kAhead = 1024;  // bytes

  // With an element of each row.
  template <int kRows, int kVectors>
  static HWY_INLINE void AddProducts(const char* a, int64_t a_row, const V (&w)[kVectors],
                                     V (&sum)[kRows][kVectors]) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float element;
      __builtin_memcpy(&element, a + r * a_row, sizeof element);
      const V x = _mm512_set1_ps(element);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_fmadd_ps(x, w[v], sum[r][v]);
    }
  }
};

}  // namespace

const NarrowKernel kAvx512FmaBfloat16 = {
    "AVX-512 FMA",      Narrow::kBfloat16, 16,   1, nullptr, nullptr, Multiply<WidenedBfloat16>,
    Pack<PackBfloat16>, nullptr,           true, 1, true};

}  // namespace haste
HWY_POP_ATTRIBUTES
#endif
