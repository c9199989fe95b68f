// One run of a kernel: inputs checked against the op's signature, memory, the executor.
#ifndef HASTE_FRAMEWORKS_TF_OP_CALL_H_
#define HASTE_FRAMEWORKS_TF_OP_CALL_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "frameworks/ops/signature.h"
#include "frameworks/tf/attribute_reader.h"
#include "frameworks/tf/tf_status.h"
#include "haste/c_api.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {

// Functions return false after recording an error. The destructor passes the error to TensorFlow.
class OpCall {
 public:
  // `signature` must outlive the call.
  OpCall(const Signature& signature, HasteDevice device, HasteDtype dtype, Sizes sizes,
         TF_OpKernelContext* context)
      : signature_(signature),
        device_(device),
        type_(ToTensorFlowType(dtype)),
        context_(context),
        sizes_(sizes) {}
  ~OpCall();
  OpCall(const OpCall&) = delete;
  OpCall& operator=(const OpCall&) = delete;

  // Reads and checks all inputs, and finds the executor.
  bool Begin() { return ReadInputs() && FindExecutor(); }

  // nullptr if the input was left out, or if the index is negative (no such input).
  const void* Input(int i) const {
    return i < 0 || !inputs_[i] ? nullptr : TF_TensorData(inputs_[i].get());
  }
  // After an error these do nothing and return nullptr, as they do for an index below 0.
  void* Output(int i);
  void* EmptyOutput(int i);
  // An output with the shape of an input, in that input's memory if nothing else uses it. Sets
  // *input to the input's data; Input(input_index) is nullptr after this.
  void* OutputInPlace(int i, int input_index, const void** input);
  // Scratch memory. ask(&bytes, &error), a function of the C ABI, gives its size.
  template <class Ask>
  void* Workspace(const Ask& ask) {
    if (!ok()) return nullptr;
    size_t bytes = 0;
    HasteStatus error = {};
    if (ask(&bytes, &error) == HASTE_OK) return Scratch(bytes);
    Report(error);
    return nullptr;
  }

  int64_t Size(char letter) const { return sizes_[letter]; }
  const HasteExecutor& executor() const { return executor_; }
  bool ok() const { return status_.ok(); }
  bool Invalid(const std::string& message) { return status_.Invalid(message); }
  void Report(const HasteStatus& status) {
    status_.Fail(static_cast<TF_Code>(status.code), status.message);
  }

 private:
  bool ReadInputs();
  bool FindExecutor();
  void* Scratch(size_t bytes);
  void* Keep(TF_Tensor* tensor);

  const Signature& signature_;
  const HasteDevice device_;
  const TF_DataType type_;
  TF_OpKernelContext* const context_;
  Status status_;
  Sizes sizes_;
  HasteExecutor executor_ = HASTE_INIT(HasteExecutor);
  std::vector<Tensor> inputs_;  // nullptr: left out
  std::vector<Tensor> kept_;
};

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_OP_CALL_H_
