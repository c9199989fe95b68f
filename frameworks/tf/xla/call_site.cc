#include "frameworks/tf/xla/call_site.h"

#include <new>
#include <utility>

#include "frameworks/tf/c_api/tf_status.h"
#include "frameworks/xla/attributes.h"
#include "frameworks/xla/handler.h"

namespace haste {
namespace tf {
namespace {

constexpr int kNoSchedule = 0, kTypedFfi = 4;  // of XLA's enums

// Shapes of XLA, side by side as in a std::vector<xla::Shape>.
class ShapeList {
 public:
  ShapeList(const XlaFunctions& xla, size_t capacity)
      : xla_(xla), bytes_(xla.abi->xla_shape_bytes) {
    begin_ = end_ = static_cast<char*>(::operator new(capacity * bytes_));
    capacity_ = begin_ + capacity * bytes_;
  }
  // The three pointers are the vector's.
  ~ShapeList() { xla_.destroy_shapes(&begin_); }
  ShapeList(const ShapeList&) = delete;
  ShapeList& operator=(const ShapeList&) = delete;

  void Add(int type, const std::vector<int64_t>& dims) {
    new (end_) XlaShape(xla_.make_shape(type, {dims.data(), dims.size()}));
    end_ += bytes_;
  }
  // Adds a tuple of all shapes from `first` on.
  void AddTuple(size_t first) {
    new (end_) XlaShape(xla_.make_tuple_shape(From(first)));
    end_ += bytes_;
  }
  size_t size() const { return static_cast<size_t>(end_ - begin_) / bytes_; }
  const void* back() const { return end_ - bytes_; }
  XlaSpan From(size_t first) const { return {begin_ + first * bytes_, size() - first}; }
  XlaSpan First(size_t count) const { return {begin_, count}; }

 private:
  const XlaFunctions& xla_;
  const size_t bytes_;
  char *begin_, *end_, *capacity_;
};

// Stands for an object of a class derived from XlaOpKernel, of which XlaOpKernel::Compute reads
// nothing but where its `Compile` is.
template <class Function>
struct Kernel {
  void* const* virtual_functions;
  const Function* compile;

  static void Compile(void* self, void* xla_context) {
    (*static_cast<Kernel*>(self)->compile)(xla_context);
  }
};

template <class Function>
void WithXlaContext(const XlaFunctions& xla, TF_OpKernelContext* context,
                    const Function& function) {
  std::vector<void*> table(xla.abi->xla_kernel_compile + 1, nullptr);
  table.back() = reinterpret_cast<void*>(Kernel<Function>::Compile);
  Kernel<Function> kernel = {table.data(), &function};
  xla.compute(&kernel, context);
}

// Of one of several outputs, and of the only one, which is no tuple.
XlaAlias AliasOf(int output, int operand) { return {{2, {output, 0}}, operand, {0, {0, 0}}}; }
XlaAlias AliasOfOnly(int operand) { return {{0, {0, 0}}, operand, {0, {0, 0}}}; }

}  // namespace

CallSite::CallSite(const Signature& signature, Sizes sizes, HasteDtype dtype,
                   std::string attributes)
    : signature_(signature),
      sizes_(std::move(sizes)),
      dtype_(dtype),
      attributes_(std::move(attributes)),
      left_out_(signature.outputs.size(), false) {}

CallSite::CallSite(const RnnOp& op)
    : CallSite(op.signature, CellSizes(*op.cell), static_cast<HasteDtype>(op.options.config.dtype),
               xla::WriteAttributes(op)) {
  const Positions &in = op.signature.in, &out = op.signature.out;
  const auto alias = [&](int output, int input) {
    if (output >= 0 && !left_out_[output]) aliases_.push_back(AliasOf(output, input));
  };
  for (size_t i = 0; i < left_out_.size(); ++i) {
    if (!signature_.outputs[i].optional) continue;
    const std::vector<uint8_t>& wanted = op.options.wanted;
    const size_t own = i - op.signature.out.sequence;
    left_out_[i] = op.backward() ? own >= wanted.size() || !wanted[own] : !op.options.save;
  }
  for (int i = op.options.Saved(*op.cell); !op.backward() && i < op.cell->saved; ++i) {
    left_out_[out.saved + i] = true;
  }
  // Not the gates and wx of forward: wx is often a parameter, which XLA would copy first. Where it
  // is not, XLA uses its memory again after the call.
  if (!op.backward()) return;
  alias(out.wx, in.gates);
  for (int g = 0; op.cell->separate_gates && g < op.cell->gates; ++g) alias(out.x + g, in.x + g);
  if (op.cell->splits_gradient && op.cell->normalizes) alias(out.q, in.products);
}

CallSite::CallSite(const LayerNormOp& op)
    : CallSite(op.signature, Sizes(), op.dtype, xla::WriteAttributes(op)) {
  aliases_ = {op.backward ? AliasOf(0, 2) : AliasOfOnly(0)};
}

CallSite::CallSite(const MatMulOp& op)
    : CallSite(op.signature, Sizes(), op.dtype, xla::WriteAttributes(op)) {}

int CallSite::TypeOf(const Argument& argument) const {
  if (argument.type == "bool") return xla::kPred;
  if (argument.type == "int64") return xla::kS64;
  switch (dtype_) {
    case HASTE_FLOAT64: return xla::kF64;
    case HASTE_FLOAT16: return xla::kF16;
    case HASTE_BFLOAT16: return xla::kBF16;
    default: return xla::kF32;
  }
}

// XLA's tensors have the shapes of what they stand for.
bool CallSite::InferShapes(TF_OpKernelContext* context, Shapes* inputs, Shapes* outputs) const {
  Status status;
  for (size_t i = 0; status.ok() && i < signature_.inputs.size(); ++i) {
    TF_Tensor* read = nullptr;
    TF_GetInput(context, static_cast<int>(i), &read, status.get());
    if (!status.ok()) break;
    const Tensor tensor(read);
    std::vector<int64_t> shape(TF_NumDims(read));
    for (size_t d = 0; d < shape.size(); ++d) shape[d] = TF_Dim(read, static_cast<int>(d));
    inputs->push_back(std::move(shape));
  }
  Sizes sizes = sizes_;
  std::string error;
  if (status.ok() && !BindAll(signature_, *inputs, &sizes, &error)) {
    status.Invalid(signature_.op + ": " + error);
  }
  if (!status.ok()) {
    TF_OpKernelContext_Failure(context, status.get());
    return false;
  }
  for (size_t i = 0; i < left_out_.size(); ++i) {
    outputs->push_back(left_out_[i] ? std::vector<int64_t>{0}
                                    : sizes.Shape(signature_.outputs[i].dims));
  }
  return true;
}

void CallSite::Emit(const XlaFunctions& functions, TF_OpKernelContext* context) const {
  Shapes inputs, outputs;
  if (!InferShapes(context, &inputs, &outputs)) return;
  WithXlaContext(functions, context,
                 [&](void* xla_context) { EmitIn(functions, xla_context, inputs, outputs); });
}

void CallSite::EmitIn(const XlaFunctions& functions, void* context, const Shapes& inputs,
                      const Shapes& outputs) const {
  std::vector<XlaOp> operands;
  ShapeList shapes(functions, inputs.size() + outputs.size() + 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(functions.input(context, static_cast<int>(i)));
    shapes.Add(TypeOf(signature_.inputs[i]), inputs[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    shapes.Add(TypeOf(signature_.outputs[i]), outputs[i]);
  }
  // XLA of 2.17 does not run a call whose result is a tuple of one.
  const bool tuple = outputs.size() > 1;
  if (tuple) shapes.AddTuple(inputs.size());
  const XlaOp call = functions.custom_call(
      functions.builder(context), xla::kTarget, {operands.data(), operands.size()}, shapes.back(),
      shapes.First(inputs.size()), attributes_, /*has_side_effect=*/false,
      {aliases_.data(), aliases_.size()}, /*literal=*/nullptr, kNoSchedule, kTypedFfi);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const XlaOp output = tuple ? functions.tuple_element(call, static_cast<int64_t>(i)) : call;
    if (functions.set_output_by_reference != nullptr) {
      functions.set_output_by_reference(context, static_cast<int>(i), output);
    } else {
      functions.set_output(context, static_cast<int>(i), output);
    }
  }
}

}  // namespace tf
}  // namespace haste
