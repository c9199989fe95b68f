// From a kernel's context to its CUDA stream and its thread pool, through TensorFlow's C++ objects.
//
// Each function does what TensorFlow's inline function or virtual call of the same name does, but
// with the numbers of a TfAbi instead of TensorFlow's headers. Arguments are objects of that
// TensorFlow, never null. Calls follow the Itanium C++ ABI: a member function takes `this` first,
// and a struct of one pointer is returned like a pointer.
#ifndef HASTE_FRAMEWORKS_TF_ABI_CONTEXT_WALK_H_
#define HASTE_FRAMEWORKS_TF_ABI_CONTEXT_WALK_H_

#include <functional>
#include <utility>

#include "frameworks/tf/abi/tf_abi.h"

namespace haste {
namespace tf {

template <class T>
const T& Field(const void* object, int offset) {
  return *reinterpret_cast<const T*>(static_cast<const char*>(object) + offset);
}

template <class Result, class... Args>
Result CallVirtual(void* object, int slot, Args... args) {
  using Function = Result (*)(void*, Args...);
  return Field<const Function*>(object, 0)[slot](object, std::move(args)...);
}

// OpKernelContext::params_
inline void* ParamsOf(const TfAbi& abi, const void* context) {
  return Field<void*>(context, abi.context_params);
}

// OpKernelContext::Params::device, a DeviceBase
inline void* DeviceOf(const TfAbi& abi, const void* params) {
  return Field<void*>(params, abi.params_device);
}

// DeviceBase::eigen_cpu_device(), an Eigen::ThreadPoolDevice; nullptr on a GPU.
inline void* CpuDeviceOf(const TfAbi& abi, void* device) {
  if (!CallVirtual<bool>(device, abi.device_has_cpu_device)) return nullptr;
  return CallVirtual<void*>(device, abi.device_cpu_device);
}

// Eigen::ThreadPoolDevice::numThreads(): intra_op_parallelism_threads.
inline int ThreadsOf(const TfAbi& abi, const void* cpu_device) {
  return Field<int>(cpu_device, abi.cpu_device_threads);
}

// Eigen::ThreadPoolDevice::getPool(), an Eigen::ThreadPoolInterface.
inline void* PoolOf(const TfAbi& abi, const void* cpu_device) {
  return Field<void*>(cpu_device, abi.cpu_device_pool);
}

// Eigen::ThreadPoolInterface::Schedule(std::function<void()>)
inline void Schedule(const TfAbi& abi, void* pool, void (*fn)(void*), void* arg) {
  CallVirtual<void, std::function<void()>>(pool, abi.pool_schedule, [fn, arg] { fn(arg); });
}

// OpKernelContext::op_device_context(): that of the op, else the device's; nullptr on a CPU.
inline void* DeviceContextOf(const TfAbi& abi, const void* params) {
  if (void* own = Field<void*>(params, abi.params_device_context)) return own;
  void* info = CallVirtual<void*>(DeviceOf(abi, params), abi.device_accelerator_info);
  return info == nullptr ? nullptr : Field<void*>(info, abi.accelerator_info_context);
}

// DeviceContext::stream(), a stream_executor::Stream
inline void* StreamOf(const TfAbi& abi, void* device_context) {
  return CallVirtual<void*>(device_context, abi.device_context_stream);
}

// The object whose virtual function returns the cudaStream_t: Stream::implementation() up to 2.16,
// the Stream itself from 2.17 on.
inline void* NativeStreamOwner(const TfAbi& abi, void* stream) {
  const bool itself = abi.stream_implementation < 0;
  return itself ? stream : Field<void*>(stream, abi.stream_implementation);
}

// Its platform_specific_stream() or platform_specific_handle().stream: the cudaStream_t.
inline void* NativeStream(const TfAbi& abi, void* owner) {
  return CallVirtual<void*>(owner, abi.stream_native);
}

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_ABI_CONTEXT_WALK_H_
