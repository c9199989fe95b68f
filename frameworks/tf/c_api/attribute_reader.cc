#include "frameworks/tf/c_api/attribute_reader.h"

#include <algorithm>
#include <cmath>

namespace haste {
namespace tf {

HasteDtype ToHasteDtype(TF_DataType type) {
  switch (type) {
    case TF_DOUBLE: return HASTE_FLOAT64;
    case TF_HALF: return HASTE_FLOAT16;
    case TF_BFLOAT16: return HASTE_BFLOAT16;
    default: return HASTE_FLOAT32;
  }
}

TF_DataType ToTensorFlowType(HasteDtype dtype) {
  switch (dtype) {
    case HASTE_FLOAT64: return TF_DOUBLE;
    case HASTE_FLOAT16: return TF_HALF;
    case HASTE_BFLOAT16: return TF_BFLOAT16;
    default: return TF_FLOAT;
  }
}

bool AttributeReader::Type(const char* name, TF_DataType* value) {
  TF_OpKernelConstruction_GetAttrType(context_, name, value, status_->get());
  return status_->ok();
}

bool AttributeReader::Bool(const char* name, bool* value) {
  TF_Bool read = 0;
  TF_OpKernelConstruction_GetAttrBool(context_, name, &read, status_->get());
  *value = read != 0;
  return status_->ok();
}

bool AttributeReader::Bool(const char* name, int32_t* value) {
  bool read = false;
  const bool ok = Bool(name, &read);
  *value = read;
  return ok;
}

bool AttributeReader::Float(const char* name, float* value) {
  TF_OpKernelConstruction_GetAttrFloat(context_, name, value, status_->get());
  return status_->ok();
}

bool AttributeReader::String(const char* name, std::string* value) {
  int32_t list_size = 0, total_size = 0;
  TF_OpKernelConstruction_GetAttrSize(context_, name, &list_size, &total_size, status_->get());
  if (!status_->ok()) return false;
  value->resize(total_size);
  TF_OpKernelConstruction_GetAttrString(context_, name, &(*value)[0], value->size(),
                                        status_->get());
  return status_->ok();
}

bool AttributeReader::Bools(const char* name, std::vector<uint8_t>* values) {
  if (!Resize(name, values)) return false;
  TF_OpKernelConstruction_GetAttrBoolList(context_, name, values->data(),
                                          static_cast<int>(values->size()), status_->get());
  return status_->ok();
}

bool AttributeReader::Floats(const char* name, std::vector<float>* values) {
  if (!Resize(name, values)) return false;
  TF_OpKernelConstruction_GetAttrFloatList(context_, name, values->data(),
                                           static_cast<int>(values->size()), status_->get());
  return status_->ok();
}

bool AttributeReader::Choice(const char* name, const std::vector<std::string>& choices,
                             int32_t* value) {
  std::string text;
  if (!String(name, &text)) return false;
  const auto found = std::find(choices.begin(), choices.end(), text);
  *value = static_cast<int32_t>(found - choices.begin());
  if (found != choices.end()) return true;
  std::string all;
  for (const std::string& choice : choices) all += (all.empty() ? "" : ", ") + choice;
  return status_->Invalid(std::string(name) + " must be one of " + all + ", but is '" + text + "'");
}

bool AttributeReader::Epsilon(float* value) {
  if (!Float("epsilon", value)) return false;
  if (*value > 0.0f && std::isfinite(*value)) return true;
  return status_->Invalid("epsilon must be a positive number, but is " + std::to_string(*value));
}

template <class T>
bool AttributeReader::Resize(const char* name, std::vector<T>* values) {
  int32_t list_size = 0, total_size = 0;
  TF_OpKernelConstruction_GetAttrSize(context_, name, &list_size, &total_size, status_->get());
  if (!status_->ok()) return false;
  values->resize(list_size);
  return true;
}

}  // namespace tf
}  // namespace haste
