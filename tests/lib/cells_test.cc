// Every cell's Backward against the exact Jacobian of its Forward, which a dual number carries
// through the same code. Written over HASTE_CELLS: a new cell is tested without a line here.
#include "lib/cells/cells.h"

#include <random>
#include <string>
#include <vector>

#include "tests/lib/check.h"

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
// From the standard library, not from lib/math.h: this is what the test believes.
inline Dual Tanh(Dual x) {
  const double y = std::tanh(x.value);
  return Dual(y, x.slope * (1 - y * y));
}
inline Dual Sigmoid(Dual x) {
  const double y = 1 / (1 + std::exp(-x.value));
  return Dual(y, x.slope * y * (1 - y));
}

template <class Cell>
void TestCell(unsigned seed) {
  constexpr int G = Cell::kGates, S = Cell::kStates;
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (int32_t candidate = HASTE_TANH; candidate <= HASTE_LINEAR; ++candidate) {
    for (int32_t recurrent = HASTE_TANH; recurrent <= HASTE_LINEAR; ++recurrent) {
      const haste::Activations act{candidate, recurrent};
      for (int trial = 0; trial < 20; ++trial) {
        double x[G], q[G], prev[S], ds[S];
        for (double& v : x) v = 2 * normal(random);
        for (double& v : q) v = 2 * normal(random);
        for (double& v : prev) v = normal(random);
        for (double& v : ds) v = normal(random);
        double gate[G], next[S], dpre[G], dprev[S];
        Cell::Forward(act, x, q, prev, gate, next);
        Cell::Backward(act, gate, prev, ds, dpre, dprev);
        // Inputs in turn: x, then q, then the states entering.
        for (int input = 0; input < 2 * G + S; ++input) {
          Dual dual_x[G], dual_q[G], dual_prev[S], dual_gate[G], dual_next[S];
          for (int g = 0; g < G; ++g) {
            dual_x[g] = Dual(x[g], input == g);
            dual_q[g] = Dual(q[g], input == G + g);
          }
          for (int s = 0; s < S; ++s) dual_prev[s] = Dual(prev[s], input == 2 * G + s);
          Cell::Forward(act, dual_x, dual_q, dual_prev, dual_gate, dual_next);
          double want = 0;
          for (int s = 0; s < S; ++s) want += ds[s] * dual_next[s].slope;
          const double got = input < 2 * G ? dpre[input % G] : dprev[input - 2 * G];
          EXPECT_NEAR(got, want, 1e-12 * (1 + std::fabs(want)),
                      "%s: activations (%d, %d), input %d, seed %u", Cell::kName, candidate,
                      recurrent, input, seed);
        }
      }
    }
  }
}

}  // namespace haste_test

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
#define HASTE_TEST_CELL(CELL) haste_test::TestCell<haste::CELL>(seed);
  HASTE_CELLS(HASTE_TEST_CELL)
  return haste_test::Report("cells_test");
}
