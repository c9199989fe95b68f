// While another thread's stream is captured into a graph, calls that allocate may fail and break
// the capture, unless the calling thread declares that they have nothing to do with it.
#ifndef HASTE_LIB_CUDA_HOST_RELAXED_CAPTURE_H_
#define HASTE_LIB_CUDA_HOST_RELAXED_CAPTURE_H_

#include <cuda_runtime.h>

namespace haste {

// Declares that for this thread, as long as the object lives.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_HOST_RELAXED_CAPTURE_H_
