#include "frameworks/tf/c_api/op_call.h"

#include <algorithm>

#include "frameworks/tf/c_api/context_executor.h"

namespace haste {
namespace tf {
namespace {

// Scratch memory up to this size is the thread's own: small calls are most frequent, and need it in
// the cache.
constexpr size_t kThreadBytes = 64 << 10;

void ReadShape(const TF_Tensor* tensor, std::vector<int64_t>* shape) {
  shape->resize(TF_NumDims(tensor));
  for (size_t i = 0; i < shape->size(); ++i) (*shape)[i] = TF_Dim(tensor, static_cast<int>(i));
}

}  // namespace

OpCall::~OpCall() {
  if (status_.ok()) return;
  const std::string message = signature_.op + ": " + TF_Message(status_.get());
  status_.Fail(TF_GetCode(status_.get()), message);
  TF_OpKernelContext_Failure(context_, status_.get());
}

bool OpCall::ReadInputs() {
  const size_t count = signature_.inputs.size();
  static thread_local std::vector<std::vector<int64_t>> shapes;  // not allocated in each call
  if (shapes.size() < count) shapes.resize(count);
  inputs_.resize(count);
  kept_.reserve(signature_.outputs.size() + 1);
  for (size_t i = 0; i < count; ++i) {
    TF_Tensor* tensor = nullptr;
    TF_GetInput(context_, static_cast<int>(i), &tensor, status_.get());
    if (!status_.ok()) return false;
    inputs_[i].reset(tensor);
    ReadShape(tensor, &shapes[i]);
  }
  std::string error;
  if (!BindAll(signature_, shapes, &sizes_, &error)) return status_.Invalid(error);
  for (size_t i = 0; i < count; ++i) {
    if (IsAbsent(signature_.inputs[i], shapes[i])) inputs_[i].reset();
  }
  return true;
}

bool OpCall::FindExecutor() {
  if (device_ == HASTE_CPU) {
    UseIntraOpPool(context_, &executor_);
    return true;
  }
  std::string error;
  return UseCudaStream(context_, &executor_, &error) || status_.Fail(TF_FAILED_PRECONDITION, error);
}

void OpCall::LetThreadWait() { tf::LetThreadWait(&executor_); }

void* OpCall::Keep(TF_Tensor* tensor) {
  kept_.emplace_back(tensor);
  return status_.ok() ? TF_TensorData(tensor) : nullptr;
}

void* OpCall::Output(int i) {
  if (!ok() || i < 0) return nullptr;
  const std::vector<int64_t> shape = sizes_.Shape(signature_.outputs[i].dims);
  size_t bytes = TF_DataTypeSize(type_);
  for (int64_t size : shape) bytes *= size;
  return Keep(TF_AllocateOutput(context_, i, type_, shape.data(), static_cast<int>(shape.size()),
                                bytes, status_.get()));
}

void* OpCall::EmptyOutput(int i) {
  if (!ok() || i < 0) return nullptr;
  const int64_t none = 0;
  return Keep(TF_AllocateOutput(context_, i, type_, &none, 1, 0, status_.get()));
}

void* OpCall::OutputInPlace(int i, int input_index, const void** input) {
  if (!ok() || i < 0) return nullptr;
  inputs_[input_index].reset();  // TensorFlow forwards a buffer that it alone refers to
  const std::vector<int64_t> shape = sizes_.Shape(signature_.outputs[i].dims);
  int forwarded = -1;
  void* output = Keep(TF_ForwardInputOrAllocateOutput(context_, &input_index, 1, i, shape.data(),
                                                      static_cast<int>(shape.size()), &forwarded,
                                                      status_.get()));
  if (!status_.ok()) return nullptr;
  *input = output;
  if (forwarded == -1) {
    TF_Tensor* tensor = nullptr;
    TF_GetInput(context_, input_index, &tensor, status_.get());
    *input = Keep(tensor);
  }
  return output;
}

HastePackedWeights* OpCall::Packed(const std::vector<int>& large, const std::vector<int>& small) {
  KeptWeights::Key key = {&signature_, {}};
  std::vector<int> there;
  for (int i : large) {
    if (Input(i) == nullptr) continue;
    key.second.push_back(Input(i));
    there.push_back(i);
  }
  if (there.empty()) return nullptr;
  std::string contents;
  for (int i : small) {
    if (Input(i) == nullptr) continue;
    contents.append(static_cast<const char*>(Input(i)), TF_TensorByteSize(inputs_[i].get()));
  }
  packed_ = KeptWeights::Instance().Find(key, contents, [&] {
    std::vector<Tensor> references;
    for (int i : there) {
      TF_Tensor* tensor = nullptr;
      TF_GetInput(context_, i, &tensor, status_.get());
      references.emplace_back(tensor);
    }
    return references;
  });
  return packed_ == nullptr ? nullptr : packed_->packed.get();
}

void OpCall::ForgetPacked(const std::vector<int>& large) const {
  for (int i : large) {
    if (Input(i) != nullptr) KeptWeights::Instance().Forget(Input(i));
  }
}

void* OpCall::Scratch(size_t bytes) {
  if (device_ == HASTE_CPU && bytes <= kThreadBytes) {
    alignas(64) static thread_local char memory[kThreadBytes];
    return memory;
  }
  const int64_t size = std::max<int64_t>(static_cast<int64_t>(bytes), 1);
  TF_AllocatorAttributes where = {};
  where.struct_size = TF_ALLOCATOR_ATTRIBUTES_STRUCT_SIZE;
  return Keep(TF_AllocateTemp(context_, TF_UINT8, &size, 1, &where, status_.get()));
}

}  // namespace tf
}  // namespace haste
