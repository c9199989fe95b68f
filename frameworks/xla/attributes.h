// The attributes of a custom call: an op's options, as scalars and strings.
//
//   {op = "HasteLstm", reverse = "01", activation = 0 : i32, zoneout0 = 0.1 : f32, save = 1 : i32,
//   …}
//
// `reverse` and `wanted` have a character, 0 or 1, for each flag. What is left out is as in
// HASTE_INIT, but for activation (tanh), recurrent_activation (sigmoid) and epsilon (1e-5).
#ifndef HASTE_FRAMEWORKS_XLA_ATTRIBUTES_H_
#define HASTE_FRAMEWORKS_XLA_ATTRIBUTES_H_

#include <stdint.h>

#include <string>
#include <string_view>

#include "frameworks/ops/layer_norm.h"
#include "frameworks/ops/matmul.h"
#include "frameworks/ops/rnn_op.h"
#include "frameworks/xla/ffi_abi.h"

namespace haste {
namespace xla {

// The text that XLA parses into the attributes of a call of `op`.
std::string WriteAttributes(const RnnOp& op);
std::string WriteAttributes(const LayerNormOp& op);
std::string WriteAttributes(const MatMulOp& op);

class AttributeReader {
 public:
  explicit AttributeReader(const AttributeList& list) : list_(list) {}

  // Set *value if the attribute is there, and leave it else. A number of another type is an error.
  void String(std::string_view name, std::string_view* value) const;
  void Int(std::string_view name, int32_t* value);
  void Float(std::string_view name, float* value);

  // Set the options that WriteAttributes has written.
  void Read(RnnOp* op);
  void Read(LayerNormOp* op);
  void Read(MatMulOp*) {}

  // The first one, or "".
  const std::string& error() const { return error_; }

 private:
  const void* Find(std::string_view name, int32_t type) const;
  // The value of a scalar, or nullptr.
  const void* Number(std::string_view name, int32_t dtype, const char* expected);

  const AttributeList& list_;
  std::string error_;
};

}  // namespace xla
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_XLA_ATTRIBUTES_H_
