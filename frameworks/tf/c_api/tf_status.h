// Owners for the objects of TensorFlow's C API.
#ifndef HASTE_FRAMEWORKS_TF_C_API_TF_STATUS_H_
#define HASTE_FRAMEWORKS_TF_C_API_TF_STATUS_H_

#include <memory>
#include <string>

#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"

namespace haste {
namespace tf {

template <auto kDelete>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    kDelete(object);
  }
};

using Tensor = std::unique_ptr<TF_Tensor, Deleter<TF_DeleteTensor>>;
using ShapeHandle = std::unique_ptr<TF_ShapeHandle, Deleter<TF_DeleteShapeHandle>>;
using DimensionHandle = std::unique_ptr<TF_DimensionHandle, Deleter<TF_DeleteDimensionHandle>>;

class Status {
 public:
  Status() : status_(TF_NewStatus()) {}
  TF_Status* get() const { return status_.get(); }
  bool ok() const { return TF_GetCode(get()) == TF_OK; }

  // Records the error and returns false, for `return status.Fail(...)`.
  bool Fail(TF_Code code, const std::string& message) {
    TF_SetStatus(get(), code, message.c_str());
    return false;
  }
  bool Invalid(const std::string& message) { return Fail(TF_INVALID_ARGUMENT, message); }

 private:
  std::unique_ptr<TF_Status, Deleter<TF_DeleteStatus>> status_;
};

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_C_API_TF_STATUS_H_
