// The scales of float16 that stands in for floats: powers of two that bring R, and the operand it
// is multiplied by, to where float16 is most precise. The scale of R comes from its largest number,
// that of h from a bound. Gates' gradients have a scale for each row of the batch and step, which
// is sent with them.
#pragma once

#include "lib/cuda/ptx/mma.cuh"

namespace haste {

// Larger bounds are not used, so that infinity and NaN stay what they are.
constexpr float kMostBound = 1e30f;

constexpr int kTopOfHalf = 14, kMostShift = 100;  // exponents

HASTE_DEVICE float PowerOfTwo(int exponent) { return __int_as_float((127 + exponent) << 23); }

// The largest power of two whose product with `most` is below 2^15: half of the range of float16,
// which leaves room for what rounding adds to a bound.
HASTE_DEVICE float ScaleToHalf(float most) {
  if (!(most > 0.0f && most < kMostBound)) most = 1.0f;
  const int exponent = static_cast<int>(__float_as_uint(most) >> 23) - 127;
  return PowerOfTwo(min(kTopOfHalf - exponent, kMostShift));
}

// The larger of two magnitudes.
HASTE_DEVICE float Larger(float most, float x) {
  return fabsf(x) < kMostBound ? fmaxf(most, fabsf(x)) : most;
}
HASTE_DEVICE uint32_t LargestBits(uint32_t bits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xFFFFFFFFu, bits);
#else
  return bits;  // never launched on these architectures
#endif
}
HASTE_DEVICE float LargestOfWarp(float x) {
  HASTE_UNROLL for (int distance = 16; distance > 0; distance /= 2) {
    x = Larger(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
  }
  return x;
}

// The scale of a row's gates' gradients, of which `most` is the largest, and the factor that undoes
// it. An infinite gradient stays infinite, and then the others do not matter.
struct RowScale {
  float up, down;

  // most: its bits.
  HASTE_DEVICE explicit RowScale(uint32_t most, int most_shift = kMostShift) {
    const int exponent = min(kTopOfHalf + 127 - static_cast<int>(most >> 23), most_shift);
    up = PowerOfTwo(exponent);
    down = PowerOfTwo(-exponent);
  }
};

// The largest magnitude in a lane's part of R. load(make) loads that part, mapping each weight by
// `make`.
template <class T, class Load>
HASTE_DEVICE float LargestWeight(const Load& load) {
  float most = 0.0f;
  load([&most](T weight) {
    most = Larger(most, weight.value);
    return weight;
  });
  return most;
}

// The factors of h when it is sent, of R when it is loaded, and of their product.
struct ProductScales {
  float state, weight, product;

  ProductScales() = default;
  // From the largest magnitude of each. rate: of dropout, which enlarges the h that it keeps.
  HASTE_DEVICE ProductScales(float most_state, float most_weight, float rate)
      : state(ScaleToHalf(most_state / (1.0f - rate))),
        weight(ScaleToHalf(most_weight)),
        product(1.0f / (state * weight)) {}
  // If the operand that R is multiplied by has scales of its own.
  HASTE_DEVICE explicit ProductScales(float most_weight)
      : state(1.0f), weight(ScaleToHalf(most_weight)), product(1.0f / weight) {}

  // The scaled weight; the weight itself if nothing is scaled.
  template <class T>
  HASTE_DEVICE T OfWeight(T of_r) const {
    if constexpr (kScaledTerms<T> > 0) of_r.value *= weight;
    return of_r;
  }
};

}  // namespace haste
