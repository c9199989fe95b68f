// The attributes of an op, read and checked once, when TensorFlow constructs the kernel.
#ifndef HASTE_FRAMEWORKS_TF_C_API_OP_OPTIONS_H_
#define HASTE_FRAMEWORKS_TF_C_API_OP_OPTIONS_H_

#include <memory>
#include <utility>

#include "frameworks/ops/layer_norm.h"
#include "frameworks/ops/matmul.h"
#include "frameworks/ops/rnn_op.h"
#include "frameworks/tf/c_api/tf_status.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {

// Set what the attributes say. They return false and set the status if one is wrong.
bool ReadOptions(TF_OpKernelConstruction* context, RnnOp* op, Status* status);
bool ReadOptions(TF_OpKernelConstruction* context, LayerNormOp* op, Status* status);
bool ReadOptions(TF_OpKernelConstruction* context, MatMulOp* op, Status* status);

// `op` with its options: what the constructor of a kernel returns. nullptr after an error, which it
// reports to TensorFlow.
template <class AnyOp>
AnyOp* WithOptions(std::unique_ptr<AnyOp> op, TF_OpKernelConstruction* context) {
  Status status;
  if (ReadOptions(context, op.get(), &status)) return op.release();
  status.Fail(TF_GetCode(status.get()), op->signature.op + ": " + TF_Message(status.get()));
  TF_OpKernelConstruction_Failure(context, status.get());
  return nullptr;
}

template <class AnyOp>
void DeleteOp(void* op) {
  delete static_cast<AnyOp*>(op);
}

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_C_API_OP_OPTIONS_H_
