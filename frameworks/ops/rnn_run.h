// The bodies of the ops of every cell: they fill the library's argument structs and call it.
//
// `Call` is one run in a framework: its inputs by their number in the signature, its outputs,
// scratch memory and where the work runs. frameworks/tf/c_api/op_call.h and
// frameworks/xla/ffi_call.h are two.
#ifndef HASTE_FRAMEWORKS_OPS_RNN_RUN_H_
#define HASTE_FRAMEWORKS_OPS_RNN_RUN_H_

#include <stdint.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "frameworks/ops/rnn_op.h"
#include "haste/c_api.h"

namespace haste {

template <class Call>
class RnnRun {
 public:
  RnnRun(const RnnOp& op, Call* call)
      : op_(op), cell_(*op.cell), in_(op.signature.in), out_(op.signature.out), call_(*call) {}

  // Runs the op, or reports an error to the call.
  void Run() {
    if (!call_.Begin() || !CheckOptions()) return;
    config_ =
        op_.options.Config(call_.Size('N'), call_.Size('T'), call_.Size('K'), call_.Size('H'));
    if (op_.int8()) config_.weights_dtype = HASTE_INT8;
    if (op_.backward()) {
      op_.layer() ? LayerBackward() : Backward();
    } else {
      op_.layer() ? LayerForward() : Forward();
    }
  }

 private:
  bool CheckOptions() {
    const RnnOptions& options = op_.options;
    if (options.reverse.size() != static_cast<size_t>(call_.Size('K'))) {
      return call_.Invalid(
          "reverse must have one flag for each of the K = " + std::to_string(call_.Size('K')) +
          " lanes, but has " + std::to_string(options.reverse.size()));
    }
    const size_t optional = op_.optional_gradients();
    if (options.wanted.size() != optional) {
      return call_.Invalid("wanted must have one flag for each of the " + std::to_string(optional) +
                           " outputs from dx on, but has " + std::to_string(options.wanted.size()));
    }
    if (options.Draws(cell_) && call_.Input(in_.seed) == nullptr) {
      return call_.Invalid(
          "seed must be given, two int64, because zoneout or recurrent_dropout draws random "
          "numbers in training, but is empty");
    }
    return true;
  }

  // An output of a layer's gradient: nullptr, and empty, if it is not wanted.
  void* OutputIfWanted(int i) {
    if (i < 0) return nullptr;
    if (op_.options.wanted[i - out_.sequence]) return call_.Output(i);
    call_.EmptyOutput(i);
    return nullptr;
  }

  // Sets what forward and backward both read: args.R, extra, mask, seed.
  template <class Args>
  void Parameters(Args* args) const {
    args->R = call_.Input(in_.recurrent_kernel);
    for (int e = 0; e < cell_.extras; ++e) args->extra[e] = call_.Input(in_.extras + e);
    args->mask = static_cast<const uint8_t*>(call_.Input(in_.mask));
    args->seed = static_cast<const int64_t*>(call_.Input(in_.seed));
  }

  // Sets the arguments of forward except the input, and allocates the outputs.
  HasteRnnForwardArgs ForwardArgs() {
    HasteRnnForwardArgs args = HASTE_INIT(HasteRnnForwardArgs);
    Parameters(&args);
    for (int g = 0; cell_.separate_gates && g < cell_.gates; ++g) {
      args.x[g] = call_.Input(in_.x + g);
    }
    if (op_.int8()) args.R_scale = static_cast<const float*>(call_.Input(in_.recurrent_scale));
    if (op_.options.keep_packed && op_.device() == HASTE_CPU) UsePacked(&args);
    args.y = call_.Output(out_.y);
    for (int s = 0; s < cell_.states; ++s) {
      args.s0[s] = call_.Input(in_.states + s);
      args.sT[s] = call_.Output(out_.states + s);
    }
    args.keep = op_.options.save;
    if (args.keep) {
      // A layer's op has no wx to overwrite.
      if (in_.kernel != kAbsent) args.gates = call_.Output(out_.gates);
      args.products = call_.Output(out_.products);
      const int saved = op_.options.Saved(cell_);
      for (int i = 0; i < saved; ++i) args.saved[i] = call_.Output(out_.saved + i);
      for (int i = saved; i < cell_.saved; ++i) call_.EmptyOutput(out_.saved + i);
    } else {
      // Not in training, where the ops beside this one need the pool's threads.
      call_.LetThreadWait();
      const int count = static_cast<int>(op_.signature.outputs.size());
      for (int i = out_.states + cell_.states; i < count; ++i) call_.EmptyOutput(i);
    }
    return args;
  }

  // Inference finds its weights packed by a call before; training is about to change them.
  void UsePacked(HasteRnnForwardArgs* args) {
    const std::initializer_list<int> large = {in_.recurrent_kernel, in_.kernel};
    if (op_.options.save) return call_.ForgetPacked(large);
    std::vector<int> small = {in_.bias, in_.kernel_scale, in_.recurrent_scale};
    for (int e = 0; e < cell_.extras; ++e) small.push_back(in_.extras + e);
    args->packed = call_.Packed(large, small);
  }

  void Forward() {
    HasteRnnForwardArgs args = ForwardArgs();
    args.wx = call_.Input(in_.wx);
    if (args.keep) args.gates = call_.OutputInPlace(out_.gates, in_.wx, &args.wx);
    void* workspace = call_.Workspace([&](size_t* bytes, HasteStatus* error) {
      return haste_rnn_workspace_bytes(&config_, /*backward=*/0, &call_.executor(), bytes, error);
    });
    Do([&](HasteStatus* error) {
      return haste_rnn_forward(&config_, &args, workspace, &call_.executor(), error);
    });
  }

  void LayerForward() {
    HasteRnnForwardArgs args = ForwardArgs();
    HasteLayerForwardArgs layer = HASTE_INIT(HasteLayerForwardArgs);
    layer.features = call_.Size('C');
    layer.x = call_.Input(in_.sequence);
    layer.W = call_.Input(in_.kernel);
    if (op_.int8()) layer.W_scale = static_cast<const float*>(call_.Input(in_.kernel_scale));
    layer.b = call_.Input(in_.bias);
    // A GPU computes all of wx. If gates are returned, it does so in their memory.
    if (op_.device() == HASTE_CUDA) layer.wx = args.gates;
    void* workspace = call_.Workspace([&](size_t* bytes, HasteStatus* error) {
      return haste_layer_forward_workspace_bytes(&config_, &layer, &call_.executor(), bytes, error);
    });
    Do([&](HasteStatus* error) {
      return haste_layer_forward(&config_, &layer, &args, workspace, &call_.executor(), error);
    });
  }

  // Sets the arguments of backward, and allocates the outputs except those that only a layer has.
  HasteRnnBackwardArgs BackwardArgs() {
    HasteRnnBackwardArgs args = HASTE_INIT(HasteRnnBackwardArgs);
    Parameters(&args);
    for (int i = 0; i < cell_.saved; ++i) args.saved[i] = call_.Input(in_.saved + i);
    args.dy = call_.Input(in_.y);
    args.dwx = call_.OutputInPlace(out_.wx, in_.gates, &args.gates);
    for (int g = 0; cell_.separate_gates && g < cell_.gates; ++g) {
      args.dx[g] = call_.OutputInPlace(out_.x + g, in_.x + g, &args.x[g]);
    }
    if (cell_.splits_gradient && cell_.normalizes) {
      args.dq = call_.OutputInPlace(out_.q, in_.products, &args.products);
    } else {
      args.products = call_.Input(in_.products);
      args.dq = call_.Output(out_.q);
    }
    if (cell_.recurrence == HASTE_DIAGONAL) args.dR = call_.Output(out_.recurrent_kernel);
    for (int e = 0; e < cell_.extras; ++e) args.dextra[e] = call_.Output(out_.extras + e);
    for (int s = 0; s < cell_.states; ++s) {
      args.dsT[s] = call_.Input(in_.states + s);
      args.ds0[s] = call_.Output(out_.states + s);
    }
    return args;
  }

  void Backward() {
    const HasteRnnBackwardArgs args = BackwardArgs();
    void* workspace = call_.Workspace([&](size_t* bytes, HasteStatus* error) {
      return haste_rnn_workspace_bytes(&config_, /*backward=*/1, &call_.executor(), bytes, error);
    });
    Do([&](HasteStatus* error) {
      return haste_rnn_backward(&config_, &args, workspace, &call_.executor(), error);
    });
  }

  void LayerBackward() {
    const HasteRnnBackwardArgs args = BackwardArgs();
    HasteLayerBackwardArgs layer = HASTE_INIT(HasteLayerBackwardArgs);
    layer.features = call_.Size('C');
    layer.x = call_.Input(in_.sequence);
    layer.W = call_.Input(in_.kernel);
    layer.dx = OutputIfWanted(out_.sequence);
    layer.dW = OutputIfWanted(out_.kernel);
    layer.db = OutputIfWanted(out_.bias);
    if (cell_.recurrence == HASTE_DENSE) layer.dR = OutputIfWanted(out_.recurrent_kernel);
    void* workspace = call_.Workspace([&](size_t* bytes, HasteStatus* error) {
      return haste_layer_backward_workspace_bytes(&config_, &layer, &call_.executor(), bytes,
                                                  error);
    });
    Do([&](HasteStatus* error) {
      return haste_layer_backward(&config_, &layer, &args, workspace, &call_.executor(), error);
    });
  }

  // Calls the library, unless something has failed before.
  template <class Function>
  void Do(const Function& function) {
    HasteStatus error = {};
    if (call_.ok() && function(&error) != HASTE_OK) call_.Report(error);
  }

  const RnnOp& op_;
  const HasteCellInfo& cell_;
  const Positions &in_, &out_;
  Call& call_;
  HasteRnnConfig config_ = HASTE_INIT(HasteRnnConfig);
};

template <class Call>
void Run(const RnnOp& op, Call* call) {
  RnnRun<Call>(op, call).Run();
}

}  // namespace haste

#endif  // HASTE_FRAMEWORKS_OPS_RNN_RUN_H_
