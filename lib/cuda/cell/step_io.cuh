// What the blocks of an on-chip engine read and write at every step, by way of shared memory: a
// thread's elements are scattered over rows, what is copied is not.
#ifndef HASTE_LIB_CUDA_CELL_STEP_IO_CUH_
#define HASTE_LIB_CUDA_CELL_STEP_IO_CUH_

#include "haste/c_api.h"
#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/plan/step_rows.h"

namespace haste {

// Tensors [N, T, K, width], some rows of them at every step, for the threads that copy. Each has
// the same pieces of 16 bytes at every step, kMost of them or fewer, which are copied element by
// element where memory does not begin at a multiple of that. A step may have several passes, of
// other rows each.
template <class T, int kGates, int kTensors, int kMost>
class StepTraffic {
 public:
  // tensors: null where there is none. thread: of those that copy. from_end: the walk begins there.
  // unit, units: the block's first, and how many it has room for.
  template <class Params>
  __device__ __forceinline__ StepTraffic(const Params& p, const StepRows& rows,
                                         void* const (&tensors)[kTensors], int thread,
                                         int64_t first_row, int64_t k, int unit, int units,
                                         bool from_end)
      : rows_(rows),
        thread_(thread),
        hidden_(static_cast<int>(p.H)),
        room_(units),
        units_(min(units, hidden_ - unit)),
        run_((units_ + kPieceUnits - 1) / kPieceUnits),
        aligned_(p.piece == kPieceBytes) {
    const int64_t place = (first_row * p.T_ + (from_end ? p.T_ - 1 : 0)) * p.K + k;
#pragma unroll
    for (int i = 0; i < kTensors; ++i) {
      first_[i] = tensors[i] == nullptr
                      ? nullptr
                      : reinterpret_cast<char*>(static_cast<T*>(tensors[i]) +
                                                place * RunsOf(i) * hidden_ + unit);
      if (first_[i] != nullptr) of_row_ += RunsOf(i) * run_;
    }
    rows_left_ = static_cast<int>(min(p.N - first_row, int64_t{1} << 24));
    const int64_t stride = p.K * p.H * static_cast<int64_t>(sizeof(T));
    row_stride_ = stride * p.T_;
    stride_ = from_end ? -stride : stride;
    count_ = CountOf(0);
#pragma unroll
    for (int i = 0; i < kMost; ++i) mine_[i] = Make(thread_ + i * kThreads);
  }

  // Of the next step, from memory to its rows; complete after WaitCopies, and for other threads a
  // barrier. ends: with this pass, the step.
  __device__ __forceinline__ void Read(T* rows, int pass = 0, bool ends = true) {
    Each(rows, pass, ends, [this](char* shared, char* memory, int units) {
      if (aligned_) {
        CopyAsync<kPieceBytes>(shared, memory);
      } else {
        CopyUnits(reinterpret_cast<T*>(shared), reinterpret_cast<const T*>(memory), units);
      }
    });
  }
  // Asks the L2 cache for what Read will read, so many steps later.
  __device__ __forceinline__ void Prefetch(int steps, int pass) const {
    const int count = CountOf(pass);
    const int64_t further = pass * rows_.rows * row_stride_ + steps * stride_;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (thread_ + i * kThreads >= count) break;
      PrefetchL2(mine_[i].at + (mine_[i].wide ? kGates : 1) * further);
    }
  }
  // Of the next step, from its rows to memory.
  __device__ __forceinline__ void Write(T* rows, int pass = 0, bool ends = true) {
    Each(rows, pass, ends, [this](char* shared, char* memory, int units) {
      if (aligned_) {
        *reinterpret_cast<uint4*>(memory) = *reinterpret_cast<const uint4*>(shared);
      } else {
        CopyUnits(reinterpret_cast<T*>(memory), reinterpret_cast<const T*>(shared), units);
      }
    });
  }

 private:
  static constexpr int kThreads = kCopyWarps * 32;

  static constexpr int kPieceUnits = kPieceBytes / sizeof(T);

  struct Piece {
    char* at;       // at the next step
    int to, units;  // bytes, elements
    bool wide;
  };

  static __device__ __forceinline__ void CopyUnits(T* to, const T* from, int units) {
    T some[kPieceUnits];
#pragma unroll
    for (int i = 0; i < kPieceUnits; ++i) {
      if (i < units) some[i] = from[i];
    }
#pragma unroll
    for (int i = 0; i < kPieceUnits; ++i) {
      if (i < units) to[i] = some[i];
    }
  }

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
        const int run = rest / run_, first = rest % run_ * kPieceUnits, at = first * kBytes;
        piece.units = min(kPieceUnits, units_ - first);
        piece.wide = t < rows_.wide;
        piece.at = first_[t] + row * RunsOf(t) * row_stride_ + run * hidden_ * kBytes + at;
        piece.to = (rows_.At(t, row) + run * room_) * kBytes + at;
      }
      rest -= RunsOf(t) * run_;
    }
    return piece;
  }
  // Pieces of a pass.
  __device__ __forceinline__ int CountOf(int pass) const {
    return min(rows_left_ - pass * rows_.rows, rows_.rows) * of_row_;
  }
  template <class Move>
  __device__ __forceinline__ void Each(T* rows, int pass, bool ends, const Move& move) {
    char* shared = reinterpret_cast<char*>(rows);
    const int count = CountOf(pass);
    const int64_t down = pass * rows_.rows * row_stride_;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (thread_ + i * kThreads >= count_) break;
      const int wide = mine_[i].wide ? kGates : 1;
      if (thread_ + i * kThreads < count) {
        move(shared + mine_[i].to, mine_[i].at + wide * down, mine_[i].units);
      }
      if (ends) mine_[i].at += wide * stride_;
    }
  }

  const StepRows rows_;
  const int thread_, hidden_;
  const int room_, units_;  // of the block: units that there is room for, and that there are
  const int run_;           // pieces of the units
  const bool aligned_;      // do pieces begin at multiples of 16 bytes?
  char* first_[kTensors];   // this block's first row, at the walk's first step
  int of_row_ = 0, count_, rows_left_;
  int64_t row_stride_, stride_;  // bytes, of a tensor that is not wide
  Piece mine_[kMost];
};

// In place of a kernel's parameters: where the tensors of a step are, of one row.
template <class T>
struct StepRow {
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

// --- The host's part

// Bits that are set in the addresses of tensors that are copied by rows.
template <class... Tensors>
uintptr_t AddressBits(Tensors*... tensors) {
  return (uintptr_t{0} | ... | reinterpret_cast<uintptr_t>(tensors));
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_CELL_STEP_IO_CUH_
