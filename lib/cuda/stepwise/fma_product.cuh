// The product of one step inside a block: sums[row, column] = Σ_d a[d, row] · b[d, column].
//
// A goes through shared memory in chunks, by asynchronous copies, because every column of the block
// uses each of its elements. B is read once, by one group of threads, so it goes from L2 directly
// to registers, 16 bytes a load for float, several loads ahead of its use. Threads split the depth.
// Their accumulators go to shared memory and are summed in one fixed order.
#pragma once

#include "lib/base/math.h"
#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/plan/engines/stepwise.h"

namespace haste {

template <class T, int kRows, int kColumns>
class StepProduct {
  using C = Compute<T>;
  static constexpr int kDepth = DepthPerChunk(sizeof(T));
  static constexpr int kRowBytes = kRows * sizeof(C);
  static constexpr int kCopyBytes = kRowBytes < 16 ? kRowBytes : 16;
  static constexpr int kCopyElements = kCopyBytes / sizeof(C);

 public:
  // b: this block's tile, [padded_depth, block_columns]. shared: tiling.shared_bytes of memory.
  __device__ StepProduct(const Tiling& tiling, const T* b, C* shared)
      : tile_(tiling), shared_(shared) {
    const int column_group = threadIdx.x % tile_.column_groups;
    const int rest = threadIdx.x / tile_.column_groups;
    const int row_group = rest % tile_.row_groups;
    const int split = rest / tile_.row_groups;
    // Leftover threads repeat the work of the last split and do not store it.
    idle_ = split >= tile_.k_splits;
    split_ = idle_ ? tile_.k_splits - 1 : split;
    row_ = row_group * kRows;
    column_ = column_group * kColumns;
    b_ = b + split_ * tile_.block_columns() + column_;
  }

  // Starts to read B. No step writes B, so this does not wait for the previous step.
  __device__ void Prefetch() {
    const T* from = b_;
    HASTE_UNROLL for (int i = 0; i < kDepth; ++i) {
      if (i < tile_.iterations) ahead_[i] = LoadFragment<kColumns>(from);
      from += b_stride();
    }
  }

  // After Prefetch. a: [padded_depth, a_stride], at the block's first row. Leaves partial sums in
  // shared memory; after a barrier, Sum() adds them up.
  __device__ void Multiply(const C* a, int64_t a_stride) {
    const int chunk_depth = kDepth * tile_.k_splits;
    const int chunk_elements = chunk_depth * tile_.row_stride;
    const int ahead = tile_.stages - 1;
    for (int chunk = 0; chunk < ahead; ++chunk) {
      CopyChunk(a, a_stride, chunk, shared_ + chunk * chunk_elements);
    }
    C sums[kRows][kColumns] = {};
    const T* b = b_ + static_cast<int64_t>(kDepth) * b_stride();
    int stage = 0;
    int left = tile_.iterations;
    for (int chunk = 0; left > 0; ++chunk, left -= kDepth) {
      WaitCopies(tile_.stages - 2);
      __syncthreads();  // the chunk has arrived for all, and all are done with the previous one
      const int freed = stage == 0 ? tile_.stages - 1 : stage - 1;
      CopyChunk(a, a_stride, chunk + ahead, shared_ + freed * chunk_elements);
      const C* rows = shared_ + stage * chunk_elements + split_ * tile_.row_stride + row_;
      if (left >= 2 * kDepth) {
        MultiplyChunk<true, true>(rows, b, left, sums);
      } else if (left > kDepth) {
        MultiplyChunk<true, false>(rows, b, left, sums);
      } else {
        MultiplyChunk<false, false>(rows, b, left, sums);
      }
      b += static_cast<int64_t>(kDepth) * b_stride();
      stage = stage + 1 == tile_.stages ? 0 : stage + 1;
    }
    __syncthreads();  // the sums overwrite the chunks
    if (!idle_) {
      C* to = shared_ + split_ * tile_.sum_stride + row_ * tile_.block_columns() + column_;
      HASTE_UNROLL for (int r = 0; r < kRows; ++r)
          StoreShared(to + r * tile_.block_columns(), sums[r]);
    }
  }

  // sum: [kCount] of the block's row `row` from its column `column` on, returned to each of the
  // tile.sum_lanes neighbouring threads that ask for it together. Call this from whole warps.
  template <int kCount>
  __device__ void Sum(int row, int column, C (&sum)[kCount]) const {
    constexpr int kBatch = 4;  // loads in flight
    const int lanes = tile_.sum_lanes;
    const int stride = lanes * tile_.sum_stride;
    int split = threadIdx.x & (lanes - 1);
    const C* from = shared_ + split * tile_.sum_stride + row * tile_.block_columns() + column;
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) sum[i] = C(0);
    for (; split + (kBatch - 1) * lanes < tile_.k_splits; split += kBatch * lanes) {
      Fragment<C, kCount> part[kBatch];
      HASTE_UNROLL for (int b = 0; b < kBatch; ++b, from += stride) {
        part[b] = LoadFragment<kCount>(from);
      }
      HASTE_UNROLL for (int b = 0; b < kBatch; ++b) {
        HASTE_UNROLL for (int i = 0; i < kCount; ++i) sum[i] += part[b].v[i];
      }
    }
    for (; split < tile_.k_splits; split += lanes, from += stride) {
      const Fragment<C, kCount> part = LoadFragment<kCount>(from);
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) sum[i] += part.v[i];
    }
    for (int distance = 1; distance < lanes; distance *= 2) {
      HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
        sum[i] += __shfl_xor_sync(0xFFFFFFFFu, sum[i], distance);
      }
    }
  }

 private:
  __device__ int b_stride() const { return tile_.k_splits * tile_.block_columns(); }

  // Always commits a group, an empty one if there is no such chunk, because WaitCopies counts
  // groups.
  __device__ void CopyChunk(const C* a, int64_t a_stride, int chunk, C* to) const {
    const int first = chunk * kDepth * tile_.k_splits;
    const int depth = min(kDepth * tile_.k_splits, tile_.iterations * tile_.k_splits - first);
    // A power of two, as row_groups is.
    const int copies = tile_.block_rows() / kCopyElements;
    const int shift = __ffs(copies) - 1;
    a += first * a_stride;
    for (int i = threadIdx.x; i < depth << shift; i += kStepThreads) {
      const int d = i >> shift;
      const int at = (i & (copies - 1)) * kCopyElements;
      CopyAsync<kCopyBytes>(to + d * tile_.row_stride + at, a + d * a_stride + at);
    }
    CommitCopies();
  }

  // b: receives what B holds kDepth iterations later. kWhole, kNextWhole: this chunk, or the next,
  // is whole.
  template <bool kWhole, bool kNextWhole>
  HASTE_DEVICE void MultiplyChunk(const C* rows, const T* b, int left, C (&sums)[kRows][kColumns]) {
    const int step = tile_.k_splits * tile_.row_stride;
    HASTE_UNROLL for (int i = 0; i < kDepth; ++i) {
      if (kWhole || i < left) {
        C bv[kColumns];
        HASTE_UNROLL for (int c = 0; c < kColumns; ++c) bv[c] = ToCompute(ahead_[i].v[c]);
        Fragment<C, kRows> av;
        HASTE_UNROLL for (int r = 0; r < kRows; r += kCopyElements) {
          const auto part = LoadFragment<kCopyElements>(rows + r);
          HASTE_UNROLL for (int e = 0; e < kCopyElements; ++e) av.v[r + e] = part.v[e];
        }
        HASTE_UNROLL for (int r = 0; r < kRows; ++r) {
          HASTE_UNROLL for (int c = 0; c < kColumns; ++c) {
            sums[r][c] = MulAdd(av.v[r], bv[c], sums[r][c]);
          }
        }
        if (kNextWhole || (kWhole && i + kDepth < left)) {
          ahead_[i] = LoadFragment<kColumns>(b);
        }
        rows += step;
        b += b_stride();
      }
    }
  }

  const Tiling& tile_;
  C* const shared_;
  const T* b_;
  int split_, row_, column_;
  bool idle_;
  Fragment<T, kColumns> ahead_[kDepth];
};

}  // namespace haste
