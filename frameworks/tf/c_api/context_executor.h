// Where a kernel's work runs: TensorFlow's threads or its CUDA stream.
#ifndef HASTE_FRAMEWORKS_TF_C_API_CONTEXT_EXECUTOR_H_
#define HASTE_FRAMEWORKS_TF_C_API_CONTEXT_EXECUTOR_H_

#include <string>

#include "haste/c_api.h"
#include "tensorflow/c/kernels.h"

namespace haste {
namespace tf {

// Sets *executor to the intra-op pool of the kernel's device. If TensorFlow's ABI is not known, it
// leaves *executor as it is, so haste uses its own threads, and says so on stderr once.
void UseIntraOpPool(TF_OpKernelContext* context, HasteExecutor* executor);

// After UseIntraOpPool: a thread that has helped waits for the next call (waiting_thread.h).
void LetThreadWait(HasteExecutor* executor);

// Sets the CUDA stream of the kernel's work. Returns false and sets *error if it cannot be found.
bool UseCudaStream(TF_OpKernelContext* context, HasteExecutor* executor, std::string* error);

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_C_API_CONTEXT_EXECUTOR_H_
