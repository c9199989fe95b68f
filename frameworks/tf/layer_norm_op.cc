// Layer normalisation as an op of its own, of each row [F] of each lane:
//
//   HasteLayerNorm:     x [R, K, F], gamma [K, F], beta [K, F] -> y [R, K, F]
//   HasteLayerNormGrad: x, gamma, dy -> dx [R, K, F], dgamma [K, F], dbeta [K, F]
#include <memory>

#include "frameworks/tf/attribute_reader.h"
#include "frameworks/tf/gpu_kernels.h"
#include "frameworks/tf/op_call.h"
#include "frameworks/tf/op_registry.h"
#include "frameworks/tf/tf_status.h"
#include "haste/c_api.h"

namespace haste {
namespace tf {
namespace {

const Signature& ForwardSignature() {
  static const Signature* const signature = new Signature{
      "HasteLayerNorm",
      {{"x", "RKF", "T", false}, {"gamma", "KF", "T", false}, {"beta", "KF", "T", true}},
      {{"y", "RKF", "T", false}}};
  return *signature;
}

const Signature& BackwardSignature() {
  static const Signature* const signature = new Signature{
      "HasteLayerNormGrad",
      {{"x", "RKF", "T", false}, {"gamma", "KF", "T", false}, {"dy", "RKF", "T", false}},
      {{"dx", "RKF", "T", false}, {"dgamma", "KF", "T", false}, {"dbeta", "KF", "T", false}}};
  return *signature;
}

// State of a kernel: one op of a graph.
struct Kernel {
  const Signature* signature;
  HasteDevice device;
  TF_DataType type;
  float epsilon;
};

// Sets the fields that both structs of the C ABI begin with.
template <class Norm>
void Describe(const Kernel& kernel, const OpCall& call, Norm* norm) {
  norm->dtype = ToHasteDtype(kernel.type);
  norm->device = kernel.device;
  norm->rows = call.Size('R');
  norm->lanes = call.Size('K');
  norm->features = call.Size('F');
  norm->epsilon = kernel.epsilon;
}

void Forward(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  OpCall call(*kernel.signature, kernel.device, kernel.type, Sizes(), context);
  if (!call.Begin()) return;
  HasteLayerNorm norm = HASTE_INIT(HasteLayerNorm);
  Describe(kernel, call, &norm);
  norm.gamma = call.Input(1);
  norm.beta = call.Input(2);
  norm.y = call.OutputInPlace(0, 0, &norm.x);
  HasteStatus error = {};
  if (call.ok() && haste_layer_norm(&norm, &call.executor(), &error) != HASTE_OK) {
    call.Report(error);
  }
}

void Backward(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  OpCall call(*kernel.signature, kernel.device, kernel.type, Sizes(), context);
  if (!call.Begin()) return;
  HasteLayerNormGrad norm = HASTE_INIT(HasteLayerNormGrad);
  Describe(kernel, call, &norm);
  norm.x = call.Input(0);
  norm.gamma = call.Input(1);
  norm.dx = call.OutputInPlace(0, 2, &norm.dy);
  norm.dgamma = call.Output(1);
  norm.dbeta = call.Output(2);
  void* workspace = call.Workspace([&](size_t* bytes, HasteStatus* error) {
    return haste_layer_norm_workspace_bytes(&norm, &call.executor(), bytes, error);
  });
  HasteStatus error = {};
  if (call.ok() && haste_layer_norm_grad(&norm, workspace, &call.executor(), &error) != HASTE_OK) {
    call.Report(error);
  }
}

template <HasteDevice kDevice, bool kBackward>
void* Create(TF_OpKernelConstruction* context) {
  auto kernel = std::make_unique<Kernel>();
  kernel->signature = kBackward ? &BackwardSignature() : &ForwardSignature();
  kernel->device = kDevice;
  Status status;
  AttributeReader read(context, &status);
  if (read.Type("T", &kernel->type) && read.Epsilon(&kernel->epsilon)) return kernel.release();
  status.Fail(TF_GetCode(status.get()), kernel->signature->op + ": " + TF_Message(status.get()));
  TF_OpKernelConstruction_Failure(context, status.get());
  return nullptr;
}

void Delete(void* kernel) { delete static_cast<Kernel*>(kernel); }

template <bool kBackward>
void InferShapesOf(TF_ShapeInferenceContext* context, TF_Status* status) {
  InferShapes(kBackward ? BackwardSignature() : ForwardSignature(), Sizes(), context, status);
}

template <HasteDevice kDevice>
void RegisterKernels() {
  RegisterKernel(ForwardSignature().op, kDevice, {Create<kDevice, false>, Forward, Delete});
  RegisterKernel(BackwardSignature().op, kDevice, {Create<kDevice, true>, Backward, Delete});
}

bool Register() {
  RegisterOp(ForwardSignature(), {"epsilon: float = 1e-5"}, InferShapesOf<false>);
  RegisterOp(BackwardSignature(), {"epsilon: float = 1e-5"}, InferShapesOf<true>);
  RegisterKernels<HASTE_CPU>();
  if (GpuKernelsCanRun(nullptr)) RegisterKernels<HASTE_CUDA>();
  return true;
}

const bool registered = Register();

}  // namespace
}  // namespace tf
}  // namespace haste
