// Times cuts of GPU engines: those that plans take, and others that they reject. The data of
// benchmarks/fit_plan.py.
//
//   plan_timings path/to/libhaste_cuda.so [SECONDS [ROWS [SKIP]]] >plan_h200.csv
//
// SKIP: so many of the first cuts are not timed, to go on after one that never ends.
// libhaste_cuda.so is of the same sources. Neither CUDA's toolkit nor TensorFlow is needed.
// Problems come in one order, whatever the machine: first those that tests pin, then drawn ones.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/cpp/gpu.h"
#include "benchmarks/cpp/plan_problems.h"
#include "lib/base/dtypes.h"
#include "lib/base/status.h"
#include "lib/engine/cuda_backend.h"

namespace benchmark {
namespace {

// A step's time is the difference between walks of so many steps: what comes before the first step
// (R's packing, a launch) is in both.
constexpr int64_t kShortWalk = 24, kLongWalk = 88;
// The first call loads kernels, the second one may record a graph.
constexpr int kUntimed = 2, kTimed = 5;
constexpr int kMostFailures = 20;  // one after the other
constexpr size_t kArenaBytes = size_t{8} << 30;

const haste::CudaBackend& Load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail(dlerror());
  const auto get =
      reinterpret_cast<const haste::CudaBackend* (*)()>(dlsym(library, "haste_cuda_backend"));
  if (get == nullptr) Fail("not the CUDA half: " + std::string(path));
  const haste::CudaBackend& backend = *get();
  if (std::string(backend.version) != HASTE_VERSION ||
      backend.table_bytes != sizeof(haste::CudaBackend)) {
    Fail("the CUDA half is of another version");
  }
  return backend;
}

// Memory of one walk. What a walk reads is small numbers, which none writes.
class Memory {
 public:
  Memory(const haste::CudaBackend& backend, const Gpu& gpu) {
    HasteStatus status = {};
    for (char** arena : {&read_, &written_, &scratch_}) {
      void* memory = nullptr;
      if (backend.ops.allocate(kArenaBytes, &memory, &status) != HASTE_OK) Fail(status.message);
      *arena = static_cast<char*>(memory);
    }
    // As bfloat16 and as float32 between 2^-7 and 2^-6, as float64 less, of both signs.
    std::vector<uint32_t> pattern(1 << 20);
    uint32_t random = 1;
    for (uint32_t& word : pattern) {
      random = random * 1664525 + 1013904223;
      word = 0x3C003C00 | (random & 0x80008000) | (random >> 8 & 0x007F007F);
    }
    size_t filled = pattern.size() * sizeof(uint32_t);
    gpu.Upload(read_, pattern.data(), filled);
    HasteExecutor executor = {};
    executor.stream = gpu.stream();
    for (; filled < kArenaBytes; filled *= 2) {
      const size_t bytes = std::min(filled, kArenaBytes - filled);
      if (backend.ops.copy(read_ + filled, read_, bytes, executor, &status) != HASTE_OK) {
        Fail(status.message);
      }
    }
  }

  // Takes turns through the arenas; false once a walk has more tensors than there is room for.
  void Restart() { read_at_ = written_at_ = 0; }
  void* Read(size_t bytes) { return Take(read_, bytes, &read_at_); }
  void* Write(size_t bytes) { return Take(written_, bytes, &written_at_); }
  void* scratch() const { return scratch_; }
  bool Fits(size_t scratch_bytes) const {
    return std::max({read_at_, written_at_, scratch_bytes}) <= kArenaBytes;
  }

 private:
  static void* Take(char* arena, size_t bytes, size_t* at) {
    void* const taken = arena + *at;
    *at += (bytes + 255) / 256 * 256;
    return taken;
  }

  char *read_, *written_, *scratch_;
  size_t read_at_ = 0, written_at_ = 0;
};

class Timer {
 public:
  Timer(const haste::CudaBackend& backend, const Gpu& gpu)
      : backend_(backend), gpu_(gpu), memory_(backend, gpu) {
    executor_.stream = gpu.stream();
  }

  // Microseconds of a step; 0: it did not run, and the status says why.
  static constexpr double kHangs = -1e9;
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
    std::vector<double> times;
    for (int i = 0; i < kUntimed + kTimed; ++i) {
      gpu_.Start();
      if (walk() != HASTE_OK) return 0;
      times.push_back(gpu_.MicrosecondsSinceStart());
      if (times.back() < 0) return kHangs;
    }
    std::sort(times.begin() + kUntimed, times.end());
    return times[kUntimed + kTimed / 2];
  }

  const haste::CudaBackend& backend_;
  const Gpu& gpu_;
  Memory memory_;
  HasteExecutor executor_ = {};
};

void PrintHead(const Gpu& gpu, const haste::CudaProperties& cuda) {
  std::printf("# %s, %d.%d, %d, %lld, %lld", gpu.name().c_str(), cuda.sm_major, cuda.sm_minor,
              cuda.multiprocessors, static_cast<long long>(cuda.shared_bytes_per_block),
              static_cast<long long>(cuda.l2_bytes));
  for (int count : cuda.clusters) std::printf(", %d", count);
  std::puts("\ncell,dtype,batch,lanes,hidden,backward,engine,cut,microseconds,mhz");
}

std::string TextOf(const Problem& p, const Cut& cut) {
  return p.cell + "," + p.dtype + "," + std::to_string(p.batch) + "," + std::to_string(p.lanes) +
         "," + std::to_string(p.hidden) + "," + std::to_string(p.backward) + "," + cut.engine +
         "," + cut.name;
}

void Run(const char* path, double seconds, int most_rows, int skipped) {
  const haste::CudaBackend& backend = Load(path);
  haste::CudaProperties cuda;
  HasteStatus status = {};
  if (backend.properties(&cuda, &status) != HASTE_OK) Fail(status.message);
  cuda.has_cublas = true;  // until it is not found
  const Gpu gpu;
  Timer timer(backend, gpu);
  PrintHead(gpu, cuda);
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
      if (microseconds == Timer::kHangs) {
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
