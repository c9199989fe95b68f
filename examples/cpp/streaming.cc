// Streams through an LSTM with the C API, one step a call, as an audio plug-in does: its weights
// are packed once, its states stay in two buffers that take turns, and the loop allocates nothing.
// Prints how long a step takes.
//
//   streaming [float32|bfloat16|int8] [steps]
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "haste/c_api.h"

namespace {

constexpr int64_t C = 128, G = 4, H = 128;

void Check(int32_t code, const HasteStatus& status) {
  if (code == HASTE_OK) return;
  fprintf(stderr, "streaming: %s\n", status.message);
  exit(1);
}

// Memory of the library, set to 0.
class Memory {
 public:
  explicit Memory(size_t bytes) {
    HasteStatus status = {};
    Check(haste_allocate(HASTE_CPU, bytes, &data_, &status), status);
    memset(data_, 0, bytes);
  }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  ~Memory() { haste_free(HASTE_CPU, data_, nullptr); }
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
};

// Numbers as a dtype stores them.
Memory Stored(const std::vector<float>& values, int32_t dtype) {
  const size_t size = dtype == HASTE_BFLOAT16 ? 2 : 4;
  Memory bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    if (size == 2) bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;  // the upper half, rounded
    memcpy(bytes.data() + i * size, &bits, size);
  }
  return bytes;
}

// A matrix [depth, G·H]; as int8, with a scale for each column.
struct Weights {
  Memory values;
  std::vector<float> scale;

  Weights(const std::vector<float>& w, int32_t dtype, bool int8)
      : values(int8 ? Memory(w.size()) : Stored(w, dtype)) {
    if (!int8) return;
    const int64_t columns = G * H, depth = static_cast<int64_t>(w.size()) / columns;
    scale.resize(columns);
    for (int64_t j = 0; j < columns; ++j) {
      float most = 1e-30f;
      for (int64_t i = 0; i < depth; ++i) most = std::max(most, std::fabs(w[i * columns + j]));
      scale[j] = most / 127;
      for (int64_t i = 0; i < depth; ++i) {
        const float q = std::nearbyint(w[i * columns + j] / scale[j]);
        values.data()[i * columns + j] = static_cast<char>(q);
      }
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const char* const type = argc > 1 ? argv[1] : "float32";
  const int64_t steps = argc > 2 ? atoll(argv[2]) : 1000000;
  const bool int8 = strcmp(type, "int8") == 0, bfloat16 = strcmp(type, "bfloat16") == 0;
  if ((!int8 && !bfloat16 && strcmp(type, "float32") != 0) || steps < 1) {
    fprintf(stderr, "usage: streaming [float32|bfloat16|int8] [steps]\n");
    return 2;
  }
  const int32_t dtype = bfloat16 ? HASTE_BFLOAT16 : HASTE_FLOAT32;

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto draw = [&](int64_t count, float size) {
    std::vector<float> values(count);
    for (float& v : values) v = size * normal(random);
    return values;
  };
  const Weights W(draw(C * G * H, 1 / std::sqrt(float{C})), dtype, int8);
  const Weights R(draw(H * G * H, 1 / std::sqrt(float{H})), dtype, int8);
  const Memory b = Stored(draw(G * H, 0.1f), dtype);
  const Memory x = Stored(draw(C, 1), dtype);
  const auto zeros = [&] { return Stored(std::vector<float>(H), dtype); };
  const Memory y = zeros(), h[2] = {zeros(), zeros()}, c[2] = {zeros(), zeros()};

  HasteRnnConfig config = HASTE_INIT(HasteRnnConfig);
  config.cell = "lstm";
  config.dtype = dtype;
  config.weights_dtype = int8 ? HASTE_INT8 : 0;
  config.batch = config.time = config.lanes = 1;
  config.hidden = H;
  config.recurrent_activation = HASTE_SIGMOID;
  HasteExecutor executor = HASTE_INIT(HasteExecutor);
  executor.threads = 1;
  HasteLayerForwardArgs layer = HASTE_INIT(HasteLayerForwardArgs);
  layer.features = C;
  layer.x = x.data();
  layer.W = W.values.data();
  layer.W_scale = int8 ? W.scale.data() : nullptr;
  layer.b = b.data();
  HasteRnnForwardArgs rnn = HASTE_INIT(HasteRnnForwardArgs);
  rnn.R = R.values.data();
  rnn.R_scale = int8 ? R.scale.data() : nullptr;
  rnn.y = y.data();

  HasteStatus status = {};
  HastePackedWeights* packed = nullptr;
  Check(haste_packed_weights_create(&packed, &status), status);
  rnn.packed = packed;
  size_t bytes = 0;
  Check(haste_layer_forward_workspace_bytes(&config, &layer, &executor, &bytes, &status), status);
  const Memory workspace(bytes);

  using Clock = std::chrono::steady_clock;
  std::vector<float> microseconds(steps);
  for (int64_t t = -1; t < steps; ++t) {  // the first call, which packs, is not timed
    const int now = static_cast<int>(t & 1);
    rnn.s0[0] = h[now].data();
    rnn.s0[1] = c[now].data();
    rnn.sT[0] = h[1 - now].data();
    rnn.sT[1] = c[1 - now].data();
    const Clock::time_point start = Clock::now();
    Check(haste_layer_forward(&config, &layer, &rnn, workspace.data(), &executor, &status), status);
    microseconds[std::max<int64_t>(t, 0)] =
        std::chrono::duration<float, std::micro>(Clock::now() - start).count();
  }

  std::sort(microseconds.begin(), microseconds.end());
  printf("LSTM C=H=%d in %s, %lld steps: p50 %.2f us, p99 %.2f us, max %.1f us\n",
         static_cast<int>(H), type, static_cast<long long>(steps), microseconds[steps / 2],
         microseconds[steps * 99 / 100], microseconds.back());
  uint32_t first = 0;
  memcpy(&first, y.data(), bfloat16 ? 2 : 4);
  if (bfloat16) first <<= 16;
  float value;
  memcpy(&value, &first, sizeof value);
  printf("y[0] = %.5f\n", value);
  haste_packed_weights_free(packed, nullptr);
  return 0;
}
