// The table of lib/base/math.h as data: the largest error that each function may have, and the
// errors that a test measures.
#ifndef HASTE_TESTS_LIB_MATH_BOUNDS_H_
#define HASTE_TESTS_LIB_MATH_BOUNDS_H_

#include <stddef.h>

#include <vector>

namespace haste_test {

struct Bounds {
  double exp_negative, tanh, sigmoid, log_sigmoid;  // ULP
  double lowest;       // sigmoid and exp are clamped below it, log_sigmoid above -lowest
  double clamp_error;  // the absolute error there
};
inline constexpr Bounds kFloatBounds = {2, 4, 3, 4, -87.0, 2e-38};
inline constexpr Bounds kDoubleBounds = {2, 4, 3, 4, -708.0, 5e-308};

template <class C>
struct Results {
  explicit Results(size_t n) : exp_negative(n), tanh(n), sigmoid(n), log_sigmoid(n) {}
  std::vector<C> exp_negative, tanh, sigmoid, log_sigmoid;
};

}  // namespace haste_test

#endif  // HASTE_TESTS_LIB_MATH_BOUNDS_H_
