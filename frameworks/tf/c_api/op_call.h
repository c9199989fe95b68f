// One run of a kernel: inputs checked against the op's signature, memory, the executor.
#ifndef HASTE_FRAMEWORKS_TF_C_API_OP_CALL_H_
#define HASTE_FRAMEWORKS_TF_C_API_OP_CALL_H_

#include <stdint.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frameworks/ops/call.h"
#include "frameworks/tf/c_api/attribute_reader.h"
#include "frameworks/tf/c_api/kept_weights.h"
#include "frameworks/tf/c_api/tf_status.h"
#include "haste/c_api.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {

// Functions return false after recording an error. The destructor passes the error to TensorFlow.
class OpCall : public Call<OpCall> {
 public:
  OpCall(const Signature& signature, HasteDevice device, HasteDtype dtype, Sizes sizes,
         TF_OpKernelContext* context)
      : Call(signature, device, std::move(sizes)),
        type_(ToTensorFlowType(dtype)),
        context_(context) {}
  ~OpCall();

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

  // Where weights stay packed for later calls (kept_weights.h), or nullptr. large: the inputs that
  // are recognised by their memory; small: by their contents.
  HastePackedWeights* Packed(const std::vector<int>& large, const std::vector<int>& small);
  void ForgetPacked(const std::vector<int>& large) const;
  // Says that the next call is likely near. If the op runs on TensorFlow's pool, a thread of it
  // then waits.
  void LetThreadWait();

  bool ok() const { return status_.ok(); }
  bool Invalid(const std::string& message) { return status_.Invalid(message); }
  void Report(const HasteStatus& status) {
    status_.Fail(static_cast<TF_Code>(status.code), status.message);
  }

 private:
  friend Call<OpCall>;

  bool ReadInputs();
  bool FindExecutor();
  void* Scratch(size_t bytes);
  void* Keep(TF_Tensor* tensor);

  const TF_DataType type_;
  TF_OpKernelContext* const context_;
  Status status_;
  std::vector<Tensor> inputs_;  // nullptr: left out
  std::vector<Tensor> kept_;
  std::shared_ptr<KeptWeights::Entry> packed_;
};

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_C_API_OP_CALL_H_
