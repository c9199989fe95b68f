#include "frameworks/ops/matmul.h"

namespace haste {
namespace {

Signature Make(Form form) {
  if (form == Form::kInt8) {
    return {"HasteMatMulInt8",
            {{"a", "RC", "T", false}, {"b", "CW", "int8", false}, {"b_scale", "W", "float", false}},
            {{"product", "RW", "T", false}}};
  }
  const bool of_a = form == Form::kTransposeA, of_b = form == Form::kTransposeB;
  const char* const op = of_a   ? "HasteMatMulTransposeA"
                         : of_b ? "HasteMatMulTransposeB"
                                : "HasteMatMul";
  return {op,
          {{"a", of_b ? "RW" : "RC", "T", false}, {"b", of_a ? "RW" : "CW", "T", false}},
          {{"product",
            of_a   ? "CW"
            : of_b ? "RC"
                   : "RW",
            "T", false}}};
}

const Signature& SignatureOf(Form form) {
  static const auto* const all = new Signature[4]{Make(Form::kPlain), Make(Form::kTransposeA),
                                                  Make(Form::kTransposeB), Make(Form::kInt8)};
  return all[static_cast<int>(form)];
}

}  // namespace

MatMulOp::MatMulOp(Form of_form) : form(of_form), signature(SignatureOf(of_form)) {}

}  // namespace haste
