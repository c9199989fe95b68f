// Products by cuBLAS. It is not linked: the process's own is used, or an installed one.
#ifndef HASTE_LIB_CUDA_HOST_CUBLAS_H_
#define HASTE_LIB_CUDA_HOST_CUBLAS_H_

#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"
#include "lib/cuda/host/context.h"

namespace haste {

// A matrix of a batch. `along_rows`: neighbours of a row are neighbours in memory, rows `stride`
// elements apart; else columns are.
struct CublasMatrix {
  const void* data;
  int64_t stride, batch_stride;
  bool along_rows = true;
};

// c = a·b, or c += a·b, of each of a batch; a: [rows, depth], b: [depth, columns], c:
// [rows, columns], its rows c_stride apart.
struct CublasProduct {
  int32_t dtype, c_dtype;  // of a and b; of c
  bool allow_tf32, adds;
  int64_t rows, columns, depth, batch = 1;
  CublasMatrix a, b;
  void* c;
  int64_t c_stride, c_batch_stride = 0;
};

// Can the current context's products be given to it? Looks for it when first asked, once a context;
// again where there was no memory for it.
bool HaveCublas();
// And of this dtype? bfloat16 needs a GPU of compute capability 8.0.
bool HaveCublasFor(int32_t dtype);

// One call's use of cuBLAS, on the call's stream. Its handle is used by no other call until this
// object is destroyed.
class CublasCall {
 public:
  CublasCall() = default;
  ~CublasCall();
  CublasCall(const CublasCall&) = delete;
  CublasCall& operator=(const CublasCall&) = delete;

  // workspace: null, or memory of the caller's for what it adds up in parts.
  int32_t Begin(const HasteExecutor&, void* workspace, size_t bytes, HasteStatus*);
  // Sizes and strides below 2^31. The same bits for the same product, with a workspace; without
  // one, while no other stream is at work.
  int32_t Multiply(const CublasProduct&, HasteStatus*) const;

 private:
  const struct CublasFunctions* cublas_ = nullptr;
  void* handle_ = nullptr;
  ContextKey context_;
};

// Memory that lets it choose freely, and may begin anywhere.
constexpr size_t kCublasWorkspace = (32 << 20) + 256;

}  // namespace haste

#endif  // HASTE_LIB_CUDA_HOST_CUBLAS_H_
