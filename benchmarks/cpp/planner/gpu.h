// A GPU through NVIDIA's driver alone: time on it, and its clock rate.
#ifndef HASTE_BENCHMARKS_CPP_PLANNER_GPU_H_
#define HASTE_BENCHMARKS_CPP_PLANNER_GPU_H_

#include <cstddef>
#include <string>

namespace benchmark {

[[noreturn]] void Fail(const std::string& message);

class Gpu {
 public:
  // In the current context, the CUDA runtime's if it has one.
  Gpu();

  const std::string& name() const { return name_; }
  void* stream() const { return stream_; }  // cudaStream_t
  // Copies to the GPU, or back, and waits.
  void Upload(void* to, const void* from, size_t bytes) const;
  void Download(void* to, const void* from, size_t bytes) const;

  // Queues work of 0.1 ms.
  void KeepBusy() const;
  // Of what was queued on the stream between both calls; -1: it does not end.
  void Start() const;
  double MicrosecondsSinceStart() const;
  // The clock rate of a multiprocessor after what was queued.
  double Megahertz() const;

 private:
  std::string name_;
  void *stream_, *start_, *stop_, *clock_kernel_, *clocks_;
};

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_PLANNER_GPU_H_
