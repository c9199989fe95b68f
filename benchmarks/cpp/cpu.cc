// The CPU engine through the C++ API: no TensorFlow, no Python.
//
//   cpu                           one table of everything
//   cpu CELL N T C H CALLS        runs a layer CALLS times on one thread: a fixed amount of
//                                 work, for valgrind --tool=callgrind
#include <cstring>
#include <thread>

#include "benchmarks/cpp/layer.h"
#include "benchmarks/cpp/peak.h"
#include "benchmarks/cpp/timing.h"

namespace benchmark {
namespace {

constexpr double kSeconds = 2.0;  // of a comparison
const char* const kCells[] = {"lstm", "gru"};

// One step of a model that streams.
void Latency() {
  std::printf("latency, N=1 T=1 C=H=128, one thread, µs: layer, recurrence alone\n");
  for (const char* cell : kCells) {
    Layer layer(cell, HASTE_FLOAT32, {1, 1, 128, 128}, 1);
    const std::vector<double> t =
        Medians({[&] { layer.Run(); }, [&] { layer.RunRecurrence(); }}, kSeconds / 4);
    std::printf("  %-5s %6.1f %6.1f\n", cell, 1e6 * t[0], 1e6 * t[1]);
  }
}

// The recurrence's product as a share of the FMA peak. The time includes the activations.
void ShareOfPeak() {
  std::printf("recurrence, one core, GMAC/s and share of the FMA peak beside it\n");
  volatile float sink = 0;
  for (const char* cell : kCells) {
    for (int64_t batch : {1, 8, 16, 32, 64}) {
      const Size size = {batch, 20, 1, 512};
      Layer layer(cell, HASTE_FLOAT32, size, 1);
      const std::vector<double> t =
          Medians({[&] { layer.RunRecurrence(); }, [&] { sink = FmaBurst(); }}, kSeconds);
      const int64_t gates = strcmp(cell, "lstm") == 0 ? 4 : 3;
      const double macs =
          static_cast<double>(size.batch * size.time) * gates * size.hidden * size.hidden;
      const double rate = macs / t[0], peak = BurstMacs() / t[1];
      std::printf("  %-5s N=%-3d T=20 H=512 %6.1f of %5.1f: %4.2f\n", cell, static_cast<int>(batch),
                  1e-9 * rate, 1e-9 * peak, rate / peak);
    }
  }
}

// Two threads against one.
void Scaling() {
  std::printf("recurrence, one thread over two, T=50\n");
  if (std::thread::hardware_concurrency() < 2) return std::puts("  one core only"), void();
  for (const char* cell : kCells) {
    for (int64_t batch : {1, 8, 16, 32, 64}) {
      for (int64_t hidden : {128, 512}) {
        const Size size = {batch, 50, 1, hidden};
        Layer one(cell, HASTE_FLOAT32, size, 1), two(cell, HASTE_FLOAT32, size, 2);
        const std::vector<double> t =
            Medians({[&] { one.RunRecurrence(); }, [&] { two.RunRecurrence(); }}, kSeconds);
        std::printf("  %-5s N=%-3d H=%-4d %7.2f ms / %7.2f ms: %4.2f\n", cell,
                    static_cast<int>(batch), static_cast<int>(hidden), 1e3 * t[0], 1e3 * t[1],
                    t[0] / t[1]);
      }
    }
  }
}

// The time of smaller storage types against float32.
void StorageTypes() {
  std::printf("layer in bfloat16 over float32, one thread, T=50\n");
  for (const char* cell : kCells) {
    for (const Size& size : {Size{1, 50, 128, 256}, Size{32, 50, 128, 128}, Size{32, 50, 256, 512},
                             Size{8, 50, 64, 64}}) {
      Layer single(cell, HASTE_FLOAT32, size, 1), half(cell, HASTE_BFLOAT16, size, 1);
      const std::vector<double> t =
          Medians({[&] { single.RunRecurrence(); }, [&] { half.RunRecurrence(); },
                   [&] { single.Run(); }, [&] { half.Run(); }},
                  kSeconds);
      std::printf("  %-5s N=%-3d H=%-4d recurrence %4.2f, with projection %4.2f\n", cell,
                  static_cast<int>(size.batch), static_cast<int>(size.hidden), t[1] / t[0],
                  t[3] / t[2]);
    }
  }
}

// ForgetMult moves three tensors and computes next to nothing.
void Bandwidth() {
  const int64_t N = 16, T = 1024, H = 768, count = N * T * H;
  Buffer f(HASTE_FLOAT32, count, 1), x(HASTE_FLOAT32, count, 1), y(HASTE_FLOAT32, count);
  for (int64_t i = 0; i < count; ++i) f.floats()[i] = std::fabs(f.floats()[i]);
  Buffer from(HASTE_FLOAT32, 3 * count / 2, 1), to(HASTE_FLOAT32, 3 * count / 2);
  std::printf("forget_mult, N=16 T=1024 H=768, GB/s and share of memcpy of as many bytes\n");
  const haste::RnnConfig config =
      haste::Config("forget_mult", HASTE_FLOAT32, HASTE_CPU, N, T, 1, H);
  for (int threads : {1, 2}) {
    haste::Executor executor = {};
    executor.threads = threads;
    haste::ForwardArgs args = {};
    args.x[0] = f.data();
    args.x[1] = x.data();
    args.y = y.data();
    size_t bytes = 0;
    Check(haste::WorkspaceBytes(config, false, &bytes, executor));
    Buffer workspace(HASTE_FLOAT32, static_cast<int64_t>(bytes / sizeof(float)) + 1);
    const auto run = [&] { Check(haste::Forward(config, args, workspace.data(), executor)); };
    run();
    double h = 0;
    for (int64_t t = 0; t < T; ++t) {  // the last unit of the last row
      const int64_t at = ((N - 1) * T + t) * H + H - 1;
      h += f.floats()[at] * (x.floats()[at] - h);
      if (!(std::fabs(y.floats()[at] - h) < 1e-5)) Fail("forget_mult: wrong result");
    }
    const int64_t half = 3 * count / 2 / threads;  // of a thread
    const auto copy = [&] {
      std::vector<std::thread> others;
      for (int i = 1; i < threads; ++i) {
        others.emplace_back([&, i] {
          memcpy(to.floats() + i * half, from.floats() + i * half, half * sizeof(float));
        });
      }
      memcpy(to.data(), from.data(), half * sizeof(float));
      for (std::thread& other : others) other.join();
    };
    const std::vector<double> t = Medians({run, copy}, kSeconds);
    const double moved = 3e-9 * static_cast<double>(count) * sizeof(float);
    std::printf("  %d thread%s %5.1f of %5.1f: %4.2f\n", threads, threads > 1 ? "s" : " ",
                moved / t[0], moved / t[1], t[1] / t[0]);
  }
}

}  // namespace
}  // namespace benchmark

int main(int argc, char** argv) {
  if (argc == 7) {
    int64_t values[5];
    for (int i = 0; i < 5; ++i) values[i] = std::atoll(argv[2 + i]);
    benchmark::Layer layer(argv[1], HASTE_FLOAT32, {values[0], values[1], values[2], values[3]}, 1);
    for (int64_t i = 0; i < values[4]; ++i) layer.Run();
    return 0;
  }
  if (argc != 1) benchmark::Fail("usage: cpu [CELL N T C H CALLS]");
  benchmark::Latency();
  benchmark::ShareOfPeak();
  benchmark::Scaling();
  benchmark::StorageTypes();
  benchmark::Bandwidth();
  return 0;
}
