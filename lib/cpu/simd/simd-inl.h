// One full SIMD vector of compute scalars with the operations of lib/base/math.h, and its loads and
// stores in every storage type. Per-target header (see lib/base/per_target.h).
#if defined(HASTE_LIB_CPU_SIMD_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_SIMD_SIMD_INL_H_
#else
#define HASTE_LIB_CPU_SIMD_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include "lib/base/dtypes.h"
#include "lib/base/math.h"
#include "lib/base/per_target.h"

// For a lambda: inlines it into the loop that calls it.
#undef HASTE_INLINED
#define HASTE_INLINED HWY_ATTR __attribute__((always_inline))

HASTE_TARGET_BEGIN

namespace hn = hwy::HWY_NAMESPACE;

// The operations of V, which has a vector of C as `v` and can be made from one.
template <class V, class C>
struct VecOperations {
  // Whether hn::Max and hn::Min give their second operand if either is NaN, as those of x86 do.
  static constexpr bool kSecondIfNan = HWY_ARCH_X86 && HWY_TARGET < HWY_EMU128;
  using D = hn::ScalableTag<C>;

  friend HWY_INLINE V operator+(V a, V b) { return V(hn::Add(a.v, b.v)); }
  friend HWY_INLINE V operator-(V a, V b) { return V(hn::Sub(a.v, b.v)); }
  friend HWY_INLINE V operator*(V a, V b) { return V(hn::Mul(a.v, b.v)); }
  friend HWY_INLINE V operator/(V a, V b) { return V(hn::Div(a.v, b.v)); }
  friend HWY_INLINE V operator-(V a) { return V(hn::Neg(a.v)); }
  friend HWY_INLINE V MulAdd(V a, V b, V c) { return V(hn::MulAdd(a.v, b.v, c.v)); }
  friend HWY_INLINE V Abs(V a) { return V(hn::Abs(a.v)); }
  friend HWY_INLINE V CopySign(V magnitude, V sign) { return V(hn::CopySign(magnitude.v, sign.v)); }
  friend HWY_INLINE V IfPositive(V x, V yes, V no) {
    return V(hn::IfThenElse(hn::Gt(x.v, hn::Zero(D())), yes.v, no.v));
  }
  friend HWY_INLINE V AtLeast(V x, V low) {
    if constexpr (kSecondIfNan) return V(hn::Max(low.v, x.v));
    return V(hn::IfThenElse(hn::Lt(x.v, low.v), low.v, x.v));
  }
  friend HWY_INLINE V AtMost(V x, V high) {
    if constexpr (kSecondIfNan) return V(hn::Min(high.v, x.v));
    return V(hn::IfThenElse(hn::Gt(x.v, high.v), high.v, x.v));
  }
  friend HWY_INLINE V StopGradient(V x) { return x; }
  friend HWY_INLINE V Divide(V a, V b) { return a / b; }
  friend HWY_INLINE V Pow2(V shifted) {
    using Bits = hwy::MakeUnsigned<C>;
    const hn::RebindToUnsigned<D> du;
    constexpr int kMantissa = sizeof(C) == 4 ? 23 : 52;
    constexpr Bits kOne = static_cast<Bits>(sizeof(C) == 4 ? 127 : 1023) << kMantissa;
    const auto bits = hn::ShiftLeft<kMantissa>(hn::BitCast(du, shifted.v));
    return V(hn::BitCast(D(), hn::Add(bits, hn::Set(du, kOne))));
  }
};

template <class C>
struct Vec : VecOperations<Vec<C>, C> {
  using Scalar = C;
  using D = hn::ScalableTag<C>;
  using Raw = hn::Vec<D>;
  Raw v;

  HWY_INLINE Vec() : v(hn::Zero(D())) {}
  explicit HWY_INLINE Vec(Raw raw) : v(raw) {}
  explicit HWY_INLINE Vec(double x) : v(hn::Set(D(), static_cast<C>(x))) {}
};

// Lanes of a vector of C.
template <class C>
HWY_INLINE int64_t Width() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<C>()));
}

template <class C>
HWY_INLINE Vec<C> Load(const C* from) {
  return Vec<C>(hn::LoadU(hn::ScalableTag<C>(), from));
}
template <class C>
HWY_INLINE void Store(Vec<C> v, C* to) {
  hn::StoreU(v.v, hn::ScalableTag<C>(), to);
}

// A vector of C in memory as T.
template <class T>
struct Storage {
  using C = T;
  static HWY_INLINE Vec<C> Load(const T* from) {
    return Vec<C>(hn::LoadU(hn::ScalableTag<C>(), from));
  }
  static HWY_INLINE void Store(Vec<C> v, T* to) { hn::StoreU(v.v, hn::ScalableTag<C>(), to); }
};

template <>
struct Storage<Bfloat16> {
  using C = float;
  using D32 = hn::ScalableTag<float>;
  using DU32 = hn::RebindToUnsigned<D32>;
  using DU16 = hn::Rebind<uint16_t, D32>;
  static HWY_INLINE Vec<C> Load(const Bfloat16* from) {
    const auto bits = hn::PromoteTo(DU32(), hn::LoadU(DU16(), &from->bits));
    return Vec<C>(hn::BitCast(D32(), hn::ShiftLeft<16>(bits)));
  }
  // Rounds to nearest even. A NaN keeps its upper bits and becomes quiet.
  static HWY_INLINE Vec<C> Rounded(Vec<C> v) {
    const DU32 du;
    return Vec<C>(hn::BitCast(D32(), hn::And(RoundedBits(v), hn::Set(du, 0xFFFF0000u))));
  }
  static HWY_INLINE void Store(Vec<C> v, Bfloat16* to) {
    // Values fit 16 bits; DemoteTo takes signed input, and this shift extends the sign.
    const hn::RebindToSigned<D32> di;
    const hn::Rebind<int16_t, D32> di16;
    const auto upper = hn::ShiftRight<16>(hn::BitCast(di, RoundedBits(v)));
    hn::StoreU(hn::DemoteTo(di16, upper), di16, reinterpret_cast<int16_t*>(to));
  }

 private:
  // The result is in the upper halves.
  static HWY_INLINE hn::Vec<DU32> RoundedBits(Vec<C> v) {
    const DU32 du;
    const auto bits = hn::BitCast(du, v.v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(bits, hn::Add(hn::Set(du, 0x7FFFu), odd));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v.v)), quiet, rounded);
  }
};

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
// Where there is no instruction, Highway's conversion truncates and does not handle NaN and
// infinity.
inline float HalfToFloat(uint16_t half) {
  constexpr uint32_t kExponent = 0x7C00u << 13;
  uint32_t bits = static_cast<uint32_t>(half & 0x7FFF) << 13;
  const uint32_t exponent = bits & kExponent;
  bits += (127u - 15u) << 23;
  float value;
  if (exponent == kExponent) bits += (255u - 31u - 127u + 15u) << 23;  // infinity, NaN
  if (exponent == 0) bits += 1u << 23;  // subnormal: adds an implicit one, subtracted below
  memcpy(&value, &bits, sizeof value);
  if (exponent == 0) value -= 6.103515625e-05f;
  return half & 0x8000 ? -value : value;
}
// Rounds to nearest even.
inline uint16_t FloatToHalf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7FFFFFFF;
  if (bits > 0x7F800000) return sign | 0x7E00;   // NaN
  if (bits >= 0x47800000) return sign | 0x7C00;  // 65536 and more
  if (bits < 0x38800000) {
    // Below the smallest normal half: adding 0.5 leaves its last bit where a half's is.
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0.5f;
    memcpy(&bits, &magnitude, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3F000000));
  }
  bits += 0xFFF + (bits >> 13 & 1) - ((127u - 15u) << 23);
  return static_cast<uint16_t>(sign | bits >> 13);
}

template <>
struct Storage<Half> {
  using C = float;
  static HWY_INLINE Vec<C> Load(const Half* from) {
    HWY_ALIGN C lanes[HWY_MAX_BYTES / sizeof(C)];
    for (int64_t i = 0; i < Width<C>(); ++i) lanes[i] = HalfToFloat(from[i].bits);
    return haste::HWY_NAMESPACE::Load(lanes);
  }
  static HWY_INLINE void Store(Vec<C> v, Half* to) {
    HWY_ALIGN C lanes[HWY_MAX_BYTES / sizeof(C)];
    haste::HWY_NAMESPACE::Store(v, lanes);
    for (int64_t i = 0; i < Width<C>(); ++i) to[i].bits = FloatToHalf(lanes[i]);
  }
};
#else
template <>
struct Storage<Half> {
  using C = float;
  using D32 = hn::ScalableTag<float>;
  using D16 = hn::Rebind<hwy::float16_t, D32>;
  static HWY_INLINE Vec<C> Load(const Half* from) {
    return Vec<C>(
        hn::PromoteTo(D32(), hn::LoadU(D16(), reinterpret_cast<const hwy::float16_t*>(from))));
  }
  static HWY_INLINE void Store(Vec<C> v, Half* to) {
    hn::StoreU(hn::DemoteTo(D16(), v.v), D16(), reinterpret_cast<hwy::float16_t*>(to));
  }
};
#endif

// Loads the first `count` lanes without touching memory after them; the others are 0.
template <class T>
HWY_INLINE Vec<Compute<T>> LoadPart(const T* from, int64_t count) {
  using C = Compute<T>;
  if (HWY_LIKELY(count >= Width<C>())) return Storage<T>::Load(from);
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(C)] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = from[i];
  return Storage<T>::Load(buffer);
}
template <class T>
HWY_INLINE void StorePart(Vec<Compute<T>> v, T* to, int64_t count) {
  using C = Compute<T>;
  if (HWY_LIKELY(count >= Width<C>())) return Storage<T>::Store(v, to);
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(C)];
  Storage<T>::Store(v, buffer);
  for (int64_t i = 0; i < count; ++i) to[i] = buffer[i];
}

HASTE_TARGET_END

#endif
