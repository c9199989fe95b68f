// A float tensor that a program of any device can use: memory on the host, and a copy on the GPU
// when the device is CUDA.
#ifndef HASTE_EXAMPLES_CPP_BUFFER_H_
#define HASTE_EXAMPLES_CPP_BUFFER_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "haste/rnn.h"
#ifdef HASTE_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace example {

inline void Check(const haste::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

#ifdef HASTE_HAVE_CUDA
inline void CheckCuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}
#endif

// "--cuda" among the arguments asks for a GPU.
inline HasteDevice DeviceOf(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--cuda") continue;
    HasteStatus status = {};
    if (haste_cuda_status(&status) == HASTE_OK) return HASTE_CUDA;
    std::fprintf(stderr, "%s\n", status.message);
    std::exit(1);
  }
  return HASTE_CPU;
}

template <class T>
class BufferOf {
 public:
  BufferOf(HasteDevice device, size_t count) : host(count), device_(device) {
#ifdef HASTE_HAVE_CUDA
    if (device_ == HASTE_CUDA) CheckCuda(cudaMalloc(&memory_, bytes() + 1));
#endif
  }
  BufferOf(const BufferOf&) = delete;
  ~BufferOf() {
#ifdef HASTE_HAVE_CUDA
    if (memory_ != nullptr) cudaFree(memory_);
#endif
  }

  // Where the library finds it.
  T* data() { return device_ == HASTE_CUDA ? static_cast<T*>(memory_) : host.data(); }

  void ToDevice() {
#ifdef HASTE_HAVE_CUDA
    if (device_ == HASTE_CUDA) {
      CheckCuda(cudaMemcpy(memory_, host.data(), bytes(), cudaMemcpyHostToDevice));
    }
#endif
  }
  void ToHost() {
#ifdef HASTE_HAVE_CUDA
    if (device_ == HASTE_CUDA) {
      CheckCuda(cudaMemcpy(host.data(), memory_, bytes(), cudaMemcpyDeviceToHost));
    }
#endif
  }

  std::vector<T> host;

 private:
  size_t bytes() const { return host.size() * sizeof(T); }

  const HasteDevice device_;
  void* memory_ = nullptr;
};
using Buffer = BufferOf<float>;

}  // namespace example

#endif  // HASTE_EXAMPLES_CPP_BUFFER_H_
