// One call of a handler by XLA: operands checked against the op's signature, memory, the executor.
#ifndef HASTE_FRAMEWORKS_XLA_FFI_CALL_H_
#define HASTE_FRAMEWORKS_XLA_FFI_CALL_H_

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <utility>
#include <vector>

#include "frameworks/ops/call.h"
#include "frameworks/xla/ffi_abi.h"
#include "haste/c_api.h"

namespace haste {
namespace xla {

// Functions return false after recording an error, which `error` then holds.
class FfiCall : public Call<FfiCall> {
 public:
  // All must outlive the call.
  FfiCall(const Signature& signature, HasteDevice device, Sizes sizes, const CallFrame& frame,
          const Dialect& dialect)
      : Call(signature, device, std::move(sizes)),
        frame_(frame),
        dialect_(dialect),
        api_(frame.api, dialect) {}
  ~FfiCall() { FreeScratch(); }

  // The dtype of the op; false unless the results have one of ours.
  bool Dtype(HasteDtype* dtype);

  // Checks all operands, and finds the executor.
  bool Begin() { return ReadOperands() && FindExecutor(); }

  // nullptr if the operand was left out, or if the index is negative (no such operand).
  const void* Input(int i) const { return i < 0 ? nullptr : inputs_[i]; }
  // After an error these do nothing and return nullptr, as they do for an index below 0.
  void* Output(int i);
  void EmptyOutput(int) const {}
  // XLA may have put both into one memory; if not, both are there.
  void* OutputInPlace(int i, int input_index, const void** input) {
    *input = Input(input_index);
    return Output(i);
  }

  // XLA does not say whether an operand's memory still holds what it held before.
  HastePackedWeights* Packed(const std::vector<int>&, const std::vector<int>&) { return nullptr; }
  void ForgetPacked(const std::vector<int>&) const {}
  // Nor does it say which pool its threads are of.
  void LetThreadWait() const {}

  bool ok() const { return error_ == nullptr; }
  bool Invalid(const std::string& message) { return Fail(HASTE_INVALID_ARGUMENT, message); }
  void Report(const HasteStatus& status) { Fail(status.code, status.message); }
  FfiError* error() const { return error_; }

 private:
  friend Call<FfiCall>;

  bool Fail(int32_t code, const std::string& message);
  bool ReadOperands();
  bool FindExecutor();
  void* Scratch(size_t bytes);
  void FreeScratch();
  static void Schedule(void* self, void (*task)(void*), void* data);

  const CallFrame& frame_;
  const Dialect& dialect_;
  const Api api_;
  std::vector<const void*> inputs_;  // nullptr: left out
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  FfiError* error_ = nullptr;
};

}  // namespace xla
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_XLA_FFI_CALL_H_
