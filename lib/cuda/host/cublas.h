// Products by cuBLAS. It is not linked: the one that the process has loaded is used, or an
// installed one.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"
#include "lib/cuda/host/context.h"

namespace haste {

// A batch of matrices. along_rows: rows are contiguous and `stride` elements apart; otherwise
// columns are.
struct CublasMatrix {
  const void* data;
  int64_t stride, batch_stride;
  bool along_rows = true;
};

// c = a·b or c += a·b for each matrix of a batch. a: [rows, depth], b: [depth, columns],
// c: [rows, columns] with rows c_stride elements apart.
struct CublasProduct {
  int32_t dtype, c_dtype;  // of a and b; of c
  bool allow_tf32, adds;
  int64_t rows, columns, depth, batch = 1;
  CublasMatrix a, b;
  void* c;
  int64_t c_stride, c_batch_stride = 0;
};

// Whether cuBLAS can be used in the current context. The first call looks it up; a later call does
// so again if memory ran out.
bool HaveCublas();
// The same for a dtype. bfloat16 needs compute capability 8.0.
bool HaveCublasFor(int32_t dtype);

// Use of cuBLAS by one call, on its stream. No other call uses the handle until this object is
// destroyed.
class CublasCall {
 public:
  CublasCall() = default;
  ~CublasCall();
  CublasCall(const CublasCall&) = delete;
  CublasCall& operator=(const CublasCall&) = delete;

  // workspace: memory for partial sums, or null.
  int32_t Begin(const HasteExecutor&, void* workspace, size_t bytes, HasteStatus*);
  // Sizes and strides must be below 2^31. Equal products give equal bits with a workspace. Without
  // one they do so only while no other stream runs.
  int32_t Multiply(const CublasProduct&, HasteStatus*) const;

 private:
  const struct CublasFunctions* cublas_ = nullptr;
  void* handle_ = nullptr;
  ContextKey context_;
};

// Workspace bytes with which cuBLAS can use every algorithm. It may begin at any address.
constexpr size_t kCublasWorkspace = (32 << 20) + 256;

}  // namespace haste
