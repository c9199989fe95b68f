#include "frameworks/xla/handler.h"

#include <string.h>

#include <map>
#include <string_view>
#include <type_traits>
#include <variant>

#include "frameworks/ops/layer_norm.h"
#include "frameworks/ops/matmul.h"
#include "frameworks/ops/rnn_op.h"
#include "frameworks/ops/rnn_run.h"
#include "frameworks/xla/attributes.h"
#include "frameworks/xla/ffi_call.h"

namespace haste {
namespace xla {
namespace {

using AnyOp = std::variant<RnnOp, LayerNormOp, MatMulOp>;

// Every op, without options, by its name.
const std::map<std::string, AnyOp, std::less<>>& Ops() {
  static const auto* const ops = [] {
    auto* all = new std::map<std::string, AnyOp, std::less<>>;
    const auto add = [all](auto op) {
      const std::string name = op.signature.op;
      all->emplace(name, std::move(op));
    };
    for (int i = 0; i < haste_cell_count(); ++i) {
      const HasteCellInfo& cell = *haste_cell(i);
      add(RnnOp(Op::kForward, cell));
      add(RnnOp(Op::kBackward, cell));
      if (!HasLayer(cell)) continue;
      add(RnnOp(Op::kLayer, cell));
      add(RnnOp(Op::kLayerBackward, cell));
    }
    for (bool gradient : {false, true}) add(LayerNormOp(gradient));
    for (Form form : {Form::kPlain, Form::kTransposeA, Form::kTransposeB}) add(MatMulOp(form));
    return all;
  }();
  return *ops;
}

void SetPlace(HasteDevice device, HasteDtype dtype, RnnOp* op) {
  op->options.config.device = device;
  op->options.config.dtype = dtype;
}
template <class Other>
void SetPlace(HasteDevice device, HasteDtype dtype, Other* op) {
  op->device = device;
  op->dtype = dtype;
}

Sizes KnownSizes(const RnnOp& op) { return CellSizes(*op.cell); }
template <class Other>
Sizes KnownSizes(const Other&) {
  return Sizes();
}

template <class OneOp>
FfiError* RunOp(OneOp op, HasteDevice device, const CallFrame& frame, const Dialect& dialect) {
  FfiCall call(op.signature, device, KnownSizes(op), frame, dialect);
  HasteDtype dtype = HASTE_FLOAT32;
  if (!call.Dtype(&dtype)) return call.error();
  AttributeReader read(frame.attributes);
  read.Read(&op);
  if (!read.error().empty()) {
    call.Invalid(read.error());
    return call.error();
  }
  SetPlace(device, dtype, &op);
  Run(op, &call);
  return call.error();
}

FfiError* Handle(CallFrame* frame, HasteDevice device, const Dialect& dialect) {
  const Extension* extension = frame->head.extension;
  if (extension != nullptr && extension->type == kMetadataExtension) {
    // frame->api may be nullptr here. 2.18 to 2.20 want this very version; what is newer takes it.
    extension->metadata->major_version = 0;
    extension->metadata->minor_version = 1;
    extension->metadata->traits = 0;
    return nullptr;
  }
  std::string_view name;
  AttributeReader(frame->attributes).String("op", &name);
  const auto found = Ops().find(name);
  if (found == Ops().end()) {
    const std::string message =
        "haste: the attribute op must name an op, but is '" + std::string(name) + "'";
    return Api(frame->api, dialect).CreateError(HASTE_INVALID_ARGUMENT, message.c_str());
  }
  return std::visit([&](const auto& op) { return RunOp(op, device, *frame, dialect); },
                    found->second);
}

// A handler has no data of its own.
template <const Dialect& kDialect, HasteDevice kDevice>
FfiError* HandleOn(CallFrame* frame) {
  return Handle(frame, kDevice, kDialect);
}

ByteSpan Span(const char* text) { return {text, strlen(text)}; }

template <const Dialect& kDialect>
bool Register(const void* table, bool cuda, std::string* why) {
  const Api api(table, kDialect);
  const auto one = [&](const char* platform, Handler* handler) {
    RegisterArgs args = {{}, Span(kTarget), Span(platform), {}, 0};
    args.bundle[kDialect.execute] = handler;
    FfiError* error = api.Ask(kRegister, &args);
    if (error != nullptr) *why = api.Message(error);
    api.Destroy(error);
    return error == nullptr;
  };
  return one("Host", HandleOn<kDialect, HASTE_CPU>) &&
         (!cuda || one("CUDA", HandleOn<kDialect, HASTE_CUDA>));
}

}  // namespace

bool RegisterHandlers(const void* api, int tensorflow_minor, bool cuda, std::string* why) {
  // Up to kStream the table is as large as it says.
  const Dialect& said = tensorflow_minor == 17 ? kTensorFlow217 : kNewest;
  const size_t least = said.functions + sizeof(void*) * (kStream + 1);
  const size_t size = *static_cast<const size_t*>(api);
  if (size < least || (tensorflow_minor == 17 && size > least + 2 * sizeof(void*))) {
    *why =
        "XLA's table of functions is not that of TensorFlow 2." + std::to_string(tensorflow_minor);
    return false;
  }
  if (tensorflow_minor == 17) return Register<kTensorFlow217>(api, cuda, why);
  if (tensorflow_minor == 18) return Register<kTensorFlow218>(api, cuda, why);
  return Register<kNewest>(api, cuda, why);
}

}  // namespace xla
}  // namespace haste

haste::xla::FfiError* haste_xla_cpu(haste::xla::CallFrame* frame) {
  return haste::xla::Handle(frame, HASTE_CPU, haste::xla::kNewest);
}

haste::xla::FfiError* haste_xla_cuda(haste::xla::CallFrame* frame) {
  return haste::xla::Handle(frame, HASTE_CUDA, haste::xla::kNewest);
}
