// Runs a bidirectional LSTM over a batch of sequences of different lengths: no TensorFlow, no
// Python.
//
//   inference [--cuda]
#include <cmath>
#include <cstdio>
#include <random>

#include "examples/cpp/buffer.h"

int main(int argc, char** argv) {
  using example::Buffer;
  const HasteDevice device = example::DeviceOf(argc, argv);
  const int64_t N = 4, T = 20, C = 16, K = 2, G = 4, H = 32;

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto fill = [&](Buffer& buffer, float scale) {
    for (float& v : buffer.host) v = scale * normal(random);
    buffer.ToDevice();
  };
  Buffer x(device, N * T * C), W(device, C * K * G * H), b(device, K * G * H),
      R(device, K * H * G * H);
  fill(x, 1.0f);
  fill(W, 1 / std::sqrt(static_cast<float>(C)));
  fill(b, 0.1f);
  fill(R, 1 / std::sqrt(static_cast<float>(H)));
  example::BufferOf<uint8_t> mask(device, N * T);
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t t = 0; t < T; ++t) mask.host[n * T + t] = t < T - 5 * n;
  }
  mask.ToDevice();

  // Two lanes, the second walking backwards in time: one call.
  const uint8_t reverse[K] = {0, 1};
  haste::RnnConfig config = haste::Config("lstm", HASTE_FLOAT32, device, N, T, K, H);
  config.set_reverse(reverse);
  Buffer wx(device, N * T * K * G * H), y(device, N * T * K * H), h(device, N * K * H);
  const auto layer = haste::LayerForwardArgs()
                         .set_features(C)
                         .set_x(x.data())
                         .set_W(W.data())
                         .set_b(b.data())
                         .set_wx(wx.data());
  const auto rnn = haste::ForwardArgs()
                       .set_R(R.data())
                       .set_mask(mask.data())
                       .set_y(y.data())
                       .set_final_state(0, h.data());
  haste::ScratchMemory scratch(device);
  example::Check(haste::LayerForward(config, layer, rnn, scratch));
  y.ToHost();
  h.ToHost();

  std::string plan;
  example::Check(haste::Explain(config, &plan));
  std::printf("%s\n", plan.c_str());
  // A row's final state is its output at its last live step.
  for (int64_t n = 0; n < N; ++n) {
    const int64_t last = T - 5 * n - 1;
    const float out = y.host[((n * T + last) * K) * H], state = h.host[n * K * H];
    std::printf("row %ld, %2ld steps: y[last, 0] = %+.6f, h[0] = %+.6f\n", static_cast<long>(n),
                static_cast<long>(last + 1), out, state);
    if (out != state || !std::isfinite(out)) return 1;
  }
  return 0;
}
