// Where a kernel's work runs: TensorFlow's threads or its CUDA stream.
#ifndef HASTE_FRAMEWORKS_TF_CONTEXT_EXECUTOR_H_
#define HASTE_FRAMEWORKS_TF_CONTEXT_EXECUTOR_H_

#include <string>

#include "haste/c_api.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {

// The intra-op pool of the kernel's device. Leaves *executor as it is, which means threads of
// haste's own, where TensorFlow's ABI is not known; that is said on stderr once.
void UseIntraOpPool(TF_OpKernelContext* context, HasteExecutor* executor);

// The stream that the kernel's work is ordered on. False, with a sentence in *error, if it cannot
// be found.
bool UseCudaStream(TF_OpKernelContext* context, HasteExecutor* executor, std::string* error);

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_CONTEXT_EXECUTOR_H_
