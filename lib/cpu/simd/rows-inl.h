// RowsOf: the vectors of some rows as one, on which a cell is computed for all of them together.
// Each operation is done for all rows before the next, so that their chains of operations overlap,
// and each row's bits are those of its own vector. Per-target header.
#if defined(HASTE_LIB_CPU_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_SIMD_ROWS_INL_H_
#else
#define HASTE_LIB_CPU_SIMD_ROWS_INL_H_
#endif

#include <type_traits>

#include "lib/cpu/simd/approximate-inl.h"
#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// E: a vector of one row.
template <class E, int kRows>
struct RowsOf {
  using Scalar = typename E::Scalar;
  E row[kRows];

  HWY_INLINE RowsOf() = default;
  explicit HWY_INLINE RowsOf(double x) : RowsOf(Each([x](int) HWY_ATTR { return E(x); })) {}

  // of(r) for each row.
  template <class Of>
  static HWY_INLINE RowsOf Each(const Of& of) {
    RowsOf rows;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) rows.row[r] = of(r);
    return rows;
  }

#define HASTE_EACH_ROW(SIGNATURE, RESULT)                \
  friend HWY_INLINE RowsOf SIGNATURE {                   \
    return Each([&](int r) HWY_ATTR { return RESULT; }); \
  }
#define HASTE_EACH_ROW_1(NAME) HASTE_EACH_ROW(NAME(const RowsOf& a), NAME(a.row[r]))
#define HASTE_EACH_ROW_2(NAME) \
  HASTE_EACH_ROW(NAME(const RowsOf& a, const RowsOf& b), NAME(a.row[r], b.row[r]))
#define HASTE_EACH_ROW_3(NAME)                                            \
  HASTE_EACH_ROW(NAME(const RowsOf& a, const RowsOf& b, const RowsOf& c), \
                 NAME(a.row[r], b.row[r], c.row[r]))
  HASTE_EACH_ROW(operator+(const RowsOf & a, const RowsOf & b), a.row[r] + b.row[r])
  HASTE_EACH_ROW(operator-(const RowsOf & a, const RowsOf & b), a.row[r] - b.row[r])
  HASTE_EACH_ROW(operator*(const RowsOf & a, const RowsOf & b), a.row[r] * b.row[r])
  HASTE_EACH_ROW(operator/(const RowsOf & a, const RowsOf & b), a.row[r] / b.row[r])
  HASTE_EACH_ROW(operator-(const RowsOf & a), -a.row[r])
  HASTE_EACH_ROW_1(Abs)
  HASTE_EACH_ROW_1(StopGradient)
  HASTE_EACH_ROW_1(Pow2)
  HASTE_EACH_ROW_2(CopySign)
  HASTE_EACH_ROW_2(AtLeast)
  HASTE_EACH_ROW_2(AtMost)
  HASTE_EACH_ROW_2(Divide)
  HASTE_EACH_ROW_3(MulAdd)
  HASTE_EACH_ROW_3(IfPositive)
#undef HASTE_EACH_ROW_1
#undef HASTE_EACH_ROW_2
#undef HASTE_EACH_ROW_3
#undef HASTE_EACH_ROW
};

// An approximate vector has activations of its own. For others, those of lib/base/math.h are found.
#define HASTE_EACH_APPROXIMATE(NAME)                                                            \
  template <int kRows>                                                                          \
  HWY_INLINE auto NAME(RowsOf<ApproximateVec, kRows> x) {                                       \
    return RowsOf<ApproximateVec, kRows>::Each([&](int r) HWY_ATTR { return NAME(x.row[r]); }); \
  }
HASTE_EACH_APPROXIMATE(ExpNegative)
HASTE_EACH_APPROXIMATE(Sigmoid)
HASTE_EACH_APPROXIMATE(Tanh)
HASTE_EACH_APPROXIMATE(LogSigmoid)
#undef HASTE_EACH_APPROXIMATE

HASTE_TARGET_END

#endif
