// What TensorFlow's C API does not give: the CUDA stream and the intra-op thread pool of a kernel.
//
// Compiled once for each TensorFlow minor version against that version's C++ headers, because
// the layout of the classes below moves between them. Only inline and virtual functions are
// called, so that the library asks TensorFlow for no symbol; shim_loader.cc loads it.
#define EIGEN_USE_THREADS

#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#if __has_include("xla/stream_executor/stream.h")
#include "xla/stream_executor/stream.h"
#else
#include "tensorflow/compiler/xla/stream_executor/stream.h"
#endif

#if __has_include("xla/stream_executor/stream_executor_internal.h")
#include "xla/stream_executor/stream_executor_internal.h"
#endif

#define HASTE_SHIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

const Eigen::ThreadPoolDevice* CpuDevice(void* op_kernel_context) {
  auto* context = reinterpret_cast<tensorflow::OpKernelContext*>(op_kernel_context);
  tensorflow::DeviceBase* device = context->device();
  return device->has_eigen_cpu_device() ? device->eigen_cpu_device() : nullptr;
}

// Up to 2.16, Stream is a shell around an implementation and platform_specific_handle() is
// compiled into TensorFlow; the implementation's own function is virtual.
template <class Stream>
auto NativeStream(Stream* stream, int)
    -> decltype(stream->implementation()->platform_specific_stream()) {
  return stream->implementation()->platform_specific_stream();
}

template <class Stream>
void* NativeStream(Stream* stream, long) {
  return stream->platform_specific_handle().stream;
}

}  // namespace

// The cudaStream_t that the kernel's work is ordered on; nullptr on a CPU.
HASTE_SHIM_EXPORT void* haste_tf_cuda_stream(void* op_kernel_context) {
  auto* context = reinterpret_cast<tensorflow::OpKernelContext*>(op_kernel_context);
  auto* device_context = context->op_device_context();
  if (device_context == nullptr || device_context->stream() == nullptr) return nullptr;
  return NativeStream(device_context->stream(), 0);
}

// Threads that the kernel may keep busy: intra_op_parallelism_threads.
HASTE_SHIM_EXPORT int haste_tf_num_threads(void* op_kernel_context) {
  const Eigen::ThreadPoolDevice* device = CpuDevice(op_kernel_context);
  return device == nullptr ? 0 : device->numThreads();
}

// The intra-op pool, for haste_tf_schedule; nullptr where the device has none.
HASTE_SHIM_EXPORT void* haste_tf_pool(void* op_kernel_context) {
  const Eigen::ThreadPoolDevice* device = CpuDevice(op_kernel_context);
  return device == nullptr ? nullptr : device->getPool();
}

// Runs fn(arg) on another thread of `pool`.
HASTE_SHIM_EXPORT void haste_tf_schedule(void* pool, void (*fn)(void*), void* arg) {
  static_cast<Eigen::ThreadPoolInterface*>(pool)->Schedule([fn, arg] { fn(arg); });
}
