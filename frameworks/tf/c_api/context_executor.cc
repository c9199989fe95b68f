#include "frameworks/tf/c_api/context_executor.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frameworks/tf/abi/context_walk.h"
#include "frameworks/tf/abi/tf_abi.h"
#include "frameworks/tf/c_api/waiting_thread.h"

namespace haste {
namespace tf {
namespace {

constexpr int kMaxThreads = 4096;

// Whether memory at an address can be read. mincore checks the page without touching it and fails
// with ENOMEM if there is none. Other errors mean that the system does not support the query.
bool Readable(const void* address) {
  static const uintptr_t page = sysconf(_SC_PAGESIZE);
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  unsigned char persistent;
  return at >= page && at % alignof(void*) == 0 &&
         (mincore(reinterpret_cast<void*>(at / page * page), 1, &persistent) == 0 ||
          errno != ENOMEM);
}

// Whether the pointer is to an object with a virtual function in `slot`: the entry of its vtable
// points into a library.
bool HasVirtual(const void* object, int slot) {
  if (!Readable(object)) return false;
  void* const* table = Field<void* const*>(object, 0);
  Dl_info info;
  return Readable(table + slot) && dladdr(table[slot], &info) != 0;
}

bool ReadableField(const void* object, int offset) {
  return Readable(static_cast<const char*>(object) + offset);
}

// The device of the context; nullptr if the row cannot be right.
void* CheckedDevice(const TfAbi& abi, const void* context) {
  if (!ReadableField(context, abi.context_params)) return nullptr;
  const void* params = ParamsOf(abi, context);
  if (!ReadableField(params, abi.params_device)) return nullptr;
  void* device = DeviceOf(abi, params);
  const bool right = HasVirtual(device, abi.device_accelerator_info) &&
                     HasVirtual(device, abi.device_has_cpu_device) &&
                     HasVirtual(device, abi.device_cpu_device);
  return right ? device : nullptr;
}

// A wrong row of the table would crash. These follow the same pointers as the functions below, and
// check each one first.
bool CpuRowFits(const TfAbi& abi, const void* context) {
  void* device = CheckedDevice(abi, context);
  if (device == nullptr) return false;
  const void* cpu_device = CpuDeviceOf(abi, device);
  if (cpu_device == nullptr) return true;
  if (!ReadableField(cpu_device, abi.cpu_device_pool)) return false;
  const int threads = ThreadsOf(abi, cpu_device);
  return threads >= 1 && threads <= kMaxThreads &&
         HasVirtual(PoolOf(abi, cpu_device), abi.pool_schedule);
}

bool GpuRowFits(const TfAbi& abi, const void* context) {
  if (CheckedDevice(abi, context) == nullptr) return false;
  const void* params = ParamsOf(abi, context);
  if (!ReadableField(params, abi.params_device_context)) return false;
  void* device_context = DeviceContextOf(abi, params);
  if (!HasVirtual(device_context, abi.device_context_stream)) return false;
  void* stream = StreamOf(abi, device_context);
  if (!Readable(stream)) return false;
  if (abi.stream_implementation >= 0 && !ReadableField(stream, abi.stream_implementation)) {
    return false;
  }
  return HasVirtual(NativeStreamOwner(abi, stream), abi.stream_native);
}

std::string MisfitError(const TfAbi& abi) {
  return std::string("TensorFlow's C++ objects are not laid out as haste_keras's row for ") +
         abi.version + " says; set HASTE_TF_ABI to the version that this TensorFlow is built from";
}

void Warn(const std::string& error) {
  if (!FirstToSay()) return;
  fprintf(stderr, "%s. Until then CPU ops run on threads of haste_keras's own.\n", error.c_str());
}

void ScheduleOnPool(void* pool, void (*run)(void*), void* arg) {
  Schedule(*RunningAbi(), pool, run, arg);
}

void ScheduleAndWait(void* pool, void (*run)(void*), void* arg) {
  ScheduleOnWaitingThread(ScheduleOnPool, pool, run, arg);
}

}  // namespace

void UseIntraOpPool(TF_OpKernelContext* context, HasteExecutor* executor) {
  const TfAbi* abi = RunningAbi();
  if (abi == nullptr) return Warn(AbiError());
  static const bool fits = CpuRowFits(*abi, context);
  if (!fits) return Warn(MisfitError(*abi));
  const void* cpu_device = CpuDeviceOf(*abi, DeviceOf(*abi, ParamsOf(*abi, context)));
  if (cpu_device == nullptr) return;
  executor->threads = ThreadsOf(*abi, cpu_device);
  executor->pool = PoolOf(*abi, cpu_device);
  executor->schedule = ScheduleOnPool;
}

void LetThreadWait(HasteExecutor* executor) {
  if (executor->schedule == ScheduleOnPool) executor->schedule = ScheduleAndWait;
}

bool UseCudaStream(TF_OpKernelContext* context, HasteExecutor* executor, std::string* error) {
  const TfAbi* abi = RunningAbi();
  if (abi == nullptr) {
    *error = AbiError();
    return false;
  }
  static const bool fits = GpuRowFits(*abi, context);
  if (!fits) {
    *error = MisfitError(*abi);
    return false;
  }
  void* stream = StreamOf(*abi, DeviceContextOf(*abi, ParamsOf(*abi, context)));
  executor->stream = NativeStream(*abi, NativeStreamOwner(*abi, stream));
  if (executor->stream == nullptr) *error = "TensorFlow's GPU device has no CUDA stream";
  return executor->stream != nullptr;
}

}  // namespace tf
}  // namespace haste
