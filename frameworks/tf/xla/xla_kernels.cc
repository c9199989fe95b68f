// Kernels of the ops for the devices on which XLA compiles a graph: instead of computing they emit
// HLO.
#include "frameworks/tf/xla/xla_kernels.h"

#include <memory>
#include <string>
#include <utility>

#include "frameworks/tf/c_api/gpu_kernels.h"
#include "frameworks/tf/c_api/op_options.h"
#include "frameworks/tf/c_api/op_registry.h"
#include "frameworks/tf/xla/call_site.h"
#include "frameworks/tf/xla/xla_abi.h"
#include "frameworks/xla/handler.h"

namespace haste {
namespace tf {
namespace {

template <class AnyOp>
void* MakeSite(std::unique_ptr<AnyOp> op, TF_OpKernelConstruction* context) {
  const std::unique_ptr<AnyOp> with_options(WithOptions(std::move(op), context));
  return with_options == nullptr ? nullptr : new CallSite(*with_options);
}

template <int kCell, Op kOp>
void* CreateRnn(TF_OpKernelConstruction* context) {
  return MakeSite(std::make_unique<RnnOp>(kOp, *haste_cell(kCell)), context);
}
template <bool kGradient>
void* CreateLayerNorm(TF_OpKernelConstruction* context) {
  return MakeSite(std::make_unique<LayerNormOp>(kGradient), context);
}
template <Form kForm>
void* CreateMatMul(TF_OpKernelConstruction* context) {
  return MakeSite(std::make_unique<MatMulOp>(kForm), context);
}

void Compile(void* site, TF_OpKernelContext* context) {
  static_cast<CallSite*>(site)->Emit(*RunningXla(nullptr), context);
}

void Register(const std::string& op, const char* device,
              void* (*create)(TF_OpKernelConstruction*)) {
  RegisterKernel(op, device, {create, Compile, DeleteOp<CallSite>});
}

template <int kCell, Op kOp>
void RegisterRnn(const char* device) {
  Register(SignatureOf(kOp, *haste_cell(kCell)).op, device, CreateRnn<kCell, kOp>);
}

template <int kCell>
void RegisterCell(const char* device) {
  if (kCell >= haste_cell_count()) return;
  RegisterRnn<kCell, Op::kForward>(device);
  RegisterRnn<kCell, Op::kBackward>(device);
  if (!HasLayer(*haste_cell(kCell))) return;
  RegisterRnn<kCell, Op::kLayer>(device);
  RegisterRnn<kCell, Op::kLayerBackward>(device);
}

template <int... kCell>
void RegisterAll(const char* device, std::integer_sequence<int, kCell...>) {
  (RegisterCell<kCell>(device), ...);
  Register(LayerNormOp(false).signature.op, device, CreateLayerNorm<false>);
  Register(LayerNormOp(true).signature.op, device, CreateLayerNorm<true>);
  Register(MatMulOp(Form::kPlain).signature.op, device, CreateMatMul<Form::kPlain>);
  Register(MatMulOp(Form::kTransposeA).signature.op, device, CreateMatMul<Form::kTransposeA>);
  Register(MatMulOp(Form::kTransposeB).signature.op, device, CreateMatMul<Form::kTransposeB>);
}

// Why XLA does not compile the ops; empty where it does.
struct Reasons {
  std::string cpu, gpu;
};

Reasons RegisterWhatRuns() {
  Reasons why;
  const XlaFunctions* functions = RunningXla(&why.cpu);
  if (GpuKernelsCanRun(&why.gpu)) why.gpu = why.cpu;
  if (functions == nullptr) return why;
  if (why.gpu.empty() && functions->tensorflow_minor < 18) {
    why.gpu = "XLA of TensorFlow 2.17 gives foreign functions no scratch memory on a GPU";
  }
  if (!xla::RegisterHandlers(functions->ffi_api(), functions->tensorflow_minor, why.gpu.empty(),
                             &why.cpu)) {
    why.gpu = why.cpu;
    return why;
  }
  const auto cells = std::make_integer_sequence<int, kMaxCells>();
  RegisterAll("XLA_CPU_JIT", cells);
  if (why.gpu.empty()) RegisterAll("XLA_GPU_JIT", cells);
  return why;
}

const Reasons& Registered() {
  static const Reasons* const reasons = new Reasons(RegisterWhatRuns());
  return *reasons;
}

[[maybe_unused]] const Reasons& at_load = Registered();

}  // namespace
}  // namespace tf
}  // namespace haste

int32_t haste_tf_xla(int32_t device, char* why, size_t capacity) {
  const haste::tf::Reasons& reasons = haste::tf::Registered();
  const std::string& reason = device == HASTE_CUDA ? reasons.gpu : reasons.cpu;
  haste::tf::CopyText(reason, why, capacity);
  return reason.empty();
}
