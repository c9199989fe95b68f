// While another thread captures a stream into a graph, allocating calls may fail and invalidate the
// capture, unless the calling thread declares that they do not belong to it.
#pragma once

#include <cuda_runtime.h>

#include "haste/c_api.h"

namespace haste {

// Declares this for the calling thread during the object's lifetime.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Whether the stream is being captured, as far as CUDA tells.
inline bool IsCaptured(const HasteExecutor& executor) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  const auto stream = static_cast<cudaStream_t>(executor.stream);
  if (cudaStreamIsCapturing(stream, &capturing) == cudaSuccess) {
    return capturing != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();
  return true;
}

}  // namespace haste
