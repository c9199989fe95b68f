// A layer of any matrix cell at one size, with its memory, to be run repeatedly.
#ifndef HASTE_BENCHMARKS_CPP_LAYER_H_
#define HASTE_BENCHMARKS_CPP_LAYER_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "haste/rnn.h"

namespace benchmark {

[[noreturn]] inline void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

inline void Check(const haste::Status& status) {
  if (!status.ok()) Fail(status.message());
}

// A buffer of a storage type, random or uninitialised.
class Buffer {
 public:
  Buffer(HasteDtype dtype, int64_t count, double scale = 0)
      : dtype_(dtype), memory_(count * (dtype == HASTE_FLOAT32 ? 4 : 2) + 64) {
    if (dtype != HASTE_FLOAT32 && dtype != HASTE_BFLOAT16) Fail("buffer: float32 or bfloat16");
    std::mt19937 random(static_cast<uint32_t>(count));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < count && scale > 0; ++i) Set(i, uniform(random) * scale);
  }
  void* data() {
    const uintptr_t at = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<void*>((at + 63) / 64 * 64);
  }
  float* floats() { return static_cast<float*>(data()); }

 private:
  void Set(int64_t i, double value) {
    const float single = static_cast<float>(value);
    if (dtype_ == HASTE_FLOAT32) {
      floats()[i] = single;
    } else {
      uint32_t bits;
      memcpy(&bits, &single, sizeof bits);
      static_cast<uint16_t*>(data())[i] = static_cast<uint16_t>(bits >> 16);
    }
  }

  HasteDtype dtype_;
  std::vector<char> memory_;
};

struct Size {
  int64_t batch, time, features, hidden;
};

// The LSTM or the GRU (reset after), inference.
class Layer {
 public:
  Layer(const char* cell, HasteDtype dtype, Size size, int threads)
      : size_(size),
        lstm_(strcmp(cell, "lstm") == 0),
        gates_(lstm_ ? 4 : 3),
        config_(haste::Config(cell, dtype, HASTE_CPU, size.batch, size.time, 1, size.hidden)),
        x_(dtype, size.batch * size.time * size.features, 1),
        W_(dtype, size.features * gates_ * size.hidden, 1 / std::sqrt(size.features)),
        b_(dtype, gates_ * size.hidden, 0.5),
        R_(dtype, size.hidden * gates_ * size.hidden, 1 / std::sqrt(size.hidden)),
        wx_(dtype, size.batch * size.time * gates_ * size.hidden),
        y_(dtype, size.batch * size.time * size.hidden),
        workspace_(HASTE_FLOAT32, WorkspaceFloats(threads)) {
    args_.R = R_.data();
    args_.extra[0] = b_.data();
    args_.y = y_.data();
    args_.wx = wx_.data();
    layer_.features = size.features;
    layer_.x = x_.data();
    layer_.W = W_.data();
    layer_.b = b_.data();
    layer_.wx = wx_.data();
    if (dtype == HASTE_FLOAT32) CheckFirstSteps();
  }

  void Run() { Check(haste::LayerForward(config_, layer_, args_, workspace_.data(), executor_)); }
  // The recurrence without the projection, on the gates that Run wrote.
  void RunRecurrence() { Check(haste::Forward(config_, args_, workspace_.data(), executor_)); }

 private:
  int64_t WorkspaceFloats(int threads) {
    executor_.threads = threads;
    haste::LayerForwardArgs sizes = {};
    sizes.features = size_.features;
    sizes.wx = wx_.data();
    size_t bytes = 0;
    Check(haste::LayerForwardWorkspaceBytes(config_, sizes, &bytes, executor_));
    return static_cast<int64_t>(bytes / sizeof(float)) + 1;
  }

  // Runs, and exits if the first steps of the first row are not those of the equations.
  void CheckFirstSteps() {
    Run();
    const int64_t H = size_.hidden, steps = std::min<int64_t>(size_.time, 3);
    std::vector<double> h(H), c(H), next(H);
    const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t j = 0; j < H; ++j) {
        double x[4], q[4];
        for (int64_t g = 0; g < gates_; ++g) {
          const int64_t column = g * H + j, width = gates_ * H;
          x[g] = b_.floats()[column];
          q[g] = lstm_ ? 0 : b_.floats()[column];
          for (int64_t i = 0; i < size_.features; ++i) {
            x[g] += static_cast<double>(x_.floats()[t * size_.features + i]) *
                    W_.floats()[i * width + column];
          }
          for (int64_t i = 0; i < H; ++i) q[g] += h[i] * R_.floats()[i * width + column];
        }
        if (lstm_) {
          c[j] = sigmoid(x[1] + q[1]) * c[j] + sigmoid(x[0] + q[0]) * std::tanh(x[2] + q[2]);
          next[j] = sigmoid(x[3] + q[3]) * std::tanh(c[j]);
        } else {
          const double z = sigmoid(x[0] + q[0]), r = sigmoid(x[1] + q[1]);
          next[j] = z * h[j] + (1 - z) * std::tanh(x[2] + r * q[2]);
        }
      }
      h = next;
      for (int64_t j = 0; j < H; ++j) {
        if (!(std::fabs(y_.floats()[t * H + j] - h[j]) < 1e-5)) Fail("wrong result");
      }
    }
  }

  const Size size_;
  const bool lstm_;
  const int64_t gates_;
  haste::Executor executor_ = {};
  haste::RnnConfig config_;
  Buffer x_, W_, b_, R_, wx_, y_, workspace_;
  haste::ForwardArgs args_ = {};
  haste::LayerForwardArgs layer_ = {};
};

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_LAYER_H_
