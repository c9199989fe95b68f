// The recurrence of every cell of the library, through its C++ API and its HasteCellInfo: gradients
// against finite differences, masked steps, tensors that share memory, any number of threads. A new
// cell needs no line here.

#include <cstdlib>
#include <limits>

#include "tests/lib/problem.h"
#include "tests/lib/simd_targets.h"

namespace haste_test {
namespace {

// The options of a run.
struct Variant {
  const char* name;
  bool regularised;  // training, with Zoneout and recurrent dropout
  bool expected;     // inference, with Zoneout's expectation
  bool masked, initial_states;
  int32_t activation, gate_activation;
};
// Smooth activations, for finite differences; cells_test tests the others.
const Variant kVariants[] = {
    {"plain", false, false, false, false, HASTE_TANH, HASTE_SIGMOID},
    {"training", true, false, true, true, HASTE_TANH, HASTE_SIGMOID},
    {"inference", false, true, true, true, HASTE_SIGMOID, HASTE_TANH},
};

Problem Make(const HasteCellInfo& cell, const Variant& variant, std::mt19937& random, int64_t n,
             int64_t t, int64_t k, int64_t h) {
  Problem problem(cell, n, t, k, h);
  haste::RnnConfig& config = problem.config;
  config.activation = variant.activation;
  if (!cell.exponential) {
    config.recurrent_activation = variant.gate_activation;
  } else if (variant.regularised) {
    config.recurrent_activation = HASTE_SIGMOID;
  }
  config.training = variant.regularised;
  config.zero_output_for_mask = variant.expected;
  for (int s = 0; s < cell.states && (variant.regularised || variant.expected); ++s) {
    const bool has_rate = s <= 1 || !cell.tied_zoneout;
    if (has_rate) config.zoneout[s] = 0.2f + 0.1f * s;
  }
  if (variant.regularised && cell.recurrence != HASTE_NONE) config.recurrent_dropout = 0.25f;
  if (variant.masked) {
    problem.mask.resize(n * t);
    for (uint8_t& live : problem.mask) live = random() % 3 != 0;
    for (int64_t i = 0; i < t; ++i) problem.mask[i] = i < t - 2;  // padding at the end
    if (n > 1) problem.mask[t] = 0;                               // and at the start
  }
  problem.reverse.resize(k);
  for (int64_t i = 0; i < k; ++i) problem.reverse[i] = i % 2 == 1;
  return problem;
}

// Random weights of y and the final states. If a state is only the scale of others, only functions
// that do not depend on the scale have a gradient: weights w with Σ w · state = 0 over those
// others.
Tensors Weights(const Problem& problem, const Tensors& out, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Tensors weights;
  for (double& v : weights["y"] = Tensor(problem.walk_size())) v = normal(random);
  for (int s = 0; s < problem.info.states; ++s) {
    for (double& v : weights[problem.Final(s)] = Tensor(problem.step_size())) v = normal(random);
  }
  if (problem.ReadsAll()) return weights;
  for (int64_t i = 0; i < problem.step_size(); ++i) {
    double product = 0, square = 0;
    for (int s = 1; s < problem.info.states; ++s) {
      double& weight = weights[problem.Final(s)][i];
      if (!problem.Reads(s)) {
        weight = 0;
        continue;
      }
      const double state = out.at(problem.Final(s))[i];
      product += weight * state;
      square += state * state;
    }
    for (int s = 1; s < problem.info.states && square > 0; ++s) {
      if (!problem.Reads(s)) continue;
      weights[problem.Final(s)][i] -= product / square * out.at(problem.Final(s))[i];
    }
  }
  return weights;
}

double Loss(const Tensors& out, const Tensors& weights) {
  double sum = 0;
  for (const auto& [name, weight] : weights) sum += Dot(out.at(name), weight);
  return sum;
}

void Gradients(Problem problem, const Variant& variant, size_t most, std::mt19937& random) {
  problem.config.reverse = problem.reverse.data();
  Tensors in = problem.Inputs(random, variant.initial_states);
  const Tensors out = problem.Forward(in, 2);
  const Tensors weights = Weights(problem, out, random);
  const Tensors grad = problem.Backward(in, out, weights, 2);
  const auto loss = [&] {
    return Loss(problem.Forward(in, 1, /*in_place=*/false, /*keep=*/false), weights);
  };
  for (auto& [name, value] : in) {
    const std::string label = std::string(problem.info.name) + ", " + variant.name + ", " + name;
    if (problem.IsConstant(name)) {
      for (const double g : grad.at(name)) EXPECT_TRUE(g == 0, "%s is a constant", label.c_str());
    } else {
      CheckGradient(label, value, grad.at(name), loss, most, random);
    }
  }
}

// Masked steps are not read and have no gradient.
void MaskedSteps(Problem problem, const Variant& variant, std::mt19937& random) {
  problem.config.reverse = problem.reverse.data();
  const Tensors in = problem.Inputs(random, variant.initial_states);
  const Tensors out = problem.Forward(in, 1);
  const Tensors weights = Weights(problem, out, random);
  const Tensors grad = problem.Backward(in, out, weights, 1);
  Tensors spoilt = in, spoilt_reserve = out;
  const auto spoil = [&](Tensor& tensor) {
    const int64_t row = static_cast<int64_t>(tensor.size() / problem.mask.size());
    for (size_t i = 0; i < tensor.size(); ++i) {
      if (!problem.mask[i / row]) tensor[i] = std::numeric_limits<double>::quiet_NaN();
    }
  };
  for (const char* name : {"gates", "products"}) {
    if (spoilt_reserve.count(name)) spoil(spoilt_reserve[name]);
  }
  for (int g = 0; g < problem.info.gates; ++g) {
    if (problem.info.separate_gates) spoil(spoilt[problem.Input(g)]);
  }
  if (!problem.info.separate_gates) spoil(spoilt["wx"]);
  const Tensors again = problem.Forward(spoilt, 1);
  for (const auto& [name, value] : weights) {
    EXPECT_TRUE(again.at(name) == out.at(name), "%s: NaN at a masked step reaches %s",
                problem.info.name, name.c_str());
  }
  const Tensors grad_again = problem.Backward(spoilt, spoilt_reserve, weights, 1);
  for (const auto& [name, value] : grad) {
    EXPECT_TRUE(grad_again.at(name) == value, "%s: NaN at a masked step reaches the gradient of %s",
                problem.info.name, name.c_str());
    if (value.size() % problem.walk_size() != 0) continue;
    const int64_t row = static_cast<int64_t>(value.size() / problem.mask.size());
    for (size_t i = 0; i < value.size(); ++i) {
      EXPECT_TRUE(problem.mask[i / row] || value[i] == 0, "%s: a masked step has a gradient of %s",
                  problem.info.name, name.c_str());
    }
  }
}

// The same bits for any number of threads and any alignment of the tensors.
void SameBits(Problem problem, const Variant& variant, const char* split, std::mt19937& random) {
  problem.config.reverse = problem.reverse.data();
  const Tensors in = problem.Inputs(random, variant.initial_states);
  haste::Executor two = {};
  two.threads = 2;
  std::string plan;
  ExpectOk(haste::Explain(problem.config, &plan, two));
  if (problem.info.recurrence == HASTE_DENSE) {
    EXPECT_TRUE(plan.find(split) != std::string::npos, "%s, not %s", plan.c_str(), split);
  }
  const Tensors out = problem.Forward(in, 1), weights = Weights(problem, out, random);
  const Tensors grad = problem.Backward(in, out, weights, 1);
  for (const int threads : {1, 2, 5}) {
    for (const bool in_place : {false, true}) {
      const Tensors other = problem.Forward(in, threads, in_place);
      const Tensors other_grad = problem.Backward(in, other, weights, threads, in_place);
      EXPECT_TRUE(other == out, "%s, %s: forward, %d threads, in place: %d", problem.info.name,
                  variant.name, threads, in_place);
      EXPECT_TRUE(other_grad == grad, "%s, %s: backward, %d threads, in place: %d",
                  problem.info.name, variant.name, threads, in_place);
    }
  }
}

void TestCell(const HasteCellInfo& cell, unsigned seed) {
  std::mt19937 random(seed);
  for (const Variant& variant : kVariants) {
    // Every element; then a few of a problem with more vectors than a panel has, the last one
    // partial.
    Gradients(Make(cell, variant, random, 3, 5, 2, 3), variant, SIZE_MAX, random);
    Gradients(Make(cell, variant, random, 8, 4, 2, 45), variant, 12, random);
    if (variant.masked) MaskedSteps(Make(cell, variant, random, 3, 6, 2, 11), variant, random);
    SameBits(Make(cell, variant, random, 7, 50, 2, 24), variant, "over rows", random);
    SameBits(Make(cell, variant, random, 2, 6, 1, 256), variant, "", random);
    SameBits(Make(cell, variant, random, 1, 6, 1, 260), variant, "over units", random);
  }
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = haste_test::RandomSeed();
  return haste_test::OnTargets("recurrence_test", {"avx2", "baseline"}, [&](const char*) {
    for (int i = 0; i < haste_cell_count(); ++i) haste_test::TestCell(*haste_cell(i), seed);
  });
}
