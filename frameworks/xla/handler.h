// The handlers that XLA calls: one for each device, for every op.
#ifndef HASTE_FRAMEWORKS_XLA_HANDLER_H_
#define HASTE_FRAMEWORKS_XLA_HANDLER_H_

#include <string>

#include "frameworks/xla/ffi_abi.h"
#include "haste/c_api.h"

extern "C" {
// For JAX, and whatever else has XLA of today: foreign functions of API version 1 (typed FFI),
// whose operands and results are those of the TensorFlow op that the attribute `op` names.
HASTE_API haste::xla::FfiError* haste_xla_cpu(haste::xla::CallFrame* frame);
HASTE_API haste::xla::FfiError* haste_xla_cuda(haste::xla::CallFrame* frame);
}

namespace haste {
namespace xla {

// The name that the handlers are registered under.
constexpr char kTarget[] = "haste_op";

// Registers the handler of the CPU, and with `cuda` that of CUDA, with the XLA whose table of
// functions `api` is. tensorflow_minor: of the TensorFlow 2 that it is in. Returns false and sets
// *why if XLA refuses.
bool RegisterHandlers(const void* api, int tensorflow_minor, bool cuda, std::string* why);

}  // namespace xla
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_XLA_HANDLER_H_
