// What the blocks of the engine `block` read and write at every step, by way of shared memory: a
// thread's elements are scattered over rows, what is copied is not.
#ifndef HASTE_LIB_CUDA_BLOCK_TRAFFIC_CUH_
#define HASTE_LIB_CUDA_BLOCK_TRAFFIC_CUH_

#include "lib/block_plan.h"
#include "lib/cuda/async.cuh"
#include "lib/cuda/storage.cuh"
#include "lib/haste/c_api.h"

namespace haste {

// Tensors [N, T, K, width], some rows of them at every step, for the threads that copy. Each has
// the same pieces of 16 bytes at every step, kMost of them or fewer. Where memory does not begin at
// a multiple of that, elements are copied one by one.
template <class T, int kGates, int kTensors, int kMost>
class BlockTraffic {
 public:
  // tensors: null where there is none. thread: of those that copy. from_end: the walk begins there.
  // unit, units: the block's first, and how many it has room for.
  template <class Params>
  __device__ __forceinline__ BlockTraffic(const Params& p, const BlockRows& rows,
                                          void* const (&tensors)[kTensors], int thread,
                                          int64_t first_row, int64_t k, int unit, int units,
                                          bool from_end)
      : rows_(rows),
        thread_(thread),
        hidden_(static_cast<int>(p.H)),
        room_(units),
        run_(min(units, hidden_ - unit) * static_cast<int>(sizeof(T)) / p.piece),
        piece_(p.piece) {
    const int64_t place = (first_row * p.T_ + (from_end ? p.T_ - 1 : 0)) * p.K + k;
#pragma unroll
    for (int i = 0; i < kTensors; ++i) {
      first_[i] = tensors[i] == nullptr
                      ? nullptr
                      : reinterpret_cast<char*>(static_cast<T*>(tensors[i]) +
                                                place * RunsOf(i) * hidden_ + unit);
      if (first_[i] != nullptr) of_row_ += RunsOf(i) * run_;
    }
    const int64_t there = p.N - first_row;
    count_ = static_cast<int>(there < rows.rows ? there : rows.rows) * of_row_;
    const int64_t stride = p.K * p.H * static_cast<int64_t>(sizeof(T));
    row_stride_ = stride * p.T_;
    stride_ = from_end ? -stride : stride;
#pragma unroll
    for (int i = 0; i < kMost; ++i) mine_[i] = Make(thread_ + i * kThreads);
  }

  // Of the next step, from memory to its rows; complete after WaitCopies, and for other threads a
  // barrier.
  __device__ __forceinline__ void Read(T* rows) {
    Each(rows, [](char* shared, char* memory, int piece) {
      if (piece == kBlockPiece) {
        CopyAsync<kBlockPiece>(shared, memory);
      } else {
        *reinterpret_cast<T*>(shared) = *reinterpret_cast<const T*>(memory);
      }
    });
  }
  // Of the next step, from its rows to memory.
  __device__ __forceinline__ void Write(T* rows) {
    Each(rows, [](char* shared, char* memory, int piece) {
      if (piece == kBlockPiece) {
        *reinterpret_cast<uint4*>(memory) = *reinterpret_cast<const uint4*>(shared);
      } else {
        *reinterpret_cast<T*>(memory) = *reinterpret_cast<const T*>(shared);
      }
    });
  }

 private:
  static constexpr int kThreads = kBlockCopyWarps * 32;

  struct Piece {
    char* at;  // at the next step
    int to;    // bytes
    bool wide;
  };

  // The block's units of a tensor's row lie together, of a wide one those of each gate.
  __device__ __forceinline__ int RunsOf(int i) const { return i < rows_.wide ? kGates : 1; }
  // Of the first step.
  __device__ __forceinline__ Piece Make(int i) const {
    Piece piece = {};
    if (i >= count_) return piece;
    const int row = i / of_row_;
    int rest = i % of_row_;
#pragma unroll
    for (int t = 0; t < kTensors; ++t) {
      if (first_[t] == nullptr) continue;
      if (rest >= 0 && rest < RunsOf(t) * run_) {
        constexpr int kBytes = sizeof(T);
        const int run = rest / run_, at = rest % run_ * piece_;
        piece.wide = t < rows_.wide;
        piece.at = first_[t] + row * RunsOf(t) * row_stride_ + run * hidden_ * kBytes + at;
        piece.to = (rows_.At(t, row) + run * room_) * kBytes + at;
      }
      rest -= RunsOf(t) * run_;
    }
    return piece;
  }
  template <class Move>
  __device__ __forceinline__ void Each(T* rows, const Move& move) {
    char* shared = reinterpret_cast<char*>(rows);
    if (piece_ == kBlockPiece) {
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        if (thread_ + i * kThreads >= count_) break;
        move(shared + mine_[i].to, mine_[i].at, kBlockPiece);
        mine_[i].at += mine_[i].wide ? kGates * stride_ : stride_;
      }
    } else {
      for (int i = thread_; i < count_; i += kThreads) {
        const Piece piece = Make(i);
        move(shared + piece.to, piece.at + done_ * (piece.wide ? kGates : 1) * stride_, piece_);
      }
      ++done_;
    }
  }

  const BlockRows rows_;
  const int thread_, hidden_;
  const int room_, run_;  // units of the block; pieces of them that lie together
  const int piece_;
  char* first_[kTensors];  // this block's first row, at the walk's first step
  int of_row_ = 0, count_;
  int64_t done_ = 0;             // steps
  int64_t row_stride_, stride_;  // bytes, of a tensor that is not wide
  Piece mine_[kMost];
};

// In place of a kernel's parameters: where the tensors of a step are, of one row.
template <class T>
struct BlockRow {
  using Storage = T;
  using C = Compute<T>;
  struct {
    const T* wx;
    T *y, *gates, *dwx, *dq;
    T* saved[HASTE_MAX_SAVED];
    bool keep;
  } args;
  int H;
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_BLOCK_TRAFFIC_CUH_
