// A recurrence of any cell in float64, as HasteCellInfo describes it: its tensors by name, its walk
// forward and backward through the C++ API, its gradients by finite differences.
#ifndef HASTE_TESTS_LIB_PROBLEM_H_
#define HASTE_TESTS_LIB_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "haste/rnn.h"
#include "tests/lib/check.h"

namespace haste_test {

using Tensor = std::vector<double>;
using Tensors = std::map<std::string, Tensor>;

// Scratch memory, aligned to 64 bytes.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : memory_(bytes + 64) {}
  void* data() {
    const uintptr_t at = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<void*>((at + 63) / 64 * 64);
  }

 private:
  std::vector<char> memory_;
};

inline void ExpectOk(const haste::Status& status) {
  EXPECT_TRUE(status.ok(), "%s", status.message().c_str());
}

inline double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Compares grad with central differences of the loss, for all elements of `value` or for `most`
// random ones. The differences are of fourth order, because normalised cells bend sharply. Where
// they disagree a smaller step decides: a maximum (of sLSTM's stabiliser) may have its corner
// within the first.
inline void CheckGradient(const std::string& name, Tensor& value, const Tensor& grad,
                          const std::function<double()>& loss, size_t most, std::mt19937& random) {
  constexpr double kStep = 1e-5, kSmallerStep = 5e-7;
  EXPECT_TRUE(value.size() == grad.size(), "%s: %zu elements, gradient of %zu", name.c_str(),
              value.size(), grad.size());
  for (size_t i = 0; i < std::min(most, value.size()); ++i) {
    const size_t at = most < value.size() ? random() % value.size() : i;
    const double kept = value[at];
    const auto difference = [&](double step) {
      value[at] = kept + step;
      const double above = loss();
      value[at] = kept - step;
      const double below = loss();
      value[at] = kept;
      return above - below;
    };
    const auto slope = [&](double step) {
      return (8 * difference(step) - difference(2 * step)) / (12 * step);
    };
    const auto tolerance = [](double want) { return 1e-7 * (1 + std::fabs(want)); };
    double want = slope(kStep);
    if (!(std::fabs(grad[at] - want) <= tolerance(want))) want = slope(kSmallerStep);
    EXPECT_NEAR(grad[at], want, tolerance(want), "%s[%zu]", name.c_str(), at);
  }
}

// Names: "wx", or "x.<gate>" for separate gates; "R"; the extras; "<state>0"; "y"; "<state>T";
// "gates", "products", the saved tensors; "dq". A layer has "x", "W", "b" and perhaps "gamma" in
// place of "wx".
class Problem {
 public:
  Problem(const HasteCellInfo& cell, int64_t n, int64_t t, int64_t k, int64_t h)
      : info(cell), config(haste::Config(cell.name, HASTE_FLOAT64, HASTE_CPU, n, t, k, h)) {
    if (cell.exponential) config.recurrent_activation = HASTE_EXPONENTIAL;
    // With a variance near 0 and a small epsilon, finite differences are too coarse.
    config.epsilon = 0.01f;
  }

  int64_t step_size() const { return config.batch * config.lanes * config.hidden; }
  int64_t walk_size() const { return step_size() * config.time; }
  // [K, H] of each gate.
  int64_t gates_size() const { return config.lanes * config.hidden * info.gates; }
  std::string Input(int g) const { return std::string("x.") + info.gate_names[g]; }
  std::string Initial(int s) const { return std::string(info.state_names[s]) + "0"; }
  std::string Final(int s) const { return std::string(info.state_names[s]) + "T"; }
  // Saved tensors of a call: the last of a cell whose h is a mean with the h before is of recurrent
  // dropout alone.
  int Saved() const {
    const bool drops = config.training && config.recurrent_dropout > 0;
    return info.saved - (info.state_bound == HASTE_BOUND_MEAN && !drops);
  }
  // Whether backward reads state s. A state that it does not read scales the others and counts as a
  // constant.
  bool Reads(int s) const {
    const std::string name = std::string(info.state_names[s]) + "_in";
    return std::any_of(info.saved_names, info.saved_names + info.saved,
                       [&](const char* saved) { return name == saved; });
  }
  bool ReadsAll() const {
    for (int s = 0; s < info.states; ++s) {
      if (!Reads(s)) return false;
    }
    return true;
  }
  bool IsConstant(const std::string& input) const {
    for (int s = 0; s < info.states; ++s) {
      if (input == Initial(s)) return !Reads(s);
    }
    return false;
  }

  Tensors Inputs(std::mt19937& random, bool initial_states) const {
    std::normal_distribution<double> normal;
    Tensors in;
    const auto draw = [&](const std::string& name, int64_t size, double scale, double mean = 0) {
      for (double& v : in[name] = Tensor(size)) v = mean + scale * normal(random);
    };
    for (int g = 0; info.separate_gates && g < info.gates; ++g) draw(Input(g), walk_size(), 1);
    if (features > 0) {
      draw("x", config.batch * config.time * features, 0.5);
      draw("W", features * gates_size(), 0.5);
      draw("b", gates_size(), 0.5);
      if (input_norm) draw("gamma", gates_size(), 0.3, 1);
    } else if (!info.separate_gates) {
      draw("wx", walk_size() * info.gates, 1);
    }
    const double depth = info.recurrence == HASTE_DENSE ? config.hidden : 1;
    if (info.recurrence != HASTE_NONE) {
      draw("R", gates_size() * static_cast<int64_t>(depth), 0.8 / std::sqrt(depth));
    }
    for (int e = 0; e < info.extras; ++e) {
      const bool each_gate = strcmp(info.extra_dims[e], "KGH") == 0;
      const bool gamma = strstr(info.extra_names[e], "gamma") != nullptr;
      draw(info.extra_names[e], each_gate ? gates_size() : gates_size() / info.gates, 0.3, gamma);
    }
    for (int s = 0; initial_states && s < info.states; ++s) {
      draw(Initial(s), step_size(), 0.5);
      if (ReadsAll() || s == 0) continue;
      for (double& v : in[Initial(s)]) v = 0.5 + std::fabs(v);  // weights: positive
    }
    return in;
  }

  // The outputs, the reserve, and the tensors that backward overwrites.
  Tensors Forward(const Tensors& in, int threads, bool in_place = false, bool keep = true) const {
    Tensors out;
    out["y"] = Tensor(walk_size());
    haste::ForwardArgs args = {};
    Fill(in, &args);
    args.y = out["y"].data();
    args.keep = keep;
    for (int s = 0; s < info.states; ++s) {
      args.sT[s] = (out[Final(s)] = Tensor(step_size())).data();
      args.s0[s] = Data(in, Initial(s));
    }
    haste::LayerForwardArgs layer = {};
    Tensor wx = features > 0 && gives_wx ? Garbage(info.gates) : Tensor();  // of a layer
    if (!info.separate_gates) {
      args.wx = Data(in, "wx");
      if (keep) out["gates"] = in_place && features == 0 ? in.at("wx") : Garbage(info.gates);
      if (keep) args.gates = out["gates"].data();
      if (in_place) args.wx = args.gates;
    }
    if (features > 0) {
      layer.set_features(features)
          .set_x(Data(in, "x"))
          .set_W(Data(in, "W"))
          .set_b(Data(in, "b"))
          .set_wx(!gives_wx  ? nullptr
                  : in_place ? args.gates
                             : wx.data())
          .set_normalization(Data(in, "gamma"), nullptr);
      if (keep && input_norm) layer.xw = (out["xw"] = Garbage(info.gates)).data();
    }
    if (keep) {
      if (info.normalizes) args.products = (out["products"] = Garbage(info.gates)).data();
      for (int i = 0; i < Saved(); ++i) {
        args.saved[i] = (out[info.saved_names[i]] = Garbage(1)).data();
      }
    }
    size_t bytes = 0;
    ExpectOk(features > 0 ? haste::LayerForwardWorkspaceBytes(config, layer, &bytes, With(threads))
                          : haste::WorkspaceBytes(config, false, &bytes, With(threads)));
    Scratch scratch(bytes);
    ExpectOk(features > 0 ? haste::LayerForward(config, layer, args, scratch.data(), With(threads))
                          : haste::Forward(config, args, scratch.data(), With(threads)));
    return out;
  }

  // Gradients by the names of the inputs; "dq" too. `weights`: of y and the final states.
  Tensors Backward(const Tensors& in, Tensors out, const Tensors& weights, int threads,
                   bool in_place = false) const {
    Tensors grad;
    haste::BackwardArgs args = {};
    Fill(in, &args);
    args.dy = Data(weights, "y");
    const auto make = [&](const std::string& name, int64_t size) {
      return (grad[name] = Tensor(size)).data();
    };
    // A gradient that may share the memory of a tensor.
    const auto take = [&](const std::string& name, Tensor&& tensor) {
      grad[name] = in_place ? std::move(tensor) : Tensor(tensor.size());
      return grad[name].data();
    };
    for (int i = 0; i < Saved(); ++i) args.saved[i] = out.at(info.saved_names[i]).data();
    Tensors x = in;  // overwritten in place
    if (info.separate_gates) {
      for (int g = 0; g < info.gates; ++g) {
        args.dx[g] = take(Input(g), std::move(x.at(Input(g))));
        args.x[g] = in_place ? args.dx[g] : x.at(Input(g)).data();
      }
    } else {
      args.dwx = take("wx", std::move(out.at("gates")));
      args.gates = in_place ? args.dwx : out.at("gates").data();
    }
    if (info.normalizes) {
      args.dq = take("dq", std::move(out.at("products")));
      args.products = in_place ? args.dq : out.at("products").data();
    } else if (info.splits_gradient) {
      args.dq = make("dq", walk_size() * info.gates);
    }
    if (info.recurrence == HASTE_DIAGONAL) args.dR = make("R", gates_size());
    for (int e = 0; e < info.extras; ++e) {
      args.dextra[e] = make(info.extra_names[e], in.at(info.extra_names[e]).size());
    }
    for (int s = 0; s < info.states; ++s) {
      args.dsT[s] = Data(weights, Final(s));
      if (in.count(Initial(s))) args.ds0[s] = make(Initial(s), step_size());
    }
    size_t bytes = 0;
    if (features > 0) {
      auto layer = haste::LayerBackwardArgs()
                       .set_features(features)
                       .set_x(Data(in, "x"))
                       .set_W(Data(in, "W"))
                       .set_dx(make("x", in.at("x").size()))
                       .set_dW(make("W", in.at("W").size()))
                       .set_db(make("b", gates_size()))
                       .set_normalization(Data(in, "gamma"), Data(out, "xw"), nullptr);
      if (info.recurrence == HASTE_DENSE) layer.dR = make("R", in.at("R").size());
      if (input_norm) layer.dgamma = make("gamma", gates_size());
      ExpectOk(haste::LayerBackwardWorkspaceBytes(config, layer, &bytes, With(threads)));
      Scratch scratch(bytes);
      ExpectOk(haste::LayerBackward(config, layer, args, scratch.data(), With(threads)));
      return grad;
    }
    ExpectOk(haste::WorkspaceBytes(config, true, &bytes, With(threads)));
    Scratch scratch(bytes);
    ExpectOk(haste::Backward(config, args, scratch.data(), With(threads)));
    if (info.recurrence == HASTE_DENSE) grad["R"] = KernelGradient(out, grad);
    return grad;
  }

  int64_t features = 0;     // of a layer's x; 0: the recurrence alone
  bool input_norm = false;  // a layer's
  bool gives_wx = true;     // a layer's caller gives memory for it
  std::vector<uint8_t> mask;
  std::vector<uint8_t> reverse;
  const HasteCellInfo& info;
  haste::RnnConfig config;

 private:
  static haste::Executor With(int threads) {
    haste::Executor executor = {};
    executor.threads = threads;
    return executor;
  }
  static const double* Data(const Tensors& tensors, const std::string& name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : found->second.data();
  }
  // Garbage that forward must overwrite.
  Tensor Garbage(int64_t gates) const { return Tensor(walk_size() * gates, 1e30); }

  template <class Args>
  void Fill(const Tensors& in, Args* args) const {
    static const int64_t kSeed[2] = {11, 12};
    args->R = Data(in, "R");
    args->mask = mask.empty() ? nullptr : mask.data();
    args->seed = kSeed;
    for (int e = 0; e < info.extras; ++e) args->extra[e] = Data(in, info.extra_names[e]);
    for (int g = 0; info.separate_gates && g < info.gates; ++g) args->x[g] = Data(in, Input(g));
  }

  // dR of a dense cell: the sum over rows of R's operand times the product's gradient.
  Tensor KernelGradient(const Tensors& out, const Tensors& grad) const {
    const int64_t K = config.lanes, G = info.gates, H = config.hidden;
    const Tensor& dq = grad.at(info.splits_gradient ? "dq" : "wx");
    Tensor sum(K * H * G * H);
    for (int64_t row = 0; row < config.batch * config.time * K; ++row) {
      for (int64_t g = 0; g < G; ++g) {
        const bool second = info.reset_gates > 0 && g >= info.reset_gates;
        const double* h = out.at(info.saved_names[second ? 1 : 0]).data() + row * H;
        for (int64_t i = 0; i < H; ++i) {
          double* to = sum.data() + ((row % K * H + i) * G + g) * H;
          for (int64_t j = 0; j < H; ++j) to[j] += h[i] * dq[(row * G + g) * H + j];
        }
      }
    }
    return sum;
  }
};

}  // namespace haste_test

#endif  // HASTE_TESTS_LIB_PROBLEM_H_
