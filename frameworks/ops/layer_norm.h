// Layer normalisation as an op of its own, of each row [F] of each lane:
//
//   HasteLayerNorm:     x [R, K, F], gamma [K, F], beta [K, F] -> y [R, K, F]
//   HasteLayerNormGrad: x, gamma, dy -> dx [R, K, F], dgamma [K, F], dbeta [K, F]
#ifndef HASTE_FRAMEWORKS_OPS_LAYER_NORM_H_
#define HASTE_FRAMEWORKS_OPS_LAYER_NORM_H_

#include "frameworks/ops/signature.h"
#include "haste/c_api.h"

namespace haste {

struct LayerNormOp {
  explicit LayerNormOp(bool of_gradient);

  bool backward;
  const Signature& signature;
  HasteDevice device = HASTE_CPU;
  HasteDtype dtype = HASTE_FLOAT32;
  float epsilon = 1e-5f;
};

// Sets the fields that both structs of the C ABI begin with.
template <class Call, class Norm>
void Describe(const LayerNormOp& op, const Call& call, Norm* norm) {
  norm->dtype = op.dtype;
  norm->device = op.device;
  norm->rows = call.Size('R');
  norm->lanes = call.Size('K');
  norm->features = call.Size('F');
  norm->epsilon = op.epsilon;
}

template <class Call>
void RunForward(const LayerNormOp& op, Call* call) {
  HasteLayerNorm norm = HASTE_INIT(HasteLayerNorm);
  Describe(op, *call, &norm);
  norm.gamma = call->Input(1);
  norm.beta = call->Input(2);
  norm.y = call->OutputInPlace(0, 0, &norm.x);
  HasteStatus error = {};
  if (call->ok() && haste_layer_norm(&norm, &call->executor(), &error) != HASTE_OK) {
    call->Report(error);
  }
}

template <class Call>
void RunBackward(const LayerNormOp& op, Call* call) {
  HasteLayerNormGrad norm = HASTE_INIT(HasteLayerNormGrad);
  Describe(op, *call, &norm);
  norm.x = call->Input(0);
  norm.gamma = call->Input(1);
  norm.dx = call->OutputInPlace(0, 2, &norm.dy);
  norm.dgamma = call->Output(1);
  norm.dbeta = call->Output(2);
  void* workspace = call->Workspace([&](size_t* bytes, HasteStatus* error) {
    return haste_layer_norm_workspace_bytes(&norm, &call->executor(), bytes, error);
  });
  HasteStatus error = {};
  if (call->ok() &&
      haste_layer_norm_grad(&norm, workspace, &call->executor(), &error) != HASTE_OK) {
    call->Report(error);
  }
}

// Runs the op, or reports an error to the call. `Call` is as rnn_run.h says.
template <class Call>
void Run(const LayerNormOp& op, Call* call) {
  if (!call->Begin()) return;
  op.backward ? RunBackward(op, call) : RunForward(op, call);
}

}  // namespace haste

#endif  // HASTE_FRAMEWORKS_OPS_LAYER_NORM_H_
