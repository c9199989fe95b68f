#include "frameworks/xla/ffi_call.h"

#include <thread>
#include <utility>

namespace haste {
namespace xla {
namespace {

// What an operand of no elements points at, where XLA gives it no memory.
const char kNothing = 0;

std::vector<int64_t> ShapeOf(const Buffer& buffer) {
  return std::vector<int64_t>(buffer.dims, buffer.dims + buffer.rank);
}

bool ToDtype(int32_t type, HasteDtype* dtype) {
  switch (type) {
    case kF32: *dtype = HASTE_FLOAT32; return true;
    case kF64: *dtype = HASTE_FLOAT64; return true;
    case kF16: *dtype = HASTE_FLOAT16; return true;
    case kBF16: *dtype = HASTE_BFLOAT16; return true;
    default: return false;
  }
}

}  // namespace

bool FfiCall::Fail(int32_t code, const std::string& message) {
  if (ok()) error_ = api_.CreateError(code, (signature_.op + ": " + message).c_str());
  return false;
}

bool FfiCall::Dtype(HasteDtype* dtype) {
  if (frame_.operands.size != static_cast<int64_t>(signature_.inputs.size()) ||
      frame_.results.size != static_cast<int64_t>(signature_.outputs.size())) {
    return Invalid("there must be " + std::to_string(signature_.inputs.size()) + " operands and " +
                   std::to_string(signature_.outputs.size()) + " results, but there are " +
                   std::to_string(frame_.operands.size) + " and " +
                   std::to_string(frame_.results.size));
  }
  return ToDtype(frame_.results.buffers[0]->dtype, dtype) ||
         Invalid(signature_.outputs[0].name +
                 " must be of float16, bfloat16, float32 or float64, but is of XLA's type " +
                 std::to_string(frame_.results.buffers[0]->dtype));
}

bool FfiCall::ReadOperands() {
  const size_t count = signature_.inputs.size();
  std::vector<std::vector<int64_t>> shapes(count);
  for (size_t i = 0; i < count; ++i) shapes[i] = ShapeOf(*frame_.operands.buffers[i]);
  std::string error;
  if (!BindAll(signature_, shapes, &sizes_, &error)) return Invalid(error);
  inputs_.assign(count, nullptr);
  const int32_t dtype = frame_.results.buffers[0]->dtype;
  for (size_t i = 0; i < count; ++i) {
    const Argument& argument = signature_.inputs[i];
    if (IsAbsent(argument, shapes[i])) continue;
    const Buffer& buffer = *frame_.operands.buffers[i];
    const int32_t type = argument.type == "T" ? dtype : argument.type == "bool" ? kPred : kS64;
    if (buffer.dtype != type) {
      return Invalid(argument.name + " must be of XLA's type " + std::to_string(type) +
                     ", but is of " + std::to_string(buffer.dtype));
    }
    inputs_[i] = buffer.data != nullptr ? buffer.data : &kNothing;
  }
  return true;
}

void FfiCall::Schedule(void* self, void (*task)(void*), void* data) {
  const FfiCall& call = *static_cast<FfiCall*>(self);
  ScheduleArgs args = {{}, call.frame_.context, task, data};
  FfiError* error = call.api_.Ask(kSchedule, &args);
  if (error == nullptr) return;
  call.api_.Destroy(error);
  std::thread(task, data).detach();  // not here: a task may wait for its caller
}

bool FfiCall::FindExecutor() {
  if (device_ == HASTE_CUDA) {
    StreamArgs args = {{}, frame_.context, nullptr};
    error_ = api_.Ask(kStream, &args);
    executor_.stream = args.stream;
    return ok();
  }
  if (!dialect_.counts_threads) return true;  // threads of haste's own
  int64_t threads = 0;
  CountThreadsArgs args = {{}, frame_.context, &threads};
  if (FfiError* error = api_.Ask(kCountThreads, &args)) {
    api_.Destroy(error);
    return true;
  }
  executor_.threads = static_cast<int32_t>(threads);
  executor_.schedule = Schedule;
  executor_.pool = this;
  return true;
}

void* FfiCall::Output(int i) {
  if (!ok() || i < 0) return nullptr;
  const Buffer& buffer = *frame_.results.buffers[i];
  const std::vector<int64_t> shape = ShapeOf(buffer),
                             expected = sizes_.Shape(signature_.outputs[i].dims);
  if (shape == expected && buffer.dtype == frame_.results.buffers[0]->dtype) return buffer.data;
  Invalid("the result " + signature_.outputs[i].name + " must have shape " + ShapeString(expected) +
          " and the others' dtype, but has shape " + ShapeString(shape));
  return nullptr;
}

void* FfiCall::Scratch(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (device_ == HASTE_CPU) {
    HasteStatus error = {};
    if (haste_allocate(HASTE_CPU, bytes, &scratch_, &error) != HASTE_OK) Report(error);
    return scratch_;
  }
  if (!dialect_.device_memory) {
    Fail(HASTE_UNIMPLEMENTED, "XLA of TensorFlow 2.17 gives no scratch memory on a GPU");
    return nullptr;
  }
  // XLA promises no more, although its allocators' blocks begin at multiples of kAlignment.
  constexpr size_t kPromised = 16, kAlignment = 64;  // ours: c_api.h
  scratch_bytes_ = bytes + kAlignment - kPromised;
  AllocateArgs args = {{}, frame_.context, scratch_bytes_, kPromised, nullptr};
  error_ = api_.Ask(kAllocate, &args);
  if (!ok()) return nullptr;
  scratch_ = args.data;
  const uintptr_t at = reinterpret_cast<uintptr_t>(scratch_);
  return static_cast<char*>(scratch_) + (kAlignment - at % kAlignment) % kAlignment;
}

// On a GPU the memory goes back to XLA before the kernels have run: XLA hands it on to what comes
// after them on the same stream.
void FfiCall::FreeScratch() {
  if (scratch_ == nullptr) return;
  if (device_ == HASTE_CPU) {
    haste_free(HASTE_CPU, scratch_, nullptr);
    return;
  }
  FreeArgs args = {{}, frame_.context, scratch_bytes_, scratch_};
  api_.Destroy(api_.Ask(kFree, &args));
}

}  // namespace xla
}  // namespace haste
