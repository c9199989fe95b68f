// The draws of lib/base/philox.h for one vector of neighbouring hidden units at once, bit for bit
// the same. Per-target header.
#if defined(HASTE_LIB_CPU_SIMD_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_SIMD_RANDOM_INL_H_
#else
#define HASTE_LIB_CPU_SIMD_RANDOM_INL_H_
#endif

#include "lib/base/philox.h"
#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// Philox of {c0, c1, unit + lane, stream} in each lane of a Vec<C>.
template <class C>
class UnitDraws {
  using D = hn::ScalableTag<C>;
  using D32 = hn::Rebind<uint32_t, D>;
  using V32 = hn::Vec<D32>;

 public:
  HWY_INLINE UnitDraws(PhiloxKey key, int64_t c0, int64_t c1, int64_t unit, PhiloxStream stream) {
    const D32 d;
    word_[0] = hn::Set(d, static_cast<uint32_t>(c0));
    word_[1] = hn::Set(d, static_cast<uint32_t>(c1));
    word_[2] = hn::Iota(d, static_cast<uint32_t>(unit));
    word_[3] = hn::Set(d, static_cast<uint32_t>(stream));
    for (int round = 0; round < 10; ++round) {
      V32 high0, low0, high1, low1;
      Multiply(0xD2511F53u, word_[0], &high0, &low0);
      Multiply(0xCD9E8D57u, word_[2], &high1, &low1);
      word_[0] = hn::Xor(hn::Xor(high1, word_[1]), hn::Set(d, key.word[0]));
      word_[2] = hn::Xor(hn::Xor(high0, word_[3]), hn::Set(d, key.word[1]));
      word_[1] = low1;
      word_[3] = low0;
      key.word[0] += 0x9E3779B9u;
      key.word[1] += 0xBB67AE85u;
    }
  }

  // 1 where Draw(word, rate), else 0.
  HWY_INLINE Vec<C> Drawn(int word, float rate) const {
    const D d;
    const hn::Rebind<int32_t, D> di;
    const auto bits = hn::BitCast(di, hn::ShiftRight<8>(word_[word]));
    const auto share = hn::Mul(ToFloat(bits), hn::Set(d, C(1) / 16777216));
    return Vec<C>(hn::IfThenElseZero(hn::Lt(share, hn::Set(d, C(rate))), hn::Set(d, C(1))));
  }

 private:
  template <class Int>
  static HWY_INLINE hn::Vec<D> ToFloat(Int bits) {
    if constexpr (sizeof(C) == 8) {
      return hn::PromoteTo(D(), bits);
    } else {
      return hn::ConvertTo(D(), bits);
    }
  }

  static HWY_INLINE void Multiply(uint32_t factor, V32 x, V32* high, V32* low) {
    const D32 d;
#if HWY_TARGET == HWY_SCALAR
    const uint64_t product = static_cast<uint64_t>(hn::GetLane(x)) * factor;
    *high = hn::Set(d, static_cast<uint32_t>(product >> 32));
    *low = hn::Set(d, static_cast<uint32_t>(product));
#else
    const hn::RepartitionToWide<D32> wide;
    const V32 m = hn::Set(d, factor);
    const auto even = hn::MulEven(x, m);
    const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), m);
    *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
    *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
#endif
  }

  V32 word_[4];
};

// DropoutScale of lib/base/philox.h.
template <class C>
HWY_INLINE Vec<C> DropoutScales(PhiloxKey key, int64_t n, int64_t unit, float rate) {
  const UnitDraws<C> draws(key, 0, n, unit, kDropoutStream);
  return IfPositive(draws.Drawn(0, rate), Vec<C>(), Vec<C>(double{1.0f / (1.0f - rate)}));
}

HASTE_TARGET_END

#endif
