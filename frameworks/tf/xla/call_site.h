// What an op becomes where XLA compiles it: one custom call of the handlers in frameworks/xla.
#ifndef HASTE_FRAMEWORKS_TF_XLA_CALL_SITE_H_
#define HASTE_FRAMEWORKS_TF_XLA_CALL_SITE_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "frameworks/ops/layer_norm.h"
#include "frameworks/ops/matmul.h"
#include "frameworks/ops/rnn_op.h"
#include "frameworks/ops/signature.h"
#include "frameworks/tf/xla/xla_abi.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {

class CallSite {
 public:
  explicit CallSite(const RnnOp& op);
  explicit CallSite(const LayerNormOp& op);
  explicit CallSite(const MatMulOp& op);

  // Emits the call, with its operands the inputs of `context`; or reports an error to it.
  void Emit(const XlaFunctions& functions, TF_OpKernelContext* context) const;

 private:
  using Shapes = std::vector<std::vector<int64_t>>;

  CallSite(const Signature& signature, Sizes sizes, HasteDtype dtype, std::string attributes);
  bool InferShapes(TF_OpKernelContext* context, Shapes* inputs, Shapes* outputs) const;
  void EmitIn(const XlaFunctions& functions, void* context, const Shapes& inputs,
              const Shapes& outputs) const;
  int TypeOf(const Argument& argument) const;

  const Signature& signature_;
  const Sizes sizes_;
  const HasteDtype dtype_;
  const std::string attributes_;
  std::vector<bool> left_out_;  // outputs of shape [0]
  std::vector<XlaAlias> aliases_;
};

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_XLA_CALL_SITE_H_
