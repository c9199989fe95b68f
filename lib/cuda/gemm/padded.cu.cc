#include "lib/cuda/gemm/padded.h"

#include <algorithm>

#include "lib/base/dtypes.h"
#include "lib/base/int_math.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"

namespace haste {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = 16;  // bytes
// With fewer multiply-adds the copies take as long as they save.
constexpr double kWorthCopies = 3e9;

// Rows and columns of a matrix, and from one row to the next.
struct Matrix {
  int64_t rows, columns, stride;
};

// to = from, and 0 where `from` has ended. Columns, strides and memory are in elements of E.
template <class E>
__global__ void CopyPadded(const E* from, Matrix of, E* to, Matrix padded) {
  for (int64_t row = blockIdx.x; row < padded.rows; row += gridDim.x) {
    const bool inside = row < of.rows;
    for (int64_t j = threadIdx.x; j < padded.columns; j += kThreads) {
      to[row * padded.stride + j] = inside && j < of.columns ? from[row * of.stride + j] : E(0);
    }
  }
}

template <class E>
bool InPiecesOf(int64_t size, const void* from, const Matrix& of, const void* to,
                const Matrix& padded) {
  const int64_t elements = std::max<int64_t>(sizeof(E) / size, 1);
  const uintptr_t memory = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  const int64_t all = of.columns | of.stride | padded.columns | padded.stride;
  return all % elements == 0 && memory % sizeof(E) == 0;
}

template <class E>
cudaError_t Copy(int64_t size, const void* from, Matrix of, void* to, Matrix padded,
                 const HasteExecutor& executor) {
  const int64_t elements = sizeof(E) / size;
  for (int64_t Matrix::* field : {&Matrix::columns, &Matrix::stride}) {
    of.*field /= elements;
    padded.*field /= elements;
  }
  return Launch(CopyPadded<E>, {std::min<int64_t>(padded.rows, 1 << 16), kThreads}, executor,
                static_cast<const E*>(from), of, static_cast<E*>(to), padded);
}

// size: bytes of an element, 2 or 4.
int32_t CopyMatrix(int64_t size, const void* from, const Matrix& of, void* to, const Matrix& padded,
                   const HasteExecutor& executor, HasteStatus* status) {
  if (InPiecesOf<uint64_t>(size, from, of, to, padded)) {
    HASTE_CUDA_TRY(Copy<uint64_t>(size, from, of, to, padded, executor), status);
  } else if (InPiecesOf<uint32_t>(size, from, of, to, padded)) {
    HASTE_CUDA_TRY(Copy<uint32_t>(size, from, of, to, padded, executor), status);
  } else {
    HASTE_CUDA_TRY(Copy<uint16_t>(size, from, of, to, padded, executor), status);
  }
  return HASTE_OK;
}

// A matrix whose columns, not rows, may be what lies together.
Matrix AsItLies(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return column_stride == 1 ? Matrix{rows, columns, row_stride}
                            : Matrix{columns, rows, column_stride};
}

bool ByTensorCores(const HasteGemm& g) {
  return g.dtype == HASTE_FLOAT16 || g.dtype == HASTE_BFLOAT16 ||
         (g.dtype == HASTE_FLOAT32 && g.allow_tf32 != 0);
}

}  // namespace

PaddedProduct::PaddedProduct(const HasteGemm& g) : gemm_(g), m_(g.m), n_(g.n), k_(g.k) {
  const double products =
      static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  if (!ByTensorCores(g) || products < kWorthCopies) return;
  const int64_t size = static_cast<int64_t>(DtypeSize(g.dtype)), unit = kPiece / size;
  // What lies together in one of the matrices.
  const bool m_lies_together = g.a_col != 1, k_lies_together = g.a_col == 1 || g.b_col != 1;
  if (m_lies_together) m_ = PadTo(g.m, unit);
  if (k_lies_together) k_ = PadTo(g.k, unit);
  n_ = PadTo(g.n, unit);
  const int64_t a_stride = g.a_col == 1 ? g.a_row : g.a_col;
  const int64_t b_stride = g.b_col == 1 ? g.b_row : g.b_col;
  copies_a_ = m_ != g.m || k_ != g.k || a_stride % unit != 0;
  copies_b_ = n_ != g.n || k_ != g.k || b_stride % unit != 0;
  copies_c_ = m_ != g.m || n_ != g.n;
  if (copies_a_) a_bytes_ = PadTo(m_ * k_ * size, kPiece);
  if (copies_b_) b_bytes_ = PadTo(k_ * n_ * size, kPiece);
  bytes_ = a_bytes_ + b_bytes_ + (copies_c_ ? m_ * n_ * size : 0);
}

int32_t PaddedProduct::Begin(void* memory, const HasteExecutor& executor, HasteGemm* product,
                             HasteStatus* status) const {
  const HasteGemm& g = gemm_;
  const int64_t size = static_cast<int64_t>(DtypeSize(g.dtype));
  char* const place = static_cast<char*>(memory);
  *product = g;
  product->m = m_;
  product->n = n_;
  product->k = k_;
  product->bias = nullptr;
  if (copies_a_) {
    Matrix padded = AsItLies(m_, k_, 0, g.a_col);
    padded.stride = padded.columns;
    (g.a_col == 1 ? product->a_row : product->a_col) = padded.stride;
    product->a = place;
    HASTE_TRY(CopyMatrix(size, g.a, AsItLies(g.m, g.k, g.a_row, g.a_col), place, padded, executor,
                         status));
  }
  if (copies_b_) {
    Matrix padded = AsItLies(k_, n_, 0, g.b_col);
    padded.stride = padded.columns;
    (g.b_col == 1 ? product->b_row : product->b_col) = padded.stride;
    product->b = place + a_bytes_;
    HASTE_TRY(CopyMatrix(size, g.b, AsItLies(g.k, g.n, g.b_row, g.b_col), place + a_bytes_, padded,
                         executor, status));
  }
  if (copies_c_) {
    product->c = place + a_bytes_ + b_bytes_;
    product->c_row = n_;
  }
  return HASTE_OK;
}

int32_t PaddedProduct::End(const HasteGemm& product, const HasteExecutor& executor,
                           HasteStatus* status) const {
  if (!copies_c_) return HASTE_OK;
  const int64_t size = static_cast<int64_t>(DtypeSize(gemm_.dtype));
  return CopyMatrix(size, product.c, {gemm_.m, gemm_.n, product.c_row}, gemm_.c,
                    {gemm_.m, gemm_.n, gemm_.c_row}, executor, status);
}

}  // namespace haste
