// Times cuts of GPU engines: those that plans take, and others that they reject. The data of
// benchmarks/fit_plan.py.
//
//   plan_timings path/to/libhaste_cuda.so cuts [SECONDS [ROWS [SKIP]]] >plan_h200.csv
//   plan_timings path/to/libhaste_cuda.so stationary [SECONDS [ROWS [SKIP]]] >stationary_h200.csv
//
// cuts: of all engines. stationary: those of `tiled` in which R is stationary, and the best cut of
// each other engine. SKIP: so many of the first cuts are not timed, to go on after one that never
// ends. Results are checked before they are timed: they must be those of `stepwise`.
// libhaste_cuda.so is of the same sources. Neither CUDA's toolkit nor TensorFlow is needed.
// Problems come in one order, whatever the machine. Of `cuts` those that tests pin are first, the
// others are drawn.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/cpp/planner/cuda_half.h"
#include "benchmarks/cpp/planner/plan_problems.h"
#include "lib/base/dtypes.h"
#include "lib/base/status.h"

namespace benchmark {
namespace {

// A step's time is the difference between walks of so many steps: what comes before the first step
// (R's packing, a launch) is in both.
constexpr int64_t kShortWalk = 24, kLongWalk = 88;
constexpr int64_t kCheckedWalk = 6;
constexpr int kMostFailures = 20;  // one after the other

double ToleranceOf(const Problem& p) {
  return p.dtype == "f64" ? 1e-9 : p.dtype == "f32" ? 1e-4 : 2e-2;
}

class Timer {
 public:
  Timer(const haste::CudaBackend& backend, const Gpu& gpu)
      : backend_(backend), gpu_(gpu), memory_(backend, gpu) {
    executor_.stream = gpu.stream();
  }

  // Called before the cuts of another problem.
  void Begin() { right_.clear(); }

  // Microseconds of a step; 0: it did not run, or not right, and the status says why.
  double MicrosecondsOfStep(const Problem& problem, const Cut& cut, HasteStatus* status) {
    haste::PlannedRnn planned;
    if (!Plan(problem, problem.backward, cut.plan.engine, &planned, status)) return 0;
    planned.plan = cut.plan;
    planned.cuda.multiprocessors = cut.multiprocessors;
    const double checked = Check(problem, planned, status);
    if (checked <= 0) return checked;
    const double shorter = MicrosecondsOfWalk(problem, kShortWalk, planned, status);
    if (shorter <= 0) return shorter;
    const double longer = MicrosecondsOfWalk(problem, kLongWalk, planned, status);
    return longer <= 0 ? longer : (longer - shorter) / (kLongWalk - kShortWalk);
  }

 private:
  struct Walk {
    HasteRnnConfig config;
    HasteRnnForwardArgs forward = {};
    HasteRnnBackwardArgs backward = {};
    Tensors results;  // of the problem's direction, some of them
  };

  bool Plan(const Problem& problem, bool backward, haste::EngineKind engine,
            haste::PlannedRnn* planned, HasteStatus* status) const {
    HasteRnnConfig config = problem.Config();
    config.training = 1;
    config.engine = haste::EngineName(engine);
    return backend_.plan(config, problem.CellIndex(), backward, executor_, planned, status) ==
           HASTE_OK;
  }

  // after_forward: backward reads what a walk forward has written, else any numbers.
  Walk WalkOf(const Problem& problem, int64_t time, bool after_forward) {
    Walk walk = {problem.Config()};
    HasteRnnConfig& config = walk.config;
    config.training = 1;
    config.time = time;
    const HasteCellInfo& cell = problem.Cell();
    const int64_t narrow = config.batch * time * config.lanes * config.hidden;
    const int64_t wide = narrow * cell.gates,
                  weights = wide / (config.batch * time) * config.hidden;
    const int64_t size = static_cast<int64_t>(haste::DtypeSize(config.dtype));
    memory_.FillFor(config.dtype);
    memory_.Restart();
    const auto read = [&](int64_t elements) { return memory_.Read(elements * size); };
    const auto write = [&](int64_t elements) { return memory_.Write(elements * size); };
    const auto left = [&](void* written, int64_t elements) {
      return after_forward ? written : read(elements);
    };
    HasteRnnForwardArgs& forward = walk.forward;
    HasteRnnBackwardArgs& backward = walk.backward;
    forward.R = backward.R = read(weights);
    for (int i = 0; i < cell.extras; ++i) forward.extra[i] = backward.extra[i] = read(weights);
    if (!problem.backward || after_forward) {
      forward.keep = 1;
      forward.wx = read(wide);
      forward.y = write(narrow);
      forward.gates = write(wide);
      if (cell.normalizes) forward.products = write(wide);
      for (int i = 0; i < cell.saved; ++i) forward.saved[i] = write(narrow);
      walk.results = {{forward.y, narrow}, {forward.gates, wide}};
    }
    if (problem.backward) {
      backward.gates = left(forward.gates, wide);
      if (cell.normalizes) backward.products = left(forward.products, wide);
      for (int i = 0; i < cell.saved; ++i) backward.saved[i] = left(forward.saved[i], narrow);
      backward.dy = read(narrow);
      backward.dwx = write(wide);
      if (cell.splits_gradient) backward.dq = write(wide);
      for (int i = 0; i < cell.extras; ++i) backward.dextra[i] = write(weights);
      walk.results = {{backward.dwx, wide}};
      if (cell.splits_gradient) walk.results.emplace_back(backward.dq, wide);
    }
    return walk;
  }

  bool Fits(const Walk& walk, const haste::PlannedRnn& planned, HasteStatus* status) const {
    if (memory_.Fits(planned.engine->workspace_bytes(walk.config, planned))) return true;
    haste::SetStatus(status, HASTE_UNIMPLEMENTED, "too large to time");
    return false;
  }
  int32_t Queue(const Walk& walk, bool backward, const haste::PlannedRnn& planned,
                HasteStatus* status) const {
    const haste::RnnCall call = {walk.config, planned, memory_.scratch(), executor_};
    return backward ? planned.engine->backward(call, walk.backward, status)
                    : planned.engine->forward(call, walk.forward, status);
  }

  // These return as MicrosecondsOfStep does.
  double RunOnce(const Walk& walk, bool backward, const haste::PlannedRnn& planned,
                 HasteStatus* status) const {
    if (!Fits(walk, planned, status)) return 0;
    gpu_.Start();
    if (Queue(walk, backward, planned, status) != HASTE_OK) return 0;
    return gpu_.MicrosecondsSinceStart() < 0 ? kHangs : 1;
  }
  double RunStepwise(const Problem& problem, const Walk& walk, bool backward,
                     HasteStatus* status) const {
    haste::PlannedRnn planned;
    if (!Plan(problem, backward, haste::EngineKind::kStepwise, &planned, status)) return 0;
    return RunOnce(walk, backward, planned, status);
  }
  double Check(const Problem& problem, const haste::PlannedRnn& planned, HasteStatus* status) {
    const Walk walk = WalkOf(problem, kCheckedWalk, true);
    const auto is_right = [&] {
      return AreSame(gpu_, walk.results, walk.config.dtype, ToleranceOf(problem), &right_);
    };
    double ran = problem.backward ? RunStepwise(problem, walk, false, status) : 1;
    if (ran > 0 && right_.empty()) {
      ran = RunStepwise(problem, walk, problem.backward, status);
      if (ran > 0) is_right();
    }
    if (ran <= 0) return ran;
    // What a cut does not write is not right.
    for (const auto& [tensor, elements] : walk.results) {
      const size_t bytes = elements * haste::DtypeSize(walk.config.dtype);
      if (backend_.ops.copy(tensor, nullptr, bytes, executor_, status) != HASTE_OK) return 0;
    }
    ran = RunOnce(walk, problem.backward, planned, status);
    if (ran <= 0 || is_right()) return ran;
    haste::SetStatus(status, HASTE_INTERNAL, "the result is wrong");
    return 0;
  }
  double MicrosecondsOfWalk(const Problem& problem, int64_t time, const haste::PlannedRnn& planned,
                            HasteStatus* status) {
    const Walk walk = WalkOf(problem, time, false);
    if (!Fits(walk, planned, status)) return 0;
    return MedianMicroseconds(
        gpu_, [&] { return Queue(walk, problem.backward, planned, status); }, false);
  }

  const haste::CudaBackend& backend_;
  const Gpu& gpu_;
  Memory memory_;
  HasteExecutor executor_ = {};
  std::vector<std::vector<double>> right_;  // some of a problem's results
};

std::string TextOf(const Problem& p, const Cut& cut) {
  return p.cell + "," + p.dtype + "," + std::to_string(p.batch) + "," + std::to_string(p.lanes) +
         "," + std::to_string(p.hidden) + "," + std::to_string(p.backward) + "," + cut.engine +
         "," + cut.name;
}

template <class Problems>
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
    timer.Begin();
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
  const std::string what = argc > 2 ? argv[2] : "";
  if (argc > 6 || (what != "cuts" && what != "stationary")) {
    benchmark::Fail(
        "usage: plan_timings path/to/libhaste_cuda.so cuts|stationary [SECONDS [ROWS [SKIP]]]");
  }
  const auto run = what == "cuts" ? benchmark::Run<benchmark::Problems>
                                  : benchmark::Run<benchmark::StationaryProblems>;
  run(argv[1], argc > 3 ? std::atof(argv[3]) : 200, argc > 4 ? std::atoi(argv[4]) : 3000,
      argc > 5 ? std::atoi(argv[5]) : 0);
  return 0;
}
