// CPU and GPU kernels of every cell: they fill the library's argument structs and call it.
#include <string>
#include <utility>

#include "frameworks/tf/gpu_kernels.h"
#include "frameworks/tf/op_call.h"
#include "frameworks/tf/op_registry.h"
#include "frameworks/tf/rnn_attributes.h"
#include "frameworks/tf/rnn_signature.h"
#include "frameworks/tf/tf_status.h"

namespace haste {
namespace tf {
namespace {

// State of a kernel: one op of a graph.
struct Kernel {
  const HasteCellInfo* cell;
  HasteDevice device;
  RnnSignature signature;
  RnnAttributes attributes;
};

// One run of a kernel.
class RnnCall : public OpCall {
 public:
  RnnCall(const Kernel& kernel, TF_OpKernelContext* context)
      : OpCall(kernel.signature, kernel.device, kernel.attributes.type, CellSizes(*kernel.cell),
               context),
        kernel_(kernel) {}

  bool Begin() { return OpCall::Begin() && CheckAttributes(); }

  HasteRnnConfig Config() const {
    return kernel_.attributes.Config(Size('N'), Size('T'), Size('K'), Size('H'));
  }

  void* Workspace(const HasteRnnConfig& config, bool backward) {
    return OpCall::Workspace([&](size_t* bytes, HasteStatus* error) {
      return haste_rnn_workspace_bytes(&config, backward, &executor(), bytes, error);
    });
  }
  void* Workspace(const HasteRnnConfig& config, const HasteLayerForwardArgs& layer) {
    return OpCall::Workspace([&](size_t* bytes, HasteStatus* error) {
      return haste_layer_forward_workspace_bytes(&config, &layer, &executor(), bytes, error);
    });
  }
  void* Workspace(const HasteRnnConfig& config, const HasteLayerBackwardArgs& layer) {
    return OpCall::Workspace([&](size_t* bytes, HasteStatus* error) {
      return haste_layer_backward_workspace_bytes(&config, &layer, &executor(), bytes, error);
    });
  }

  // An output of a layer's gradient: nullptr, and empty, if it is not wanted.
  void* OutputIfWanted(int i) {
    if (i < 0) return nullptr;
    if (kernel_.attributes.wanted[i - kernel_.signature.out.sequence]) return Output(i);
    EmptyOutput(i);
    return nullptr;
  }

  // Sets what forward and backward both read: args.R, extra, mask, seed.
  template <class Args>
  void Parameters(Args* args) const {
    const Positions& in = kernel_.signature.in;
    args->R = Input(in.recurrent_kernel);
    for (int e = 0; e < kernel_.cell->extras; ++e) args->extra[e] = Input(in.extras + e);
    args->mask = static_cast<const uint8_t*>(Input(in.mask));
    args->seed = static_cast<const int64_t*>(Input(in.seed));
  }

 private:
  bool CheckAttributes() {
    const RnnAttributes& attributes = kernel_.attributes;
    if (attributes.reverse.size() != static_cast<size_t>(Size('K'))) {
      return Invalid("reverse must have one flag for each of the K = " + std::to_string(Size('K')) +
                     " lanes, but has " + std::to_string(attributes.reverse.size()));
    }
    const RnnSignature& signature = kernel_.signature;
    const int first = signature.out.sequence;
    const size_t optional = first == kAbsent ? 0 : signature.outputs.size() - first;
    if (attributes.wanted.size() != optional) {
      return Invalid("wanted must have one flag for each of the " + std::to_string(optional) +
                     " outputs from dx on, but has " + std::to_string(attributes.wanted.size()));
    }
    if (attributes.draws && Input(signature.in.seed) == nullptr) {
      return Invalid(
          "seed must be given, two int64, because zoneout or recurrent_dropout draws random "
          "numbers in training, but is empty");
    }
    return true;
  }

  const Kernel& kernel_;
};

// Sets the arguments of forward except the input, and allocates the outputs.
HasteRnnForwardArgs ForwardArgs(const Kernel& kernel, RnnCall& call) {
  const HasteCellInfo& cell = *kernel.cell;
  const Positions &in = kernel.signature.in, &out = kernel.signature.out;
  HasteRnnForwardArgs args = HASTE_INIT(HasteRnnForwardArgs);
  call.Parameters(&args);
  for (int g = 0; cell.separate_gates && g < cell.gates; ++g) args.x[g] = call.Input(in.x + g);
  args.y = call.Output(out.y);
  for (int s = 0; s < cell.states; ++s) {
    args.s0[s] = call.Input(in.states + s);
    args.sT[s] = call.Output(out.states + s);
  }
  args.keep = kernel.attributes.save;
  if (args.keep) {
    // A layer's op has no wx to overwrite.
    if (in.kernel != kAbsent) args.gates = call.Output(out.gates);
    args.products = call.Output(out.products);
    for (int i = 0; i < cell.saved; ++i) args.saved[i] = call.Output(out.saved + i);
  } else {
    const int count = static_cast<int>(kernel.signature.outputs.size());
    for (int i = out.states + cell.states; i < count; ++i) call.EmptyOutput(i);
  }
  return args;
}

void Forward(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  const Positions &in = kernel.signature.in, &out = kernel.signature.out;
  RnnCall call(kernel, context);
  if (!call.Begin()) return;
  const HasteRnnConfig config = call.Config();

  HasteRnnForwardArgs args = ForwardArgs(kernel, call);
  args.wx = call.Input(in.wx);
  if (args.keep) args.gates = call.OutputInPlace(out.gates, in.wx, &args.wx);
  void* workspace = call.Workspace(config, false);
  HasteStatus error = {};
  if (call.ok() &&
      haste_rnn_forward(&config, &args, workspace, &call.executor(), &error) != HASTE_OK) {
    call.Report(error);
  }
}

void LayerForward(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  const Positions& in = kernel.signature.in;
  RnnCall call(kernel, context);
  if (!call.Begin()) return;
  const HasteRnnConfig config = call.Config();

  HasteRnnForwardArgs args = ForwardArgs(kernel, call);
  HasteLayerForwardArgs layer = HASTE_INIT(HasteLayerForwardArgs);
  layer.features = call.Size('C');
  layer.x = call.Input(in.sequence);
  layer.W = call.Input(in.kernel);
  layer.b = call.Input(in.bias);
  // A GPU computes all of wx. If gates are returned, it does so in their memory.
  if (kernel.device == HASTE_CUDA) layer.wx = args.gates;
  void* workspace = call.Workspace(config, layer);
  HasteStatus error = {};
  if (call.ok() && haste_layer_forward(&config, &layer, &args, workspace, &call.executor(),
                                       &error) != HASTE_OK) {
    call.Report(error);
  }
}

// Sets the arguments of backward, and allocates the outputs except those that only a layer has.
HasteRnnBackwardArgs BackwardArgs(const Kernel& kernel, RnnCall& call) {
  const HasteCellInfo& cell = *kernel.cell;
  const Positions &in = kernel.signature.in, &out = kernel.signature.out;
  HasteRnnBackwardArgs args = HASTE_INIT(HasteRnnBackwardArgs);
  call.Parameters(&args);
  for (int i = 0; i < cell.saved; ++i) args.saved[i] = call.Input(in.saved + i);
  args.dy = call.Input(in.y);
  args.dwx = call.OutputInPlace(out.wx, in.gates, &args.gates);
  for (int g = 0; cell.separate_gates && g < cell.gates; ++g) {
    args.dx[g] = call.OutputInPlace(out.x + g, in.x + g, &args.x[g]);
  }
  if (cell.splits_gradient && cell.normalizes) {
    args.dq = call.OutputInPlace(out.q, in.products, &args.products);
  } else {
    args.products = call.Input(in.products);
    args.dq = call.Output(out.q);
  }
  if (cell.recurrence == HASTE_DIAGONAL) args.dR = call.Output(out.recurrent_kernel);
  for (int e = 0; e < cell.extras; ++e) args.dextra[e] = call.Output(out.extras + e);
  for (int s = 0; s < cell.states; ++s) {
    args.dsT[s] = call.Input(in.states + s);
    args.ds0[s] = call.Output(out.states + s);
  }
  return args;
}

void Backward(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  RnnCall call(kernel, context);
  if (!call.Begin()) return;
  const HasteRnnConfig config = call.Config();

  const HasteRnnBackwardArgs args = BackwardArgs(kernel, call);
  void* workspace = call.Workspace(config, true);
  HasteStatus error = {};
  if (call.ok() &&
      haste_rnn_backward(&config, &args, workspace, &call.executor(), &error) != HASTE_OK) {
    call.Report(error);
  }
}

void LayerBackward(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  const Positions &in = kernel.signature.in, &out = kernel.signature.out;
  RnnCall call(kernel, context);
  if (!call.Begin()) return;
  const HasteRnnConfig config = call.Config();

  const HasteRnnBackwardArgs args = BackwardArgs(kernel, call);
  HasteLayerBackwardArgs layer = HASTE_INIT(HasteLayerBackwardArgs);
  layer.features = call.Size('C');
  layer.x = call.Input(in.sequence);
  layer.W = call.Input(in.kernel);
  layer.dx = call.OutputIfWanted(out.sequence);
  layer.dW = call.OutputIfWanted(out.kernel);
  layer.db = call.OutputIfWanted(out.bias);
  if (kernel.cell->recurrence == HASTE_DENSE) layer.dR = call.OutputIfWanted(out.recurrent_kernel);
  void* workspace = call.Workspace(config, layer);
  HasteStatus error = {};
  if (call.ok() && haste_layer_backward(&config, &layer, &args, workspace, &call.executor(),
                                        &error) != HASTE_OK) {
    call.Report(error);
  }
}

void* Create(Op op, const HasteCellInfo& cell, HasteDevice device,
             TF_OpKernelConstruction* context) {
  auto* kernel = new Kernel{&cell, device, SignatureOf(op, cell), {}};
  Status status;
  if (kernel->attributes.Read(op, cell, device, context, &status)) return kernel;
  status.Fail(TF_GetCode(status.get()), kernel->signature.op + ": " + TF_Message(status.get()));
  TF_OpKernelConstruction_Failure(context, status.get());
  delete kernel;
  return nullptr;
}

void Delete(void* kernel) { delete static_cast<Kernel*>(kernel); }

template <int kCell, HasteDevice kDevice, Op kOp>
void* CreateOf(TF_OpKernelConstruction* context) {
  return Create(kOp, *haste_cell(kCell), kDevice, context);
}

template <int kCell, HasteDevice kDevice, Op kOp>
void RegisterKernelOf() {
  constexpr auto kCompute = kOp == Op::kForward    ? Forward
                            : kOp == Op::kLayer    ? LayerForward
                            : kOp == Op::kBackward ? Backward
                                                   : LayerBackward;
  RegisterKernel(SignatureOf(kOp, *haste_cell(kCell)).op, kDevice,
                 {CreateOf<kCell, kDevice, kOp>, kCompute, Delete});
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
