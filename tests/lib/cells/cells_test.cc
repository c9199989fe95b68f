// Every cell's Backward against the exact Jacobian of its Forward, which a dual number carries
// through the same code. It iterates over HASTE_CELLS and uses the cells' traits, so a new cell
// needs no line here.
#include "lib/cells/cells.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/lib/cells/dual.h"
#include "tests/lib/check.h"

namespace haste_test {

using haste::Activations;
using Vector = std::vector<double>;

// A step on one element, as an engine of the cell's family runs it, with scalars in place of
// products and normalisations. `In` are its inputs, `Out` its outputs:
//   x [G], q [G], s_prev [S] → s [S], y
// The entry of a gradient that a step does not have is 0.
template <class V, class Cell>
struct In {
  V x[Cell::kGates], q[Cell::kGates], prev[Cell::kStates];
  V* at(int i) {
    constexpr int G = Cell::kGates;
    return i < G ? &x[i] : i < 2 * G ? &q[i - G] : &prev[i - 2 * G];
  }
  static constexpr int kCount = 2 * Cell::kGates + Cell::kStates;
};
template <class V, class Cell>
struct Out {
  V s[Cell::kStates], y, kept[Cell::kKept];
};

// Constants of a trial.
struct Stage {
  Activations act;
  double share;   // of Zoneout
  double weight;  // stands for R of a second product, and for gamma of a normalised state
  double offset;  // beta of a normalised state
};

// h·R enters as q.
template <class Cell>
struct MatrixStep {
  template <class V>
  static void Forward(const Stage& stage, In<V, Cell>& in, Out<V, Cell>& out) {
    Cell::Forward(stage.act, in.x, in.q, in.prev, out.kept, out.s);
  }
  static void Backward(const Stage& stage, const Out<double, Cell>& out, In<double, Cell>& in,
                       double* ds, double, In<double, Cell>& grad) {
    haste::CellBackward<Cell>(stage.act, out.kept, in.prev, ds, grad.x, grad.q, grad.prev);
  }
};

// q of the gates from kResetGates on is the operand that the other gates compute, times a scalar.
template <class Cell>
struct ResetStep {
  template <class V>
  static void Forward(const Stage& stage, In<V, Cell>& in, Out<V, Cell>& out) {
    Cell::ForwardReset(stage.act, in.x, in.q, in.prev, out.kept);
    V q[Cell::kGates];
    for (int g = Cell::kResetGates; g < Cell::kGates; ++g) {
      q[g] = in.q[g] + V(stage.weight * (g + 1)) * out.kept[Cell::kOperand];
    }
    Cell::Forward(stage.act, in.x, q, in.prev, out.kept, out.s);
  }
  static void Backward(const Stage& stage, const Out<double, Cell>& out, In<double, Cell>& in,
                       double* ds, double, In<double, Cell>& grad) {
    Cell::Backward(stage.act, out.kept, in.prev, ds, grad.x, grad.prev);
    double d_operand = 0;
    for (int g = Cell::kResetGates; g < Cell::kGates; ++g) {
      d_operand += stage.weight * (g + 1) * grad.x[g];
    }
    Cell::BackwardReset(stage.act, out.kept, in.prev, d_operand, grad.x, grad.prev);
    std::copy(grad.x, grad.x + Cell::kGates, grad.q);
  }
};

// h is computed from a state after an affine map, which takes the place of normalisation.
template <class Cell>
struct NormalizedStateStep {
  static constexpr int kNormed = Cell::kNormalizesState;
  template <class V>
  static void Forward(const Stage& stage, In<V, Cell>& in, Out<V, Cell>& out) {
    Cell::Forward(stage.act, in.x, in.q, in.prev, out.kept, out.s);
    out.s[0] = Cell::Output(stage.act, out.kept, Normed(stage, out.s[kNormed]));
  }
  static void Backward(const Stage& stage, const Out<double, Cell>& out, In<double, Cell>& in,
                       double* ds, double, In<double, Cell>& grad) {
    const double again = Cell::NewState(out.kept, in.prev);
    EXPECT_TRUE(again == out.s[kNormed], "%s: NewState", Cell::kName);
    ds[kNormed] += stage.weight *
                   Cell::OutputBackward(stage.act, out.kept, Normed(stage, again), ds[0], grad.x);
    haste::CellBackward<Cell>(stage.act, out.kept, in.prev, ds, grad.x, grad.q, grad.prev);
  }
  template <class V>
  static V Normed(const Stage& stage, V s) {
    return V(stage.weight) * s + V(stage.offset);
  }
};

// Zoneout's share is the same for all states.
template <class Cell>
struct PoolingStep {
  template <class V>
  static void Forward(const Stage& stage, In<V, Cell>& in, Out<V, Cell>& out) {
    V share[Cell::kStates];
    std::fill(share, share + Cell::kStates, V(stage.share));
    Cell::Forward(stage.act, share, in.x, in.q, in.prev, out.kept, out.s, &out.y);
    if (Cell::kOutputsState) out.y = out.s[0];
  }
  static void Backward(const Stage& stage, const Out<double, Cell>& out, In<double, Cell>& in,
                       double* ds, double dy, In<double, Cell>& grad) {
    double share[Cell::kStates];
    std::fill(share, share + Cell::kStates, stage.share);
    if (Cell::kOutputsState) ds[0] += dy;
    Cell::Backward(stage.act, share, out.kept, in.prev, ds, dy, grad.x, grad.prev);
    if (Cell::kRecurrence == HASTE_DIAGONAL) {
      std::copy(grad.x, grad.x + Cell::kGates, grad.q);
    }
  }
};

template <class Cell>
auto StepOf() {
  if constexpr (Cell::kRecurrence != HASTE_DENSE) {
    return PoolingStep<Cell>();
  } else if constexpr (Cell::kResetGates > 0) {
    return ResetStep<Cell>();
  } else if constexpr (Cell::kNormalizesState > 0) {
    return NormalizedStateStep<Cell>();
  } else {
    return MatrixStep<Cell>();
  }
}

// kAddsProduct: Forward and ForwardReset give the same bits for x + q and -0 in place of x and q.
template <class Cell>
void TestSums(const Stage& stage, In<double, Cell>& in, unsigned seed) {
  In<double, Cell> sums = in;
  for (int g = 0; g < Cell::kGates; ++g) {
    sums.x[g] = in.x[g] + in.q[g];
    sums.q[g] = -0.0;
  }
  double kept[2][Cell::kKept] = {}, s[2][Cell::kStates] = {};
  In<double, Cell>* const inputs[2] = {&in, &sums};
  for (int i = 0; i < 2; ++i) {
    In<double, Cell>& each = *inputs[i];
    if constexpr (Cell::kResetGates > 0) {
      Cell::ForwardReset(stage.act, each.x, each.q, each.prev, kept[i]);
    }
    Cell::Forward(stage.act, each.x, each.q, each.prev, kept[i], s[i]);
  }
  EXPECT_TRUE(std::equal(kept[0], kept[0] + Cell::kKept, kept[1]), "%s: kept of x + q, seed %u",
              Cell::kName, seed);
  EXPECT_TRUE(std::equal(s[0], s[0] + Cell::kStates, s[1]), "%s: states of x + q, seed %u",
              Cell::kName, seed);
}

template <class Cell>
void Trial(const Stage& stage, bool starts, std::mt19937& random, unsigned seed) {
  using Step = decltype(StepOf<Cell>());
  constexpr int S = Cell::kStates, kInputs = In<double, Cell>::kCount;
  std::normal_distribution<double> normal;
  In<double, Cell> in;
  for (int i = 0; i < kInputs; ++i) *in.at(i) = 2 * normal(random);
  for (double& v : in.prev) v = starts ? 0 : normal(random);
  // States that weigh others (a normaliser) are positive.
  for (double& v : in.prev) v = Cell::kExponential && !starts ? 0.5 + std::fabs(v) : v;
  double ds[S], dy = Cell::kRecurrence == HASTE_DENSE ? 0 : normal(random);
  for (double& v : ds) v = normal(random);

  Out<double, Cell> out = {};
  Step::template Forward<double>(stage, in, out);
  if constexpr (Cell::kAddsProduct) TestSums<Cell>(stage, in, seed);
  In<double, Cell> seen = in, grad = {};
  for (int s = 0; s < S; ++s) {  // Backward must not read the others
    if (!Cell::kReadsState[s]) seen.prev[s] = std::numeric_limits<double>::quiet_NaN();
  }
  double left[S];
  std::copy(ds, ds + S, left);
  Step::Backward(stage, out, seen, left, dy, grad);

  for (int input = 0; input < kInputs; ++input) {
    const int state = input - 2 * Cell::kGates;
    const double got = *grad.at(input);
    if (state >= 0 && !Cell::kReadsState[state]) {
      EXPECT_TRUE(got == 0, "%s: state %d is a constant to Backward", Cell::kName, state);
      continue;
    }
    In<Dual, Cell> dual_in;
    for (int i = 0; i < kInputs; ++i) *dual_in.at(i) = Dual(*in.at(i), i == input);
    Out<Dual, Cell> dual_out;
    Step::template Forward<Dual>(stage, dual_in, dual_out);
    double want = dy * dual_out.y.slope;
    for (int s = 0; s < S; ++s) want += ds[s] * dual_out.s[s].slope;
    EXPECT_NEAR(got, want, 1e-12 * (1 + std::fabs(want)),
                "%s: activations (%d, %d), share %g, %s, input %d, seed %u", Cell::kName,
                stage.act.candidate, stage.act.recurrent, stage.share,
                starts ? "from zero states" : "on the way", input, seed);
  }
}

template <class Cell>
void TestCell(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<int32_t> recurrent = {HASTE_TANH, HASTE_SIGMOID, HASTE_RELU, HASTE_HARD_SIGMOID,
                                    HASTE_LINEAR};
  if (Cell::kExponential) recurrent = {HASTE_EXPONENTIAL, HASTE_SIGMOID};
  std::vector<double> shares = {0};  // others only for cells that apply Zoneout themselves
  if (Cell::kRecurrence != HASTE_DENSE) shares = {0, 0.3, 1};
  if (Cell::kTiedZoneout) shares = {0, 0.3, 0.999};
  for (int32_t candidate = HASTE_TANH; candidate <= HASTE_LINEAR; ++candidate) {
    for (const int32_t gate : recurrent) {
      for (const double share : shares) {
        for (int trial = 0; trial < 20; ++trial) {
          Stage stage = {{candidate, gate}, share, normal(random), normal(random)};
          if (Cell::kTiedZoneout && share > 0) {
            stage.act.log_zoneout = std::log(share);
            stage.act.log_renewal = std::log1p(-share);
          }
          // ReLU has no derivative where a state is 0 exactly.
          const bool starts = trial % 4 == 0 && candidate != HASTE_RELU;
          Trial<Cell>(stage, starts, random, seed);
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
