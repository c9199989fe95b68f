// LSTM and GRU with bfloat16 and int8 weights over the same in float32: the recurrence alone, in
// inference. Results are compared before they are timed.
//
//   narrow [THREADS]
#include <cmath>
#include <cstring>

#include "benchmarks/cpp/layer.h"
#include "benchmarks/cpp/timing.h"

namespace benchmark {
namespace {

constexpr double kSeconds = 0.6;  // of a comparison

float Value(const void* data, int64_t i, HasteDtype dtype) {
  float value;
  uint32_t bits = 0;
  if (dtype == HASTE_FLOAT32) {
    memcpy(&bits, static_cast<const char*>(data) + 4 * i, 4);
  } else {
    memcpy(reinterpret_cast<char*>(&bits) + 2, static_cast<const char*>(data) + 2 * i, 2);
  }
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A recurrence of floats, bfloat16 or int8 weights. All stand for the same weights, nearly.
class Recurrence {
 public:
  Recurrence(const char* cell, Size size, HasteDtype dtype, bool int8, int threads)
      : gates_(strcmp(cell, "lstm") == 0 ? 4 : 3),
        config_(haste::Config(cell, dtype, HASTE_CPU, size.batch, size.time, 1, size.hidden)),
        dtype_(dtype),
        wx_(dtype, size.batch * size.time * gates_ * size.hidden, 1),
        b_(dtype, gates_ * size.hidden, 0.5),
        R_(dtype, size.hidden * gates_ * size.hidden, 1 / std::sqrt(size.hidden)),
        y_(dtype, count_ = size.batch * size.time * size.hidden),
        scratch_(HASTE_CPU) {
    executor_.threads = threads;
    args_.set_wx(wx_.data()).set_R(R_.data()).set_extra(0, b_.data()).set_y(y_.data());
    if (int8) {
      const float scale = 1 / std::sqrt(static_cast<float>(size.hidden)) / 127;
      scale_.assign(gates_ * size.hidden, scale);
      q_.resize(size.hidden * gates_ * size.hidden);
      for (size_t i = 0; i < q_.size(); ++i) {
        q_[i] = static_cast<int8_t>(std::nearbyint(R_.floats()[i] / scale));
      }
      config_.weights_dtype = HASTE_INT8;
      args_.set_R(q_.data()).set_R_scale(scale_.data());
    }
    Run();
  }

  void Run() { Check(haste::Forward(config_, args_, scratch_, executor_)); }

  // The difference of the results over their size.
  double Difference(Recurrence& other) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const double v = Value(y_.data(), i, dtype_), w = Value(other.y_.data(), i, other.dtype_);
      error += (v - w) * (v - w);
      size += w * w;
    }
    return std::sqrt(error / size);
  }

 private:
  const int64_t gates_;
  int64_t count_ = 0;
  haste::RnnConfig config_;
  const HasteDtype dtype_;
  Buffer wx_, b_, R_, y_;
  std::vector<int8_t> q_;
  std::vector<float> scale_;
  haste::ScratchMemory scratch_;
  haste::Executor executor_;
  haste::ForwardArgs args_;
};

void Compare(int threads) {
  std::printf(
      "recurrence, %d threads, %s: ms in float32; how many times as fast in bfloat16, int8\n",
      threads, haste_cpu_target());
  for (const char* cell : {"lstm", "gru"}) {
    for (const Size& size : {Size{1, 100, 0, 256}, Size{1, 100, 0, 512}, Size{8, 100, 0, 256},
                             Size{8, 50, 0, 512}, Size{32, 50, 0, 128}, Size{32, 50, 0, 256},
                             Size{64, 20, 0, 512}, Size{16, 20, 0, 768}, Size{128, 20, 0, 128}}) {
      Recurrence single(cell, size, HASTE_FLOAT32, false, threads);
      Recurrence half(cell, size, HASTE_BFLOAT16, false, threads);
      Recurrence int8(cell, size, HASTE_FLOAT32, true, threads);
      if (!(half.Difference(single) < 0.02)) Fail("bfloat16: wrong result");
      if (!(int8.Difference(single) < 0.02)) Fail("int8: wrong result");
      const std::vector<double> t =
          Medians({[&] { single.Run(); }, [&] { half.Run(); }, [&] { int8.Run(); }}, kSeconds);
      std::printf("  %-5s N=%-3d T=%-3d H=%-4d %8.3f %6.2f %6.2f\n", cell,
                  static_cast<int>(size.batch), static_cast<int>(size.time),
                  static_cast<int>(size.hidden), 1e3 * t[0], t[0] / t[1], t[0] / t[2]);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace benchmark

int main(int argc, char** argv) {
  benchmark::Compare(argc > 1 ? std::atoi(argv[1]) : 1);
  return 0;
}
