// Calls that layer_timings runs, checks and times.
#ifndef HASTE_BENCHMARKS_CPP_PLANNER_LAYER_TIMINGS_H_
#define HASTE_BENCHMARKS_CPP_PLANNER_LAYER_TIMINGS_H_

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cpp/planner/cuda_half.h"
#include "benchmarks/cpp/planner/layer_rows.h"
#include "benchmarks/cpp/planner/plan_problems.h"

namespace benchmark {

class Timings {
 public:
  Timings(const char* path, double seconds, int skipped)
      : backend_(LoadCudaHalf(path)),
        seconds_(seconds),
        skipped_(skipped),
        cuda_(Properties(backend_)),
        memory_(backend_, gpu_),
        begin_(std::chrono::steady_clock::now()) {
    executor_.stream = gpu_.stream();
  }

  void Products();
  void Layers();

 private:
  static haste::CudaProperties Properties(const haste::CudaBackend& backend) {
    haste::CudaProperties cuda;
    HasteStatus status = {};
    if (backend.properties(&cuda, &status) != HASTE_OK) Fail(status.message);
    cuda.has_cublas = true;
    return cuda;
  }

  double Spent() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  bool IsOver() const { return Spent() > seconds_; }
  void End() const {
    std::fprintf(stderr, "%d rows in %.0f s, %d failures\n", rows_, Spent(), failures_);
  }

  // Runs and checks a call, times it and prints the row.
  void Time(const std::string& row, const std::function<int32_t()>& call,
            const std::function<bool()>& is_right);
  void Failed(const std::string& row, const char* why);
  [[noreturn]] void Hangs(const std::string& row) const {
    std::fprintf(stderr, "%s hangs; go on with SKIP %d\n", row.c_str(), number_);
    _exit(3);  // whatever else ends the process waits for the GPU
  }

  void TimeProduct(const Product&);
  void TimeForward(const Layer&);
  void TimeBackward(const Layer&);
  int32_t Multiply(HasteGemm gemm, const void* a, const void* b, void* c) {
    gemm.a = a;
    gemm.b = b;
    gemm.c = c;
    return backend_.ops.gemm(gemm, memory_.scratch(), executor_, &status_);
  }
  // Calls time(cut, planned) for each cut of a layer.
  void EachCut(const Layer&, const HasteRnnConfig&,
               const std::function<void(const std::string& cut, const haste::PlannedRnn&)>& time);

  const haste::CudaBackend& backend_;
  const double seconds_;
  const int skipped_;
  const haste::CudaProperties cuda_;
  const Gpu gpu_;
  Memory memory_;
  HasteExecutor executor_ = {};
  HasteStatus status_ = {};
  const std::chrono::steady_clock::time_point begin_;
  int number_ = 0, rows_ = 0, failures_ = 0, in_a_row_ = 0;
};

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_PLANNER_LAYER_TIMINGS_H_
