// Times cuts of GPU engines: those that plans take, and others that they reject. The data of
// benchmarks/fit_plan.py.
//
//   plan_timings path/to/libhaste_cuda.so [SECONDS [ROWS [SKIP]]] >plan_h200.csv
//
// SKIP: so many of the first cuts are not timed, to go on after one that never ends.
// libhaste_cuda.so is of the same sources. Neither CUDA's toolkit nor TensorFlow is needed.
// Problems come in one order, whatever the machine: first those that tests pin, then drawn ones.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "benchmarks/cpp/cuda_half.h"
#include "benchmarks/cpp/plan_problems.h"
#include "lib/base/dtypes.h"
#include "lib/base/status.h"

namespace benchmark {
namespace {

// A step's time is the difference between walks of so many steps: what comes before the first step
// (R's packing, a launch) is in both.
constexpr int64_t kShortWalk = 24, kLongWalk = 88;
constexpr int kMostFailures = 20;  // one after the other

class Timer {
 public:
  Timer(const haste::CudaBackend& backend, const Gpu& gpu)
      : backend_(backend), gpu_(gpu), memory_(backend, gpu) {
    executor_.stream = gpu.stream();
  }

  // Microseconds of a step; 0: it did not run, and the status says why.
  double MicrosecondsOfStep(const Problem& problem, const Cut& cut, HasteStatus* status) {
    HasteRnnConfig config = problem.Config();
    config.training = 1;
    const std::string engine = haste::EngineName(cut.plan.engine);
    config.engine = engine.c_str();
    haste::PlannedRnn planned;
    if (backend_.plan(config, problem.CellIndex(), problem.backward, executor_, &planned, status) !=
        HASTE_OK) {
      return 0;
    }
    planned.plan = cut.plan;
    planned.cuda.multiprocessors = cut.multiprocessors;
    const double shorter = MicrosecondsOfWalk(problem, config, kShortWalk, planned, status);
    if (shorter <= 0) return shorter;
    const double longer = MicrosecondsOfWalk(problem, config, kLongWalk, planned, status);
    return longer <= 0 ? longer : (longer - shorter) / (kLongWalk - kShortWalk);
  }

 private:
  double MicrosecondsOfWalk(const Problem& problem, HasteRnnConfig config, int64_t time,
                            const haste::PlannedRnn& planned, HasteStatus* status) {
    config.time = time;
    const HasteCellInfo& cell = problem.Cell();
    const size_t narrow =
        config.batch * time * config.lanes * config.hidden * haste::DtypeSize(config.dtype);
    const size_t wide = narrow * cell.gates, weights = wide / (config.batch * time) * config.hidden;
    memory_.Restart();
    HasteRnnForwardArgs forward = {};
    HasteRnnBackwardArgs backward = {};
    const auto read = [&](size_t bytes) { return memory_.Read(bytes); };
    const auto write = [&](size_t bytes) { return memory_.Write(bytes); };
    forward.R = backward.R = read(weights);
    for (int i = 0; i < cell.extras; ++i) {
      forward.extra[i] = backward.extra[i] = read(weights);
      if (problem.backward) backward.dextra[i] = write(weights);
    }
    if (problem.backward) {
      backward.gates = read(wide);
      backward.dy = read(narrow);
      backward.dwx = write(wide);
      if (cell.normalizes) backward.products = read(wide);
      if (cell.splits_gradient) backward.dq = write(wide);
      for (int i = 0; i < cell.saved; ++i) backward.saved[i] = read(narrow);
    } else {
      forward.keep = 1;
      forward.wx = read(wide);
      forward.y = write(narrow);
      forward.gates = write(wide);
      if (cell.normalizes) forward.products = write(wide);
      for (int i = 0; i < cell.saved; ++i) forward.saved[i] = write(narrow);
    }
    const haste::Engine& engine = *planned.engine;
    if (!memory_.Fits(engine.workspace_bytes(config, planned))) {
      haste::SetStatus(status, HASTE_UNIMPLEMENTED, "too large to time");
      return 0;
    }
    const haste::RnnCall call = {config, planned, memory_.scratch(), executor_};
    const auto walk = [&] {
      return problem.backward ? engine.backward(call, backward, status)
                              : engine.forward(call, forward, status);
    };
    return MedianMicroseconds(gpu_, walk, false);
  }

  const haste::CudaBackend& backend_;
  const Gpu& gpu_;
  Memory memory_;
  HasteExecutor executor_ = {};
};

std::string TextOf(const Problem& p, const Cut& cut) {
  return p.cell + "," + p.dtype + "," + std::to_string(p.batch) + "," + std::to_string(p.lanes) +
         "," + std::to_string(p.hidden) + "," + std::to_string(p.backward) + "," + cut.engine +
         "," + cut.name;
}

void Run(const char* path, double seconds, int most_rows, int skipped) {
  const haste::CudaBackend& backend = LoadCudaHalf(path);
  haste::CudaProperties cuda;
  HasteStatus status = {};
  if (backend.properties(&cuda, &status) != HASTE_OK) Fail(status.message);
  cuda.has_cublas = true;  // until it is not found
  const Gpu gpu;
  Timer timer(backend, gpu);
  PrintGpu(gpu, cuda);
  std::puts("cell,dtype,batch,lanes,hidden,backward,engine,cut,microseconds,mhz");
  const auto begin = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  int number = 0, rows = 0, failures = 0, in_a_row = 0;
  Problems problems;
  Problem problem;
  while (problems.Next(&problem)) {
    for (const Cut& cut : problems.CutsOf(problem, cuda)) {
      if (number++ < skipped || (cut.engine == "blas" && !cuda.has_cublas)) continue;
      if (spent() > seconds || rows >= most_rows) break;
      status = {};
      const double microseconds = timer.MicrosecondsOfStep(problem, cut, &status);
      if (microseconds == kHangs) {
        std::fprintf(stderr, "%s hangs; go on with SKIP %d\n", TextOf(problem, cut).c_str(),
                     number);
        _exit(3);  // whatever else ends the process waits for the GPU
      }
      if (microseconds <= 0) {
        std::fprintf(stderr, "%s: %s\n", TextOf(problem, cut).c_str(), status.message);
        if (cut.engine == "blas") cuda.has_cublas = false;
        ++failures;
        if (++in_a_row == kMostFailures) Fail("the GPU runs nothing more");
        continue;
      }
      ++rows;
      in_a_row = 0;
      std::printf("%s,%.4g,%.0f\n", TextOf(problem, cut).c_str(), microseconds, gpu.Megahertz());
      std::fflush(stdout);
    }
    if (spent() > seconds || rows >= most_rows) break;
  }
  std::fprintf(stderr, "%d rows in %.0f s, %d failures\n", rows, spent(), failures);
}

}  // namespace
}  // namespace benchmark

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    benchmark::Fail("usage: plan_timings path/to/libhaste_cuda.so [SECONDS [ROWS [SKIP]]]");
  }
  benchmark::Run(argv[1], argc > 2 ? std::atof(argv[2]) : 200, argc > 3 ? std::atoi(argv[3]) : 3000,
                 argc > 4 ? std::atoi(argv[4]) : 0);
  return 0;
}
