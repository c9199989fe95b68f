#include "frameworks/tf/c_api/op_options.h"

#include <string>
#include <vector>

#include "frameworks/tf/c_api/attribute_reader.h"

namespace haste {
namespace tf {
namespace {

// In the order of HasteActivation. The last one, the exponential, only for cells that have it.
std::vector<std::string> ActivationNames(bool exponential) {
  std::vector<std::string> names = {"tanh", "sigmoid", "relu", "hard_sigmoid", "linear"};
  if (exponential) names.push_back("exponential");
  return names;
}

std::string StateNames(const HasteCellInfo& cell) {
  std::string names;
  for (int s = 0; s < cell.states; ++s)
    names += (s > 0 ? ", " : "") + std::string(cell.state_names[s]);
  return names;
}

}  // namespace

bool ReadOptions(TF_OpKernelConstruction* context, RnnOp* op, Status* status) {
  AttributeReader read(context, status);
  const HasteCellInfo& cell = *op->cell;
  RnnOptions& options = op->options;
  HasteRnnConfig& config = options.config;
  TF_DataType type = TF_FLOAT;
  std::vector<float> zoneout;
  const bool int8 = op->int8();  // of inference alone
  if (!read.Type("T", &type) || !read.Bools("reverse", &options.reverse) ||
      !read.Choice("activation", ActivationNames(false), &config.activation) ||
      !read.Choice("recurrent_activation", ActivationNames(cell.exponential),
                   &config.recurrent_activation) ||
      !read.Floats("zoneout", &zoneout) ||
      (!int8 && !read.Float("recurrent_dropout", &config.recurrent_dropout)) ||
      (!int8 && !read.Bool("training", &config.training)) ||
      !read.Bool("zero_output_for_mask", &config.zero_output_for_mask) ||
      !read.String("engine", &options.engine) ||
      (!int8 && !read.Bool("allow_tf32", &config.allow_tf32)) ||
      (!int8 && !op->backward() && !read.Bool("save", &options.save)) ||
      (!op->backward() && !read.Bool("keep_packed", &options.keep_packed)) ||
      (op->kind == Op::kLayerBackward && !read.Bools("wanted", &options.wanted)) ||
      (cell.normalizes && !read.Epsilon(&config.epsilon))) {
    return false;
  }
  config.cell = cell.name;
  config.dtype = ToHasteDtype(type);

  if (zoneout.size() != static_cast<size_t>(cell.states)) {
    return status->Invalid("zoneout must have one rate for each state (" + StateNames(cell) +
                           "), but has " + std::to_string(zoneout.size()));
  }
  // Negated comparisons, so that NaN fails too.
  for (int s = 0; s < cell.states; ++s) {
    if (!(zoneout[s] >= 0.0f && zoneout[s] <= 1.0f)) {
      return status->Invalid(std::string("zoneout of state ") + cell.state_names[s] +
                             " must be in [0, 1], but is " + std::to_string(zoneout[s]));
    }
    if (cell.tied_zoneout && s > 1 && zoneout[s] > 0.0f) {
      return status->Invalid(std::string("zoneout of state ") + cell.state_names[s] +
                             " must be 0, since that of state " + cell.state_names[1] +
                             " is its own, but is " + std::to_string(zoneout[s]));
    }
    config.zoneout[s] = zoneout[s];
  }
  if (!(config.recurrent_dropout >= 0.0f && config.recurrent_dropout < 1.0f)) {
    return status->Invalid("recurrent_dropout must be in [0, 1), but is " +
                           std::to_string(config.recurrent_dropout));
  }
  return true;
}

bool ReadOptions(TF_OpKernelConstruction* context, LayerNormOp* op, Status* status) {
  AttributeReader read(context, status);
  TF_DataType type = TF_FLOAT;
  if (!read.Type("T", &type) || !read.Epsilon(&op->epsilon)) return false;
  op->dtype = ToHasteDtype(type);
  return true;
}

bool ReadOptions(TF_OpKernelConstruction* context, MatMulOp* op, Status* status) {
  AttributeReader read(context, status);
  TF_DataType type = TF_FLOAT;
  if (!read.Type("T", &type)) return false;
  op->dtype = ToHasteDtype(type);
  return true;
}

}  // namespace tf
}  // namespace haste
