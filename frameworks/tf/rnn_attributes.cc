#include "frameworks/tf/rnn_attributes.h"

#include <algorithm>

namespace haste {
namespace tf {
namespace {

// In the order of HasteActivation.
const char* const kActivations[] = {"tanh", "sigmoid", "relu", "hard_sigmoid", "linear"};

class Reader {
 public:
  Reader(TF_OpKernelConstruction* context, Status* status) : context_(context), status_(status) {}

  bool Bool(const char* name, bool* value) {
    TF_Bool read = 0;
    TF_OpKernelConstruction_GetAttrBool(context_, name, &read, status_->get());
    *value = read != 0;
    return status_->ok();
  }

  bool Bool(const char* name, int32_t* value) {
    bool read = false;
    const bool ok = Bool(name, &read);
    *value = read;
    return ok;
  }

  bool Float(const char* name, float* value) {
    TF_OpKernelConstruction_GetAttrFloat(context_, name, value, status_->get());
    return status_->ok();
  }

  bool String(const char* name, std::string* value) {
    int32_t list_size = 0, total_size = 0;
    TF_OpKernelConstruction_GetAttrSize(context_, name, &list_size, &total_size, status_->get());
    if (!status_->ok()) return false;
    value->resize(total_size);
    TF_OpKernelConstruction_GetAttrString(context_, name, &(*value)[0], value->size(),
                                          status_->get());
    return status_->ok();
  }

  bool Bools(const char* name, std::vector<uint8_t>* values) {
    if (!Resize(name, values)) return false;
    TF_OpKernelConstruction_GetAttrBoolList(context_, name, values->data(),
                                            static_cast<int>(values->size()), status_->get());
    return status_->ok();
  }

  bool Floats(const char* name, std::vector<float>* values) {
    if (!Resize(name, values)) return false;
    TF_OpKernelConstruction_GetAttrFloatList(context_, name, values->data(),
                                             static_cast<int>(values->size()), status_->get());
    return status_->ok();
  }

  bool Activation(const char* name, int32_t* value) {
    std::string text;
    if (!String(name, &text)) return false;
    const auto* found = std::find(std::begin(kActivations), std::end(kActivations), text);
    *value = static_cast<int32_t>(found - kActivations);
    if (found != std::end(kActivations)) return true;
    std::string all;
    for (const char* activation : kActivations)
      all += (all.empty() ? "" : ", ") + std::string(activation);
    return status_->Invalid(std::string(name) + " must be one of " + all + ", but is '" + text +
                            "'");
  }

 private:
  template <class T>
  bool Resize(const char* name, std::vector<T>* values) {
    int32_t list_size = 0, total_size = 0;
    TF_OpKernelConstruction_GetAttrSize(context_, name, &list_size, &total_size, status_->get());
    if (!status_->ok()) return false;
    values->resize(list_size);
    return true;
  }

  TF_OpKernelConstruction* context_;
  Status* status_;
};

std::string StateNames(const HasteCellInfo& cell) {
  std::string names;
  for (int s = 0; s < cell.states; ++s)
    names += (s > 0 ? ", " : "") + std::string(cell.state_names[s]);
  return names;
}

HasteDtype Dtype(TF_DataType type) {
  switch (type) {
    case TF_DOUBLE:
      return HASTE_FLOAT64;
    case TF_HALF:
      return HASTE_FLOAT16;
    case TF_BFLOAT16:
      return HASTE_BFLOAT16;
    default:
      return HASTE_FLOAT32;
  }
}

}  // namespace

bool RnnAttributes::Read(const HasteCellInfo& cell, HasteDevice device, bool has_save,
                         TF_OpKernelConstruction* context, Status* status) {
  Reader read(context, status);
  TF_OpKernelConstruction_GetAttrType(context, "T", &type, status->get());
  std::vector<float> zoneout;
  if (!status->ok() || !read.Bools("reverse", &reverse) ||
      !read.Activation("activation", &config.activation) ||
      !read.Activation("recurrent_activation", &config.recurrent_activation) ||
      !read.Floats("zoneout", &zoneout) ||
      !read.Float("recurrent_dropout", &config.recurrent_dropout) ||
      !read.Bool("training", &config.training) ||
      !read.Bool("zero_output_for_mask", &config.zero_output_for_mask) ||
      !read.String("engine", &engine) || (has_save && !read.Bool("save", &save))) {
    return false;
  }
  config.cell = cell.name;
  config.device = device;
  config.dtype = Dtype(type);

  if (zoneout.size() != static_cast<size_t>(cell.states)) {
    return status->Invalid("zoneout must have one rate for each state (" + StateNames(cell) +
                           "), but has " + std::to_string(zoneout.size()));
  }
  // Written so that NaN fails too.
  for (int s = 0; s < cell.states; ++s) {
    if (!(zoneout[s] >= 0.0f && zoneout[s] <= 1.0f)) {
      return status->Invalid(std::string("zoneout of state ") + cell.state_names[s] +
                             " must be in [0, 1], but is " + std::to_string(zoneout[s]));
    }
    config.zoneout[s] = zoneout[s];
    draws |= zoneout[s] > 0.0f;
  }
  if (!(config.recurrent_dropout >= 0.0f && config.recurrent_dropout < 1.0f)) {
    return status->Invalid("recurrent_dropout must be in [0, 1), but is " +
                           std::to_string(config.recurrent_dropout));
  }
  draws = config.training != 0 && (draws || config.recurrent_dropout > 0.0f);
  return true;
}

HasteRnnConfig RnnAttributes::Config(int64_t batch, int64_t time, int64_t lanes,
                                     int64_t hidden) const {
  HasteRnnConfig result = config;
  result.engine = engine.c_str();
  result.reverse = reverse.data();
  result.batch = batch;
  result.time = time;
  result.lanes = lanes;
  result.hidden = hidden;
  return result;
}

}  // namespace tf
}  // namespace haste
