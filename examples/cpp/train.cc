// Trains an LSTM on the adding problem (Hochreiter & Schmidhuber, 1997) with Adam: each sequence
// has two marked numbers, and the target is their sum. Without memory the loss stays at the
// variance of the target, 1/6.
//
//   train [--cuda] [steps]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "examples/cpp/buffer.h"

namespace {

using example::Buffer;

constexpr int64_t N = 64, T = 30, C = 2, G = 4, H = 32;

// A parameter with its gradient and Adam's moments.
struct Parameter {
  Parameter(HasteDevice device, size_t count)
      : value(device, count), gradient(device, count), m(count), v(count) {}

  void Update(int step) {
    constexpr float kRate = 0.01f, kBeta1 = 0.9f, kBeta2 = 0.999f;
    gradient.ToHost();
    const float rate = kRate * std::sqrt(1 - std::pow(kBeta2, step)) / (1 - std::pow(kBeta1, step));
    for (size_t i = 0; i < m.size(); ++i) {
      const float g = gradient.host[i];
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
      value.host[i] -= rate * m[i] / (std::sqrt(v[i]) + 1e-8f);
    }
    value.ToDevice();
  }

  Buffer value, gradient;
  std::vector<float> m, v;
};

}  // namespace

int main(int argc, char** argv) {
  const HasteDevice device = example::DeviceOf(argc, argv);
  const int steps = argc > 1 && std::atoi(argv[argc - 1]) > 0 ? std::atoi(argv[argc - 1]) : 400;

  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::normal_distribution<float> normal;
  Parameter W(device, C * G * H), b(device, G * H), R(device, H * G * H), readout(HASTE_CPU, H + 1);
  for (float& v : W.value.host) v = 0.5f * normal(random);
  for (float& v : R.value.host) v = normal(random) / std::sqrt(static_cast<float>(H));
  for (int64_t j = H; j < 2 * H; ++j) b.value.host[j] = 1;  // remember at first
  for (int64_t j = 0; j < H; ++j) readout.value.host[j] = 0.1f * normal(random);
  for (Parameter* p : {&W, &b, &R}) p->value.ToDevice();

  haste::RnnConfig config = haste::Config("lstm", HASTE_FLOAT32, device, N, T, 1, H);
  config.set_training(true);
  // gates serves as wx, then as the gates, then as their gradients.
  Buffer x(device, N * T * C), y(device, N * T * H), hT(device, N * H),
      gates(device, N * T * G * H), h(device, N * T * H), c(device, N * T * H), dh(device, N * H);
  const auto layer = haste::LayerForwardArgs()
                         .set_features(C)
                         .set_x(x.data())
                         .set_W(W.value.data())
                         .set_b(b.value.data())
                         .set_wx(gates.data());
  const auto gradients = haste::LayerBackwardArgs()
                             .set_features(C)
                             .set_x(x.data())
                             .set_W(W.value.data())
                             .set_dW(W.gradient.data())
                             .set_db(b.gradient.data())
                             .set_dR(R.gradient.data());
  const auto forward = haste::ForwardArgs()
                           .set_R(R.value.data())
                           .set_y(y.data())
                           .set_final_state(0, hT.data())
                           .set_gates(gates.data())
                           .set_saved(0, h.data())
                           .set_saved(1, c.data());
  const auto backward = haste::BackwardArgs()
                            .set_R(R.value.data())
                            .set_gates(gates.data())
                            .set_saved(0, h.data())
                            .set_saved(1, c.data())
                            .set_final_state_gradient(0, dh.data())
                            .set_dwx(gates.data());
  haste::ScratchMemory scratch(device);

  double average = 0;
  for (int step = 1; step <= steps; ++step) {
    float target[N] = {};
    for (int64_t n = 0; n < N; ++n) {
      const int64_t first = random() % (T / 2), second = T / 2 + random() % (T / 2);
      for (int64_t t = 0; t < T; ++t) {
        const bool marked = t == first || t == second;
        const float v = uniform(random);
        x.host[(n * T + t) * C] = v;
        x.host[(n * T + t) * C + 1] = marked;
        if (marked) target[n] += v;
      }
    }
    x.ToDevice();
    example::Check(haste::LayerForward(config, layer, forward, scratch));

    // Mean squared error of a linear readout of the last state.
    hT.ToHost();
    double loss = 0;
    std::fill(readout.gradient.host.begin(), readout.gradient.host.end(), 0.0f);
    for (int64_t n = 0; n < N; ++n) {
      float out = readout.value.host[H];
      for (int64_t j = 0; j < H; ++j) out += readout.value.host[j] * hT.host[n * H + j];
      const float error = out - target[n];
      loss += error * error / N;
      const float d = 2 * error / N;
      for (int64_t j = 0; j < H; ++j) {
        readout.gradient.host[j] += d * hT.host[n * H + j];
        dh.host[n * H + j] = d * readout.value.host[j];
      }
      readout.gradient.host[H] += d;
    }
    dh.ToDevice();
    example::Check(haste::LayerBackward(config, gradients, backward, scratch));
    for (Parameter* p : {&W, &b, &R, &readout}) p->Update(step);
    average = step == 1 ? loss : 0.95 * average + 0.05 * loss;
    if (step % 100 == 0) std::printf("step %4d  loss %.4f\n", step, average);
  }
  std::printf("loss %.4f; without memory %.4f\n", average, 1.0 / 6);
  return average < 0.02 ? 0 : 1;
}
