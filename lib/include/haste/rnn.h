// The C++ API of haste: fused recurrent layers without TensorFlow, on CPU and CUDA.
//
//   haste::RnnConfig config = haste::Config("lstm", HASTE_FLOAT32, HASTE_CPU, N, T, K, H);
//   const auto layer = haste::LayerForwardArgs().set_features(C).set_x(x).set_W(W).set_b(b);
//   const auto rnn = haste::ForwardArgs().set_R(R).set_y(y);
//   haste::ScratchMemory scratch(HASTE_CPU);
//   haste::Status status = haste::LayerForward(config, layer, rnn, scratch);
//
// haste/c_api.h, which this header wraps, gives every tensor's shape and says which may be NULL.
// Tensors are the caller's; calls on CUDA are asynchronous on executor.stream.
#ifndef HASTE_LIB_HASTE_RNN_H_
#define HASTE_LIB_HASTE_RNN_H_

#include <string>

#include "haste/args.h"
#include "haste/c_api.h"
#include "haste/packed_weights.h"
#include "haste/scratch.h"
#include "haste/status.h"

namespace haste {

// A configuration of these sizes, with the defaults of RnnConfig.
inline RnnConfig Config(const char* cell, HasteDtype dtype, HasteDevice device, int64_t batch,
                        int64_t time, int64_t lanes, int64_t hidden) {
  RnnConfig config;
  config.cell = cell;
  config.dtype = dtype;
  config.device = device;
  config.batch = batch;
  config.time = time;
  config.lanes = lanes;
  config.hidden = hidden;
  return config;
}

namespace internal {
template <class Call>
Status Wrap(const Call& call) {
  HasteStatus raw = {};
  return call(&raw) == HASTE_OK ? Status() : Status(raw);
}
}  // namespace internal

// Scratch memory that Forward or Backward wants, on config.device, aligned to 64 bytes.
inline Status WorkspaceBytes(const RnnConfig& config, bool backward, size_t* bytes,
                             const Executor& executor = {}) {
  return internal::Wrap([&](HasteStatus* status) {
    return haste_rnn_workspace_bytes(&config, backward, &executor, bytes, status);
  });
}

// The same for LayerForward and LayerBackward.
inline Status LayerForwardWorkspaceBytes(const RnnConfig& config, const LayerForwardArgs& layer,
                                         size_t* bytes, const Executor& executor = {}) {
  return internal::Wrap([&](HasteStatus* status) {
    return haste_layer_forward_workspace_bytes(&config, &layer, &executor, bytes, status);
  });
}
inline Status LayerBackwardWorkspaceBytes(const RnnConfig& config, const LayerBackwardArgs& layer,
                                          size_t* bytes, const Executor& executor = {}) {
  return internal::Wrap([&](HasteStatus* status) {
    return haste_layer_backward_workspace_bytes(&config, &layer, &executor, bytes, status);
  });
}

// The recurrence alone: wx = x·W + b comes in.
inline Status Forward(const RnnConfig& config, const ForwardArgs& args, void* workspace,
                      const Executor& executor = {}) {
  return internal::Wrap([&](HasteStatus* status) {
    return haste_rnn_forward(&config, &args, workspace, &executor, status);
  });
}
inline Status Backward(const RnnConfig& config, const BackwardArgs& args, void* workspace,
                       const Executor& executor = {}) {
  return internal::Wrap([&](HasteStatus* status) {
    return haste_rnn_backward(&config, &args, workspace, &executor, status);
  });
}

// The whole layer; rnn.wx is not looked at.
inline Status LayerForward(const RnnConfig& config, const LayerForwardArgs& layer,
                           const ForwardArgs& rnn, void* workspace, const Executor& executor = {}) {
  return internal::Wrap([&](HasteStatus* status) {
    return haste_layer_forward(&config, &layer, &rnn, workspace, &executor, status);
  });
}
inline Status LayerBackward(const RnnConfig& config, const LayerBackwardArgs& layer,
                            const BackwardArgs& rnn, void* workspace,
                            const Executor& executor = {}) {
  return internal::Wrap([&](HasteStatus* status) {
    return haste_layer_backward(&config, &layer, &rnn, workspace, &executor, status);
  });
}

// The same, with scratch memory that grows to what the call asks for.
inline Status Forward(const RnnConfig& config, const ForwardArgs& args, ScratchMemory& scratch,
                      const Executor& executor = {}) {
  size_t bytes = 0;
  Status status = WorkspaceBytes(config, /*backward=*/false, &bytes, executor);
  if (status.ok()) status = scratch.Reserve(bytes);
  return status.ok() ? Forward(config, args, scratch.data(), executor) : status;
}
inline Status Backward(const RnnConfig& config, const BackwardArgs& args, ScratchMemory& scratch,
                       const Executor& executor = {}) {
  size_t bytes = 0;
  Status status = WorkspaceBytes(config, /*backward=*/true, &bytes, executor);
  if (status.ok()) status = scratch.Reserve(bytes);
  return status.ok() ? Backward(config, args, scratch.data(), executor) : status;
}
inline Status LayerForward(const RnnConfig& config, const LayerForwardArgs& layer,
                           const ForwardArgs& rnn, ScratchMemory& scratch,
                           const Executor& executor = {}) {
  size_t bytes = 0;
  Status status = LayerForwardWorkspaceBytes(config, layer, &bytes, executor);
  if (status.ok()) status = scratch.Reserve(bytes);
  return status.ok() ? LayerForward(config, layer, rnn, scratch.data(), executor) : status;
}
inline Status LayerBackward(const RnnConfig& config, const LayerBackwardArgs& layer,
                            const BackwardArgs& rnn, ScratchMemory& scratch,
                            const Executor& executor = {}) {
  size_t bytes = 0;
  Status status = LayerBackwardWorkspaceBytes(config, layer, &bytes, executor);
  if (status.ok()) status = scratch.Reserve(bytes);
  return status.ok() ? LayerBackward(config, layer, rnn, scratch.data(), executor) : status;
}

// What a QRNN with window > 1 is given as x, and the gradient of that.
inline Status Windows(const WindowsArgs& args, const Executor& executor = {}) {
  return internal::Wrap(
      [&](HasteStatus* status) { return haste_windows(&args, &executor, status); });
}
inline Status WindowsGrad(const WindowsGradArgs& args, const Executor& executor = {}) {
  return internal::Wrap(
      [&](HasteStatus* status) { return haste_windows_grad(&args, &executor, status); });
}

// Which engine runs this, and why, in one line: see haste_plan.
inline Status Explain(const RnnConfig& config, std::string* text, const Executor& executor = {}) {
  char line[1024] = "";
  const Status status = internal::Wrap(
      [&](HasteStatus* raw) { return haste_plan(&config, &executor, line, sizeof line, raw); });
  *text = line;
  return status;
}

}  // namespace haste

#endif  // HASTE_LIB_HASTE_RNN_H_
