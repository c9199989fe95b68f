// Products of matrices, by haste_gemm. Each op's gradients are products of the other two.
//
//   HasteMatMul:           a [R, C],  b [C, W] -> a·b   [R, W]
//   HasteMatMulTransposeA: a [R, C],  b [R, W] -> aᵀ·b  [C, W]
//   HasteMatMulTransposeB: a [R, W],  b [C, W] -> a·bᵀ  [R, C]
//
// HasteMatMulInt8 has no gradients: a [R, C], b [C, W] int8, b_scale [W] -> a·(b·scale) [R, W], as
// "int8" of c_api.h says.
#ifndef HASTE_FRAMEWORKS_OPS_MATMUL_H_
#define HASTE_FRAMEWORKS_OPS_MATMUL_H_

#include <stdint.h>

#include "frameworks/ops/signature.h"
#include "haste/c_api.h"

namespace haste {

enum class Form { kPlain, kTransposeA, kTransposeB, kInt8 };

struct MatMulOp {
  explicit MatMulOp(Form of_form);

  Form form;
  const Signature& signature;
  HasteDevice device = HASTE_CPU;
  HasteDtype dtype = HASTE_FLOAT32;
};

// Runs the op, or reports an error to the call. `Call` is as rnn_run.h says.
template <class Call>
void Run(const MatMulOp& op, Call* call) {
  if (!call->Begin()) return;
  const int64_t rows = call->Size('R'), features = call->Size('C'), columns = call->Size('W');
  const bool of_a = op.form == Form::kTransposeA, of_b = op.form == Form::kTransposeB;
  HasteGemm gemm = HASTE_INIT(HasteGemm);
  gemm.dtype = op.dtype;
  gemm.device = op.device;
  gemm.m = of_a ? features : rows;
  gemm.n = of_b ? features : columns;
  gemm.k = of_a ? rows : of_b ? columns : features;
  gemm.a = call->Input(0);
  gemm.a_row = of_a ? 1 : gemm.k;
  gemm.a_col = of_a ? gemm.m : 1;
  gemm.b = call->Input(1);
  gemm.b_row = of_b ? 1 : gemm.n;
  gemm.b_col = of_b ? gemm.k : 1;
  if (op.form == Form::kInt8) gemm.b_scale = static_cast<const float*>(call->Input(2));
  gemm.c = call->Output(0);
  gemm.c_row = gemm.n;
  void* workspace = call->Workspace([&](size_t* bytes, HasteStatus* error) {
    return haste_gemm_workspace_bytes(&gemm, bytes, error);
  });
  HasteStatus error = {};
  if (call->ok() && haste_gemm(&gemm, workspace, &call->executor(), &error) != HASTE_OK) {
    call->Report(error);
  }
}

}  // namespace haste

#endif  // HASTE_FRAMEWORKS_OPS_MATMUL_H_
