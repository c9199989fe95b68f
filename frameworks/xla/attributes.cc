#include "frameworks/xla/attributes.h"

#include <stdio.h>

#include <vector>

namespace haste {
namespace xla {
namespace {

class Writer {
 public:
  explicit Writer(const Signature& signature) { String("op", signature.op); }

  void String(const std::string& name, const std::string& value) { Add(name, '"' + value + '"'); }
  void Int(const std::string& name, int32_t value) { Add(name, std::to_string(value) + " : i32"); }
  void Float(const std::string& name, float value) {
    char digits[64];
    snprintf(digits, sizeof digits, "%.9e : f32", value);
    Add(name, digits);
  }
  void Flags(const std::string& name, const std::vector<uint8_t>& flags) {
    std::string text;
    for (uint8_t flag : flags) text += flag ? '1' : '0';
    String(name, text);
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  void Add(const std::string& name, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + name + " = " + value;
  }
  std::string text_;
};

std::vector<uint8_t> ToFlags(std::string_view text) {
  std::vector<uint8_t> flags;
  for (char c : text) flags.push_back(c == '1');
  return flags;
}

std::string ZoneoutName(int state) { return "zoneout" + std::to_string(state); }

}  // namespace

std::string WriteAttributes(const RnnOp& op) {
  const HasteRnnConfig& config = op.options.config;
  Writer write(op.signature);
  write.String("engine", op.options.engine);
  write.Flags("reverse", op.options.reverse);
  write.Int("activation", config.activation);
  write.Int("recurrent_activation", config.recurrent_activation);
  write.Int("training", config.training);
  write.Int("zero_output_for_mask", config.zero_output_for_mask);
  for (int s = 0; s < op.cell->states; ++s) write.Float(ZoneoutName(s), config.zoneout[s]);
  write.Float("recurrent_dropout", config.recurrent_dropout);
  write.Int("allow_tf32", config.allow_tf32);
  if (op.cell->normalizes) write.Float("epsilon", config.epsilon);
  if (op.backward()) {
    write.Flags("wanted", op.options.wanted);
  } else {
    write.Int("save", op.options.save);
  }
  return write.text();
}

std::string WriteAttributes(const LayerNormOp& op) {
  Writer write(op.signature);
  write.Float("epsilon", op.epsilon);
  return write.text();
}

std::string WriteAttributes(const MatMulOp& op) { return Writer(op.signature).text(); }

const void* AttributeReader::Find(std::string_view name, int32_t type) const {
  for (int64_t i = 0; i < list_.size; ++i) {
    const ByteSpan& span = *list_.names[i];
    if (list_.types[i] == type && name == std::string_view(span.data, span.size)) {
      return list_.values[i];
    }
  }
  return nullptr;
}

void AttributeReader::String(std::string_view name, std::string_view* value) const {
  const auto* span = static_cast<const ByteSpan*>(Find(name, kStringAttribute));
  if (span != nullptr) *value = std::string_view(span->data, span->size);
}

const void* AttributeReader::Number(std::string_view name, int32_t dtype, const char* expected) {
  const auto* scalar = static_cast<const Scalar*>(Find(name, kScalarAttribute));
  if (scalar == nullptr) return nullptr;
  if (scalar->dtype == dtype) return scalar->value;
  if (error_.empty()) {
    error_ = "the attribute " + std::string(name) + " must be of " + expected +
             ", but is of XLA's type " + std::to_string(scalar->dtype);
  }
  return nullptr;
}

void AttributeReader::Int(std::string_view name, int32_t* value) {
  const void* number = Number(name, kS32, "int32");
  if (number != nullptr) *value = *static_cast<const int32_t*>(number);
}

void AttributeReader::Float(std::string_view name, float* value) {
  const void* number = Number(name, kF32, "float32");
  if (number != nullptr) *value = *static_cast<const float*>(number);
}

void AttributeReader::Read(RnnOp* op) {
  RnnOptions& options = op->options;
  HasteRnnConfig& config = options.config;
  std::string_view engine = "auto", reverse, wanted;
  int32_t save = 0;
  config.cell = op->cell->name;
  config.activation = HASTE_TANH;
  config.recurrent_activation = HASTE_SIGMOID;
  config.epsilon = 1e-5f;
  String("engine", &engine);
  String("reverse", &reverse);
  String("wanted", &wanted);
  Int("activation", &config.activation);
  Int("recurrent_activation", &config.recurrent_activation);
  Int("training", &config.training);
  Int("zero_output_for_mask", &config.zero_output_for_mask);
  for (int s = 0; s < op->cell->states; ++s) Float(ZoneoutName(s), &config.zoneout[s]);
  Float("recurrent_dropout", &config.recurrent_dropout);
  Int("allow_tf32", &config.allow_tf32);
  Float("epsilon", &config.epsilon);
  Int("save", &save);
  options.engine = std::string(engine);
  options.reverse = ToFlags(reverse);
  options.wanted = ToFlags(wanted);
  options.save = save != 0;
}

void AttributeReader::Read(LayerNormOp* op) { Float("epsilon", &op->epsilon); }

}  // namespace xla
}  // namespace haste
