// The ops of products: frameworks/ops/matmul.h.
#include <memory>
#include <utility>

#include "frameworks/ops/matmul.h"
#include "frameworks/tf/c_api/gpu_kernels.h"
#include "frameworks/tf/c_api/op_call.h"
#include "frameworks/tf/c_api/op_options.h"
#include "frameworks/tf/c_api/op_registry.h"
#include "haste/c_api.h"

namespace haste {
namespace tf {
namespace {

template <Form kForm>
const Signature& SignatureOf() {
  return MatMulOp(kForm).signature;
}

void Compute(void* object, TF_OpKernelContext* context) {
  const MatMulOp& op = *static_cast<MatMulOp*>(object);
  OpCall call(op.signature, op.device, op.dtype, Sizes(), context);
  Run(op, &call);
}

template <Form kForm, HasteDevice kDevice>
void* Create(TF_OpKernelConstruction* context) {
  auto op = std::make_unique<MatMulOp>(kForm);
  op->device = kDevice;
  return WithOptions(std::move(op), context);
}

template <Form kForm>
void InferShapesOf(TF_ShapeInferenceContext* context, TF_Status* status) {
  InferShapes(SignatureOf<kForm>(), Sizes(), context, status);
}

template <Form kForm>
void RegisterForm() {
  const Signature& signature = SignatureOf<kForm>();
  RegisterOp(signature, {}, InferShapesOf<kForm>);
  RegisterKernel(signature.op, HASTE_CPU, {Create<kForm, HASTE_CPU>, Compute, DeleteOp<MatMulOp>});
  if (kForm != Form::kInt8 && GpuKernelsCanRun(nullptr)) {
    RegisterKernel(signature.op, HASTE_CUDA,
                   {Create<kForm, HASTE_CUDA>, Compute, DeleteOp<MatMulOp>});
  }
}

bool Register() {
  RegisterForm<Form::kPlain>();
  RegisterForm<Form::kTransposeA>();
  RegisterForm<Form::kTransposeB>();
  RegisterForm<Form::kInt8>();
  return true;
}

const bool registered = Register();

}  // namespace

}  // namespace tf
}  // namespace haste
