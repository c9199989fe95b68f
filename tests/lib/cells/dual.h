// Dual numbers: the code of a cell itself computes derivatives that are exact up to rounding.
#ifndef HASTE_TESTS_LIB_CELLS_DUAL_H_
#define HASTE_TESTS_LIB_CELLS_DUAL_H_

#include <cmath>

namespace haste_test {

// value + ε · slope, with ε² = 0.
struct Dual {
  using Scalar = double;
  double value, slope;
  Dual() : value(0), slope(0) {}
  explicit Dual(double v, double s = 0) : value(v), slope(s) {}
};
inline Dual operator+(Dual a, Dual b) { return Dual(a.value + b.value, a.slope + b.slope); }
inline Dual operator-(Dual a, Dual b) { return Dual(a.value - b.value, a.slope - b.slope); }
inline Dual operator-(Dual a) { return Dual(-a.value, -a.slope); }
inline Dual operator*(Dual a, Dual b) {
  return Dual(a.value * b.value, a.slope * b.value + a.value * b.slope);
}
inline Dual operator/(Dual a, Dual b) {
  return Dual(a.value / b.value, (a.slope * b.value - a.value * b.slope) / (b.value * b.value));
}
inline Dual MulAdd(Dual a, Dual b, Dual c) { return a * b + c; }
inline Dual IfPositive(Dual x, Dual yes, Dual no) { return x.value > 0 ? yes : no; }
inline Dual AtLeast(Dual x, Dual low) { return x.value < low.value ? low : x; }
inline Dual StopGradient(Dual x) { return Dual(x.value); }
// From the standard library, not from lib/base/math.h, because these are the reference.
inline Dual Tanh(Dual x) {
  const double y = std::tanh(x.value);
  return Dual(y, x.slope * (1 - y * y));
}
inline Dual Sigmoid(Dual x) {
  const double y = 1 / (1 + std::exp(-x.value));
  return Dual(y, x.slope * y * (1 - y));
}
inline Dual LogSigmoid(Dual x) {
  const double y =
      x.value > 0 ? -std::log1p(std::exp(-x.value)) : x.value - std::log1p(std::exp(x.value));
  return Dual(y, x.slope / (1 + std::exp(x.value)));
}
inline Dual ExpNegative(Dual x) {
  const double y = std::exp(x.value);
  return Dual(y, x.slope * y);
}

}  // namespace haste_test

#endif  // HASTE_TESTS_LIB_CELLS_DUAL_H_
