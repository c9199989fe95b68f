// The ops of layer normalisation: frameworks/ops/layer_norm.h.
#include <memory>
#include <utility>

#include "frameworks/ops/layer_norm.h"
#include "frameworks/tf/c_api/gpu_kernels.h"
#include "frameworks/tf/c_api/op_call.h"
#include "frameworks/tf/c_api/op_options.h"
#include "frameworks/tf/c_api/op_registry.h"
#include "haste/c_api.h"

namespace haste {
namespace tf {
namespace {

const Signature& SignatureOf(bool gradient) { return LayerNormOp(gradient).signature; }

void Compute(void* object, TF_OpKernelContext* context) {
  const LayerNormOp& op = *static_cast<LayerNormOp*>(object);
  OpCall call(op.signature, op.device, op.dtype, Sizes(), context);
  Run(op, &call);
}

template <HasteDevice kDevice, bool kGradient>
void* Create(TF_OpKernelConstruction* context) {
  auto op = std::make_unique<LayerNormOp>(kGradient);
  op->device = kDevice;
  return WithOptions(std::move(op), context);
}

template <bool kGradient>
void InferShapesOf(TF_ShapeInferenceContext* context, TF_Status* status) {
  InferShapes(SignatureOf(kGradient), Sizes(), context, status);
}

template <HasteDevice kDevice>
void RegisterKernels() {
  RegisterKernel(SignatureOf(false).op, kDevice,
                 {Create<kDevice, false>, Compute, DeleteOp<LayerNormOp>});
  RegisterKernel(SignatureOf(true).op, kDevice,
                 {Create<kDevice, true>, Compute, DeleteOp<LayerNormOp>});
}

bool Register() {
  RegisterOp(SignatureOf(false), {"epsilon: float = 1e-5"}, InferShapesOf<false>);
  RegisterOp(SignatureOf(true), {"epsilon: float = 1e-5"}, InferShapesOf<true>);
  RegisterKernels<HASTE_CPU>();
  if (GpuKernelsCanRun(nullptr)) RegisterKernels<HASTE_CUDA>();
  return true;
}

const bool registered = Register();

}  // namespace

}  // namespace tf
}  // namespace haste
