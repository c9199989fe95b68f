#include "frameworks/ops/layer_norm.h"

namespace haste {
namespace {

const Signature& SignatureOf(bool gradient) {
  static const Argument x = {"x", "RKF", "T", false}, gamma = {"gamma", "KF", "T", false};
  static const auto* const forward = new Signature{
      "HasteLayerNorm", {x, gamma, {"beta", "KF", "T", true}}, {{"y", "RKF", "T", false}}};
  static const auto* const backward = new Signature{
      "HasteLayerNormGrad",
      {x, gamma, {"dy", "RKF", "T", false}},
      {{"dx", "RKF", "T", false}, {"dgamma", "KF", "T", false}, {"dbeta", "KF", "T", false}}};
  return gradient ? *backward : *forward;
}

}  // namespace

LayerNormOp::LayerNormOp(bool of_gradient)
    : backward(of_gradient), signature(SignatureOf(of_gradient)) {}

}  // namespace haste
