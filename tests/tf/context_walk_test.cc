// The walk from a kernel's context to its stream and pool, for every row of the table, over objects
// with that row's layout and one virtual function each. Also which row a version gets.
#include "frameworks/tf/abi/context_walk.h"

#include <stdlib.h>
#include <string.h>

#include <functional>
#include <string>

#include "frameworks/tf/abi/tf_abi.h"
#include "tests/lib/check.h"

namespace haste {
namespace tf {
namespace {

constexpr const char* kVersions[] = {"2.16", "2.17", "2.18", "2.19", "2.20", "2.21"};
std::string row;  // that is being tested
#define CHECK(condition) EXPECT_TRUE(condition, "TensorFlow %s", row.c_str())

constexpr int kSlots = 16, kBytes = 512;

void Wrong() { abort(); }

// An object of TensorFlow's: it begins with a vtable, of which only one function may be called.
struct Object {
  Object() {
    for (void*& slot : table) slot = reinterpret_cast<void*>(Wrong);
    Put(0, static_cast<void*>(table));
  }
  template <class T>
  void Put(int offset, T value) {
    memcpy(bytes + offset, &value, sizeof(value));
  }
  template <class Function>
  void Define(int slot, Function* function) {
    table[slot] = reinterpret_cast<void*>(function);
  }
  void* table[kSlots];
  alignas(16) char bytes[kBytes] = {};
};

// What the functions below return, and what they were called on.
Object context, params, device, info, device_context, stream, implementation, cpu_device, pool;
void* answers_to;
int stream_itself;
bool on_cpu;
std::function<void()> scheduled;

void Expect(const Object& object, void* self) { CHECK(self == object.bytes); }

bool HasCpuDevice(void* self) {
  Expect(device, self);
  return on_cpu;
}
void* CpuDevice(void* self) {
  Expect(device, self);
  return cpu_device.bytes;
}
void* AcceleratorInfo(void* self) {
  Expect(device, self);
  return on_cpu ? nullptr : info.bytes;
}
void* StreamOfContext(void* self) {
  Expect(device_context, self);
  return stream.bytes;
}
void* Handle(void* self) {
  CHECK(self == answers_to);
  return &stream_itself;
}
void ScheduleOn(void* self, std::function<void()> fn) {
  Expect(pool, self);
  scheduled = std::move(fn);
}

void Lay(const TfAbi& abi) {
  for (Object* each : {&context, &params, &device, &info, &device_context, &stream, &implementation,
                       &cpu_device, &pool}) {
    *each = Object();
    each->Put(0, static_cast<void*>(each->table));
  }
  context.Put(abi.context_params, static_cast<void*>(params.bytes));
  params.Put(abi.params_device, static_cast<void*>(device.bytes));
  device.Define(abi.device_has_cpu_device, HasCpuDevice);
  device.Define(abi.device_cpu_device, CpuDevice);
  device.Define(abi.device_accelerator_info, AcceleratorInfo);
  info.Put(abi.accelerator_info_context, static_cast<void*>(device_context.bytes));
  device_context.Define(abi.device_context_stream, StreamOfContext);
  const bool shell = abi.stream_implementation >= 0;
  if (shell) stream.Put(abi.stream_implementation, static_cast<void*>(implementation.bytes));
  Object& native = shell ? implementation : stream;
  native.Define(abi.stream_native, Handle);
  answers_to = native.bytes;
  cpu_device.Put(abi.cpu_device_pool, static_cast<void*>(pool.bytes));
  cpu_device.Put(abi.cpu_device_threads, 7);
  pool.Define(abi.pool_schedule, ScheduleOn);
}

void TestCpu(const TfAbi& abi) {
  on_cpu = true;
  void* at = ParamsOf(abi, context.bytes);
  CHECK(DeviceContextOf(abi, at) == nullptr);
  void* found = CpuDeviceOf(abi, DeviceOf(abi, at));
  CHECK(found == cpu_device.bytes);
  CHECK(ThreadsOf(abi, found) == 7);
  CHECK(PoolOf(abi, found) == pool.bytes);
  int calls = 0;
  Schedule(abi, pool.bytes, [](void* arg) { ++*static_cast<int*>(arg); }, &calls);
  CHECK(calls == 0);
  scheduled();
  CHECK(calls == 1);
}

void TestGpu(const TfAbi& abi) {
  on_cpu = false;
  void* at = ParamsOf(abi, context.bytes);
  CHECK(CpuDeviceOf(abi, DeviceOf(abi, at)) == nullptr);
  void* found = DeviceContextOf(abi, at);
  CHECK(found == device_context.bytes);
  void* of_op = StreamOf(abi, found);
  CHECK(NativeStream(abi, NativeStreamOwner(abi, of_op)) == &stream_itself);
  info.Put(abi.accelerator_info_context, static_cast<void*>(nullptr));
  CHECK(DeviceContextOf(abi, at) == nullptr);
  params.Put(abi.params_device_context, static_cast<void*>(device_context.bytes));
  CHECK(DeviceContextOf(abi, at) == device_context.bytes);  // the op's own comes first
}

void TestRows() {
  for (const char* version : kVersions) {
    row = version;
    const TfAbi* abi = FindAbi(row);
    CHECK(abi != nullptr && abi->version == row);
    if (abi == nullptr) continue;
    CHECK(FindAbi(row + ".1-rc0") == abi);
    CHECK(FindAbi(row + "1.0") == nullptr);
    Lay(*abi);
    TestCpu(*abi);
    TestGpu(*abi);
  }
  for (const char* version : {"", "2", "2.1", "2.15.0", "3.16", "12.16"}) {
    row = version;
    CHECK(FindAbi(row) == nullptr);
  }
}

}  // namespace
}  // namespace tf
}  // namespace haste

int main() {
  haste::tf::TestRows();
  return haste_test::Report("context_walk_test");
}
