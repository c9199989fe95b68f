// Reads the attributes of an op when TensorFlow constructs a kernel.
#ifndef HASTE_FRAMEWORKS_TF_C_API_ATTRIBUTE_READER_H_
#define HASTE_FRAMEWORKS_TF_C_API_ATTRIBUTE_READER_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "frameworks/tf/c_api/tf_status.h"
#include "haste/c_api.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {

HasteDtype ToHasteDtype(TF_DataType type);
TF_DataType ToTensorFlowType(HasteDtype dtype);

// Every function returns false and sets the status if it fails.
class AttributeReader {
 public:
  AttributeReader(TF_OpKernelConstruction* context, Status* status)
      : context_(context), status_(status) {}

  bool Type(const char* name, TF_DataType* value);
  bool Bool(const char* name, bool* value);
  bool Bool(const char* name, int32_t* value);
  bool Float(const char* name, float* value);
  bool String(const char* name, std::string* value);
  bool Bools(const char* name, std::vector<uint8_t>* values);
  bool Floats(const char* name, std::vector<float>* values);
  // The index of the attribute's text in `choices`.
  bool Choice(const char* name, const std::vector<std::string>& choices, int32_t* value);
  // A positive number.
  bool Epsilon(float* value);

 private:
  template <class T>
  bool Resize(const char* name, std::vector<T>* values);

  TF_OpKernelConstruction* context_;
  Status* status_;
};

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_C_API_ATTRIBUTE_READER_H_
