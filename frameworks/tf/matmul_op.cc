// Products of matrices, by haste_gemm. Each op's gradients are products of the other two.
//
//   HasteMatMul:           a [R, C],  b [C, W] -> a·b   [R, W]
//   HasteMatMulTransposeA: a [R, C],  b [R, W] -> aᵀ·b  [C, W]
//   HasteMatMulTransposeB: a [R, W],  b [C, W] -> a·bᵀ  [R, C]
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

enum class Form { kPlain, kTransposeA, kTransposeB };

template <Form kForm>
const Signature& SignatureOf() {
  constexpr bool kOfA = kForm == Form::kTransposeA, kOfB = kForm == Form::kTransposeB;
  static const Signature* const signature =
      new Signature{kOfA   ? "HasteMatMulTransposeA"
                    : kOfB ? "HasteMatMulTransposeB"
                           : "HasteMatMul",
                    {{"a", kOfB ? "RW" : "RC", "T", false}, {"b", kOfA ? "RW" : "CW", "T", false}},
                    {{"product",
                      kOfA   ? "CW"
                      : kOfB ? "RC"
                             : "RW",
                      "T", false}}};
  return *signature;
}

// State of a kernel: one op of a graph.
struct Kernel {
  HasteDevice device;
  TF_DataType type;
};

template <Form kForm>
void Compute(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  OpCall call(SignatureOf<kForm>(), kernel.device, kernel.type, Sizes(), context);
  if (!call.Begin()) return;
  const int64_t rows = call.Size('R'), features = call.Size('C'), columns = call.Size('W');
  HasteGemm gemm = HASTE_INIT(HasteGemm);
  gemm.dtype = ToHasteDtype(kernel.type);
  gemm.device = kernel.device;
  gemm.m = kForm == Form::kTransposeA ? features : rows;
  gemm.n = kForm == Form::kTransposeB ? features : columns;
  gemm.k = kForm == Form::kPlain ? features : kForm == Form::kTransposeA ? rows : columns;
  gemm.a = call.Input(0);
  gemm.a_row = kForm == Form::kTransposeA ? 1 : gemm.k;
  gemm.a_col = kForm == Form::kTransposeA ? gemm.m : 1;
  gemm.b = call.Input(1);
  gemm.b_row = kForm == Form::kTransposeB ? 1 : gemm.n;
  gemm.b_col = kForm == Form::kTransposeB ? gemm.k : 1;
  gemm.c = call.Output(0);
  gemm.c_row = gemm.n;
  void* workspace = call.Workspace([&](size_t* bytes, HasteStatus* error) {
    return haste_gemm_workspace_bytes(&gemm, bytes, error);
  });
  HasteStatus error = {};
  if (call.ok() && haste_gemm(&gemm, workspace, &call.executor(), &error) != HASTE_OK) {
    call.Report(error);
  }
}

template <Form kForm, HasteDevice kDevice>
void* Create(TF_OpKernelConstruction* context) {
  auto kernel = std::make_unique<Kernel>();
  kernel->device = kDevice;
  Status status;
  AttributeReader read(context, &status);
  if (read.Type("T", &kernel->type)) return kernel.release();
  status.Fail(TF_GetCode(status.get()), SignatureOf<kForm>().op + ": " + TF_Message(status.get()));
  TF_OpKernelConstruction_Failure(context, status.get());
  return nullptr;
}

void Delete(void* kernel) { delete static_cast<Kernel*>(kernel); }

template <Form kForm>
void InferShapesOf(TF_ShapeInferenceContext* context, TF_Status* status) {
  InferShapes(SignatureOf<kForm>(), Sizes(), context, status);
}

template <Form kForm>
void RegisterForm() {
  const Signature& signature = SignatureOf<kForm>();
  RegisterOp(signature, {}, InferShapesOf<kForm>);
  RegisterKernel(signature.op, HASTE_CPU, {Create<kForm, HASTE_CPU>, Compute<kForm>, Delete});
  if (GpuKernelsCanRun(nullptr)) {
    RegisterKernel(signature.op, HASTE_CUDA, {Create<kForm, HASTE_CUDA>, Compute<kForm>, Delete});
  }
}

bool Register() {
  RegisterForm<Form::kPlain>();
  RegisterForm<Form::kTransposeA>();
  RegisterForm<Form::kTransposeB>();
  return true;
}

const bool registered = Register();

}  // namespace
}  // namespace tf
}  // namespace haste
