// The table of lib/math.h as data: the largest error that each function may have.
#ifndef HASTE_TESTS_LIB_MATH_BOUNDS_H_
#define HASTE_TESTS_LIB_MATH_BOUNDS_H_

namespace haste_test {

struct Bounds {
  double exp_negative, tanh, sigmoid;  // ULP
  double lowest;                       // below it sigmoid and exp are clamped
  double clamp_error;                  // absolute, there
};
inline constexpr Bounds kFloatBounds = {2, 4, 3, -87.0, 2e-38};
inline constexpr Bounds kDoubleBounds = {2, 4, 3, -708.0, 5e-308};

}  // namespace haste_test

#endif  // HASTE_TESTS_LIB_MATH_BOUNDS_H_
