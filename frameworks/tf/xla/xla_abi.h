// The functions of XLA's compiler that a kernel needs to emit a custom call, in the TensorFlow that
// this process runs: found by name, called without XLA's headers.
//
// Arguments have the types of XLA's functions, or types of the same layout, which
// frameworks/tf/abi/probe.cc checks against each version's headers. Calls follow the Itanium C++
// ABI.
#ifndef HASTE_FRAMEWORKS_TF_XLA_XLA_ABI_H_
#define HASTE_FRAMEWORKS_TF_XLA_XLA_ABI_H_

#include <stddef.h>
#include <stdint.h>

#include <string>

#include "frameworks/tf/abi/tf_abi.h"

namespace haste {
namespace tf {

// xla::XlaOp
struct XlaOp {
  int64_t handle;
  void* builder;
};

// absl::Span<const T>
struct XlaSpan {
  const void* data;
  size_t size;
};

// What a function returns that returns an xla::Shape: it writes xla_shape_bytes of the row to where
// the result is to be. The constructors keep compilers from passing it by a copy.
struct XlaShape {
  XlaShape(const XlaShape&) = delete;
  ~XlaShape() {}
  char bytes[512];
};

// xla::ShapeIndex of one number, an absl::InlinedVector<int64_t, 2>: its size and a flag, then the
// elements in place.
struct XlaShapeIndex {
  uint64_t twice_size;
  int64_t elements[2];
};
// std::pair<ShapeIndex, std::pair<int64_t, ShapeIndex>>: an output, and the operand in whose memory
// it may lie.
struct XlaAlias {
  XlaShapeIndex output;
  int64_t operand;
  XlaShapeIndex of_operand;
};

struct XlaFunctions {
  const TfAbi* abi;
  int tensorflow_minor;

  // tensorflow::XlaOpKernel::Compute: makes an XlaOpKernelContext and calls the virtual function
  // `Compile` with it.
  void (*compute)(void* kernel, void* op_kernel_context);
  // XlaOpKernelContext's Input, SetOutput (one of the two: by value from 2.21 on) and builder.
  XlaOp (*input)(void* context, int i);
  void (*set_output)(void* context, int i, XlaOp op);
  void (*set_output_by_reference)(void* context, int i, const XlaOp& op);
  void* (*builder)(const void* context);

  XlaOp (*custom_call)(void* builder, const std::string& target, XlaSpan operands,
                       const void* shape, XlaSpan operand_shapes, const std::string& attributes,
                       bool has_side_effect, XlaSpan aliases, const void* literal, int schedule,
                       int api_version);
  XlaOp (*tuple_element)(XlaOp tuple, int64_t i);
  XlaShape (*make_shape)(int type, XlaSpan dims);
  XlaShape (*make_tuple_shape)(XlaSpan shapes);
  // The destructor of std::vector<xla::Shape>.
  void (*destroy_shapes)(void* vector);

  // xla::ffi::GetXlaFfiApi
  const void* (*ffi_api)();
};

// nullptr if this TensorFlow lacks one of them; *why then says in a sentence what is missing. The
// answer does not change during the process.
const XlaFunctions* RunningXla(std::string* why);

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_XLA_XLA_ABI_H_
