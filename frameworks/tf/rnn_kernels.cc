// CPU and GPU kernels of every cell: arguments checked, memory allocated, the library called.
#include <stdio.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "frameworks/tf/rnn_attributes.h"
#include "frameworks/tf/rnn_signature.h"
#include "frameworks/tf/shim_loader.h"
#include "frameworks/tf/tf_status.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {
namespace {

std::vector<int64_t> ShapeOf(const TF_Tensor* tensor) {
  std::vector<int64_t> shape(TF_NumDims(tensor));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = TF_Dim(tensor, static_cast<int>(i));
  return shape;
}

// One op of a graph.
struct Kernel {
  const HasteCellInfo* cell;
  HasteDevice device;
  RnnSignature signature;
  RnnAttributes attributes;
};

// One run of a kernel. Functions return false after recording an error in status.
class Call {
 public:
  Call(const Kernel& kernel, TF_OpKernelContext* context)
      : kernel_(kernel), context_(context), sizes_(*kernel.cell) {}
  ~Call() {
    if (status_.ok()) return;
    const std::string message = kernel_.signature.op + ": " + TF_Message(status_.get());
    status_.Fail(TF_GetCode(status_.get()), message);
    TF_OpKernelContext_Failure(context_, status_.get());
  }

  // Reads and checks all inputs and asks for the executor.
  bool Begin();

  const void* Input(int i) const { return inputs_[i] ? TF_TensorData(inputs_[i].get()) : nullptr; }
  // After an error these do nothing and return nullptr.
  void* Output(int i);
  void* EmptyOutput(int i);
  // An output of the shape of an input, in that input's memory if nobody else needs it. *input
  // is where the input lies; Input(input_index) is nullptr from now on.
  void* OutputInPlace(int i, int input_index, const void** input);
  void* Workspace(const HasteRnnConfig& config, bool backward);

  HasteRnnConfig Config() const {
    return kernel_.attributes.Config(sizes_['N'], sizes_['T'], sizes_['K'], sizes_['H']);
  }
  const HasteExecutor& executor() const { return executor_; }
  bool ok() const { return status_.ok(); }
  void Report(const HasteStatus& status) {
    status_.Fail(static_cast<TF_Code>(status.code), status.message);
  }

 private:
  bool ReadInputs();
  bool FindExecutor();
  void* Keep(TF_Tensor* tensor);

  const Kernel& kernel_;
  TF_OpKernelContext* context_;
  Status status_;
  Sizes sizes_;
  HasteExecutor executor_ = {};
  std::vector<Tensor> inputs_;  // nullptr: left out
  std::vector<Tensor> kept_;
};

bool Call::Begin() { return ReadInputs() && FindExecutor(); }

bool Call::ReadInputs() {
  const auto& arguments = kernel_.signature.inputs;
  inputs_.resize(arguments.size());
  // Optional arguments come last, so that an error blames them and not what they disagree with.
  for (bool optional : {false, true}) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].optional != optional) continue;
      TF_Tensor* tensor = nullptr;
      TF_GetInput(context_, static_cast<int>(i), &tensor, status_.get());
      if (!status_.ok()) return false;
      inputs_[i].reset(tensor);
      const std::vector<int64_t> shape = ShapeOf(tensor);
      std::string error;
      if (!sizes_.Bind(arguments[i], shape, &error)) return status_.Invalid(error);
      if (IsAbsent(arguments[i], shape)) inputs_[i].reset();
    }
  }
  const RnnAttributes& attributes = kernel_.attributes;
  if (attributes.reverse.size() != static_cast<size_t>(sizes_['K'])) {
    return status_.Invalid(
        "reverse must have one flag for each of the K = " + std::to_string(sizes_['K']) +
        " lanes, but has " + std::to_string(attributes.reverse.size()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (attributes.draws && arguments[i].name == "seed" && !inputs_[i]) {
      return status_.Invalid(
          "seed must be given, two int64, because zoneout or recurrent_dropout draws random "
          "numbers in training, but is empty");
    }
  }
  return true;
}

bool Call::FindExecutor() {
  const Shim* shim = GetShim();
  if (kernel_.device == HASTE_CPU) {
    if (shim == nullptr) {
      WarnOfMissingShim();
      return true;  // haste's own threads
    }
    executor_.threads = shim->num_threads(context_);
    executor_.pool = shim->pool(context_);
    executor_.schedule = executor_.pool == nullptr ? nullptr : shim->schedule;
    return true;
  }
  if (shim == nullptr) return status_.Fail(TF_FAILED_PRECONDITION, ShimError());
  executor_.stream = shim->cuda_stream(context_);
  if (executor_.stream == nullptr) {
    return status_.Fail(TF_INTERNAL, "TensorFlow's GPU device has no CUDA stream");
  }
  return true;
}

void* Call::Keep(TF_Tensor* tensor) {
  kept_.emplace_back(tensor);
  return status_.ok() ? TF_TensorData(tensor) : nullptr;
}

void* Call::Output(int i) {
  if (!ok()) return nullptr;
  const std::vector<int64_t> shape = sizes_.Shape(kernel_.signature.outputs[i].dims);
  size_t bytes = TF_DataTypeSize(kernel_.attributes.type);
  for (int64_t size : shape) bytes *= size;
  return Keep(TF_AllocateOutput(context_, i, kernel_.attributes.type, shape.data(),
                                static_cast<int>(shape.size()), bytes, status_.get()));
}

void* Call::EmptyOutput(int i) {
  if (!ok()) return nullptr;
  const int64_t none = 0;
  return Keep(TF_AllocateOutput(context_, i, kernel_.attributes.type, &none, 1, 0, status_.get()));
}

void* Call::OutputInPlace(int i, int input_index, const void** input) {
  if (!ok()) return nullptr;
  inputs_[input_index].reset();  // TensorFlow forwards a buffer that it alone refers to
  const std::vector<int64_t> shape = sizes_.Shape(kernel_.signature.outputs[i].dims);
  int forwarded = -1;
  void* output = Keep(TF_ForwardInputOrAllocateOutput(context_, &input_index, 1, i, shape.data(),
                                                      static_cast<int>(shape.size()), &forwarded,
                                                      status_.get()));
  if (!status_.ok()) return nullptr;
  *input = output;
  if (forwarded == -1) {
    TF_Tensor* tensor = nullptr;
    TF_GetInput(context_, input_index, &tensor, status_.get());
    *input = Keep(tensor);
  }
  return output;
}

void* Call::Workspace(const HasteRnnConfig& config, bool backward) {
  if (!ok()) return nullptr;
  size_t bytes = 0;
  HasteStatus error = {};
  if (haste_rnn_workspace_bytes(&config, backward, &executor_, &bytes, &error) != HASTE_OK) {
    Report(error);
    return nullptr;
  }
  const int64_t size = std::max<int64_t>(static_cast<int64_t>(bytes), 1);
  TF_AllocatorAttributes where = {};
  where.struct_size = TF_ALLOCATOR_ATTRIBUTES_STRUCT_SIZE;
  return Keep(TF_AllocateTemp(context_, TF_UINT8, &size, 1, &where, status_.get()));
}

void Forward(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  const int states = kernel.cell->states;
  Call call(kernel, context);
  if (!call.Begin()) return;
  const HasteRnnConfig config = call.Config();

  HasteRnnForwardArgs args = {};
  args.wx = call.Input(ForwardInput::kWx);
  args.R = call.Input(ForwardInput::kRecurrentKernel);
  args.mask = static_cast<const uint8_t*>(call.Input(ForwardInput::Mask(states)));
  args.seed = static_cast<const int64_t*>(call.Input(ForwardInput::Seed(states)));
  args.y = call.Output(ForwardOutput::kY);
  for (int s = 0; s < states; ++s) {
    args.s0[s] = call.Input(ForwardInput::kInitialStates + s);
    args.sT[s] = call.Output(ForwardOutput::kFinalStates + s);
  }
  const int gates = ForwardOutput::Gates(states);
  if (kernel.attributes.save) {
    args.gates = call.OutputInPlace(gates, ForwardInput::kWx, &args.wx);
    for (int s = 0; s < states; ++s) {
      args.states[s] = call.Output(ForwardOutput::StatesIn(states) + s);
    }
  } else {
    for (int i = gates; i < ForwardOutput::StatesIn(states) + states; ++i) call.EmptyOutput(i);
  }
  void* workspace = call.Workspace(config, false);
  HasteStatus error = {};
  if (call.ok() &&
      haste_rnn_forward(&config, &args, workspace, &call.executor(), &error) != HASTE_OK) {
    call.Report(error);
  }
}

void Backward(void* object, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(object);
  const int states = kernel.cell->states;
  Call call(kernel, context);
  if (!call.Begin()) return;
  const HasteRnnConfig config = call.Config();

  HasteRnnBackwardArgs args = {};
  args.R = call.Input(BackwardInput::kRecurrentKernel);
  args.mask = static_cast<const uint8_t*>(call.Input(BackwardInput::kMask));
  args.seed = static_cast<const int64_t*>(call.Input(BackwardInput::kSeed));
  args.dy = call.Input(BackwardInput::Dy(states));
  args.dwx = call.OutputInPlace(BackwardOutput::kDwx, BackwardInput::kGates, &args.gates);
  for (int s = 0; s < states; ++s) {
    args.states[s] = call.Input(BackwardInput::kStatesIn + s);
    args.dsT[s] = call.Input(BackwardInput::DFinalStates(states) + s);
    args.ds0[s] = call.Output(BackwardOutput::kDInitialStates + s);
  }
  void* workspace = call.Workspace(config, true);
  HasteStatus error = {};
  if (call.ok() &&
      haste_rnn_backward(&config, &args, workspace, &call.executor(), &error) != HASTE_OK) {
    call.Report(error);
  }
}

void* Create(const HasteCellInfo& cell, HasteDevice device, bool backward,
             TF_OpKernelConstruction* context) {
  auto* kernel =
      new Kernel{&cell, device, backward ? BackwardSignature(cell) : ForwardSignature(cell), {}};
  Status status;
  if (kernel->attributes.Read(cell, device, !backward, context, &status)) return kernel;
  status.Fail(TF_GetCode(status.get()), kernel->signature.op + ": " + TF_Message(status.get()));
  TF_OpKernelConstruction_Failure(context, status.get());
  delete kernel;
  return nullptr;
}

void Delete(void* kernel) { delete static_cast<Kernel*>(kernel); }

template <int kCell, HasteDevice kDevice, bool kBackward>
void* CreateOf(TF_OpKernelConstruction* context) {
  return Create(*haste_cell(kCell), kDevice, kBackward, context);
}

template <int kCell, HasteDevice kDevice, bool kBackward>
void RegisterKernels() {
  const HasteCellInfo& cell = *haste_cell(kCell);
  const std::string op = (kBackward ? BackwardSignature(cell) : ForwardSignature(cell)).op;
  const char* device = kDevice == HASTE_CUDA ? "GPU" : "CPU";
  for (TF_DataType type : {TF_HALF, TF_BFLOAT16, TF_FLOAT, TF_DOUBLE}) {
    TF_KernelBuilder* builder =
        TF_NewKernelBuilder(op.c_str(), device, CreateOf<kCell, kDevice, kBackward>,
                            kBackward ? Backward : Forward, Delete);
    Status status;
    TF_KernelBuilder_TypeConstraint(builder, "T", type, status.get());
    const std::string name = op + device + std::to_string(type);
    if (status.ok()) {
      TF_RegisterKernelBuilder(name.c_str(), builder, status.get());
    } else {
      TF_DeleteKernelBuilder(builder);
    }
    if (!status.ok()) {
      fprintf(stderr, "haste: cannot register %s: %s\n", name.c_str(), TF_Message(status.get()));
    }
  }
}

template <int kCell>
void RegisterCell() {
  if (kCell >= haste_cell_count()) return;
  RegisterKernels<kCell, HASTE_CPU, false>();
  RegisterKernels<kCell, HASTE_CPU, true>();
  if (!haste_has_cuda()) return;
  RegisterKernels<kCell, HASTE_CUDA, false>();
  RegisterKernels<kCell, HASTE_CUDA, true>();
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
