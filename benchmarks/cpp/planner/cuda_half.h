// The CUDA half of the library and memory of its GPU, for programs that time it.
#ifndef HASTE_BENCHMARKS_CPP_PLANNER_CUDA_HALF_H_
#define HASTE_BENCHMARKS_CPP_PLANNER_CUDA_HALF_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cpp/planner/gpu.h"
#include "lib/engine/cuda_backend.h"

namespace benchmark {

// From libhaste_cuda.so of the same sources.
const haste::CudaBackend& LoadCudaHalf(const char* path);

// The first line of a file of timings: what plans depend on of the GPU.
void PrintGpu(const Gpu&, const haste::CudaProperties&);

// Memory of one call. What it reads is small numbers, which none writes.
class Memory {
 public:
  Memory(const haste::CudaBackend&, const Gpu&);

  // Makes what is read small numbers of this dtype: float16, or any of the others, as at first.
  void FillFor(int32_t dtype);

  // Takes turns through the arenas; Fits: false once a call has more tensors than there is room
  // for.
  void Restart() { read_at_ = written_at_ = 0; }
  void* Read(size_t bytes) { return Take(read_, bytes, &read_at_); }
  void* Write(size_t bytes) { return Take(written_, bytes, &written_at_); }
  void* scratch() const { return scratch_; }
  bool Fits(size_t scratch_bytes) const;

  // What Read's memory has there.
  double At(const void* tensor, int64_t element, int32_t dtype) const;

 private:
  static void* Take(char* arena, size_t bytes, size_t* at);
  void Fill();

  const haste::CudaBackend& backend_;
  const Gpu& gpu_;
  bool is_float16_ = false;
  std::vector<uint32_t> pattern_;
  char *read_, *written_, *scratch_;
  size_t read_at_ = 0, written_at_ = 0;
};

// An element of a tensor in memory of this machine.
double ElementOf(const void* tensor, int64_t element, int32_t dtype);

constexpr int kChecked = 64;  // elements of a result
// Some elements, from the first to the last, of a tensor in the GPU's memory.
std::vector<double> SomeOf(const Gpu&, const void* tensor, int64_t elements, int32_t dtype);
// Of what a call has written, whether some elements of each tensor are the same as the first time,
// when *first is empty.
using Tensors = std::vector<std::pair<void*, int64_t>>;
bool AreSame(const Gpu&, const Tensors&, int32_t dtype, double tolerance,
             std::vector<std::vector<double>>* first);

// Microseconds on the GPU of a call, the median; 0: it failed; kHangs: it does not end. after: the
// GPU is busy while a call is queued, as it is in a training step.
constexpr double kHangs = -1e9;
double MedianMicroseconds(const Gpu&, const std::function<int32_t()>& call, bool after);

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_PLANNER_CUDA_HALF_H_
