// CPU and GPU kernels of every cell: made of TensorFlow's C API and frameworks/ops.
#include <memory>
#include <utility>

#include "frameworks/ops/rnn_op.h"
#include "frameworks/ops/rnn_run.h"
#include "frameworks/tf/c_api/gpu_kernels.h"
#include "frameworks/tf/c_api/op_call.h"
#include "frameworks/tf/c_api/op_options.h"
#include "frameworks/tf/c_api/op_registry.h"

namespace haste {
namespace tf {
namespace {

void Compute(void* object, TF_OpKernelContext* context) {
  const RnnOp& op = *static_cast<RnnOp*>(object);
  const auto dtype = static_cast<HasteDtype>(op.options.config.dtype);
  OpCall call(op.signature, op.device(), dtype, CellSizes(*op.cell), context);
  Run(op, &call);
}

template <int kCell, HasteDevice kDevice, Op kOp>
void* CreateOf(TF_OpKernelConstruction* context) {
  auto op = std::make_unique<RnnOp>(kOp, *haste_cell(kCell));
  op->options.config.device = kDevice;
  return WithOptions(std::move(op), context);
}

template <int kCell, HasteDevice kDevice, Op kOp>
void RegisterKernelOf() {
  RegisterKernel(SignatureOf(kOp, *haste_cell(kCell)).op, kDevice,
                 {CreateOf<kCell, kDevice, kOp>, Compute, DeleteOp<RnnOp>});
}

template <int kCell, HasteDevice kDevice>
void RegisterKernels() {
  RegisterKernelOf<kCell, kDevice, Op::kForward>();
  RegisterKernelOf<kCell, kDevice, Op::kBackward>();
  if (!HasLayer(*haste_cell(kCell))) return;
  RegisterKernelOf<kCell, kDevice, Op::kLayer>();
  RegisterKernelOf<kCell, kDevice, Op::kLayerBackward>();
}

template <int kCell>
void RegisterCell() {
  if (kCell >= haste_cell_count()) return;
  RegisterKernels<kCell, HASTE_CPU>();
  if (GpuKernelsCanRun(nullptr)) RegisterKernels<kCell, HASTE_CUDA>();
  const HasteCellInfo& cell = *haste_cell(kCell);
  if (!HasInt8(cell)) return;
  RegisterKernelOf<kCell, HASTE_CPU, Op::kInt8>();
  if (HasLayer(cell)) RegisterKernelOf<kCell, HASTE_CPU, Op::kLayerInt8>();
}

template <int... kCell>
bool Register(std::integer_sequence<int, kCell...>) {
  (RegisterCell<kCell>(), ...);
  return true;
}

const bool registered = Register(std::make_integer_sequence<int, kMaxCells>());

}  // namespace
}  // namespace tf
}  // namespace haste
