// Sums over the threads of a block and over the rows of a matrix, in one fixed order.
#pragma once

#include <cstdint>

#include "lib/base/int_math.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ptx/vector_access.cuh"

namespace haste {

constexpr int kWarpThreads = 32;

// kCount sums over the threads of a warp. All of them get the same bits.
template <class C, int kCount>
HASTE_DEVICE void SumOfWarp(C (&sum)[kCount]) {
  HASTE_UNROLL for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      sum[i] += __shfl_xor_sync(0xFFFFFFFFu, sum[i], distance);
    }
  }
}

// kCount sums over the threads that share threadIdx.y: one warp, or all of a block that has one y.
// All of them call it, and all get the same bits.
template <class C, int kCount>
class BlockSum {
 public:
  static constexpr int kMaxWarps = 32;
  struct Shared {
    C parts[2][kMaxWarps][kCount];
  };

  __device__ explicit BlockSum(Shared* shared) : shared_(shared) {}

  __device__ void operator()(C (&sum)[kCount]) {
    SumOfWarp(sum);
    const int warps = blockDim.x / kWarpThreads;
    if (warps == 1) return;
    // Two alternating buffers: the barrier of one call separates the calls before and after it.
    C(*const parts)[kCount] = shared_->parts[turn_];
    turn_ ^= 1;
    const int warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    if (lane == 0) {
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) parts[warp][i] = sum[i];
    }
    __syncthreads();
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) sum[i] = lane < warps ? parts[lane][i] : C(0);
    SumOfWarp(sum);
  }

 private:
  Shared* const shared_;
  int turn_ = 0;
};

// Mean and 1 / sqrt(variance + epsilon) of a row of `count` values.
template <class C>
struct Moments {
  C mean, scale;

  HASTE_DEVICE C Normed(C value) const { return (value - mean) * scale; }
};

template <class C>
HASTE_DEVICE C InverseDeviation(C squares, C count, float epsilon) {
  return C(1) / sqrt(squares / count + static_cast<C>(epsilon));
}

constexpr int kSumColumns = 32, kSumRows = 32;

// out[c] = Σ_r in[r, c] of in [rows, columns]. Blocks of kSumColumns × kSumRows threads, one for
// every kSumColumns columns.
template <class From, class To>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    SumOverRows(int64_t rows, int64_t columns, const From* in, To* out) {
  using C = Compute<To>;
  __shared__ C parts[kSumRows][kSumColumns + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  C sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < rows; row += kSumRows) {
      sum += ToCompute(in[row * columns + column]);
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  for (int half = kSumRows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) {
      parts[threadIdx.y][threadIdx.x] += parts[threadIdx.y + half][threadIdx.x];
    }
  }
  if (threadIdx.y == 0 && column < columns) out[column] = FromCompute<To>(parts[0][threadIdx.x]);
}

template <class From, class To>
int32_t LaunchSumOverRows(int64_t rows, int64_t columns, const From* in, void* out,
                          const HasteExecutor& executor, HasteStatus* status) {
  const int64_t blocks = CeilDiv(columns, kSumColumns);
  HASTE_TRY(CheckBlocks(blocks, "columns", status));
  return HASTE_CUDA_STATUS(Launch(SumOverRows<From, To>, {blocks, dim3(kSumColumns, kSumRows)},
                                  executor, rows, columns, in, static_cast<To*>(out)),
                           status);
}

}  // namespace haste
