// What the blocks of an on-chip engine read and write at every step. It is staged in shared memory:
// a thread's elements are scattered over rows, but copies are contiguous.
#pragma once

#include "haste/c_api.h"
#include "lib/cells/cell.h"
#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/plan/engines/step_rows.h"

namespace haste {

// Copies some rows of tensors [N, T, K, width] at every step. Each thread that copies has the same
// pieces of 16 bytes at every step, at most kMost. Pieces that do not begin at a multiple of 16
// bytes in memory are copied element by element. A step may have several passes, each with other
// rows.
template <class T, int kGates, int kTensors, int kMost>
class StepTraffic {
 public:
  // tensors: null where there is none. thread: index among those that copy. from_end: the walk
  // begins at the last time step. unit: the block's first; units: how many it has room for.
  template <class Params>
  HASTE_DEVICE StepTraffic(const Params& p, const StepRows& rows, void* const (&tensors)[kTensors],
                           int thread, int64_t first_row, int64_t k, int unit, int units,
                           bool from_end)
      : rows_(rows),
        thread_(thread),
        hidden_(static_cast<int>(p.H)),
        room_(units),
        units_(min(units, hidden_ - unit)),
        run_((units_ + kPieceUnits - 1) / kPieceUnits),
        aligned_(p.piece == kPieceBytes) {
    const int64_t place = (first_row * p.T_ + (from_end ? p.T_ - 1 : 0)) * p.K + k;
    HASTE_UNROLL for (int i = 0; i < kTensors; ++i) {
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
    HASTE_UNROLL for (int i = 0; i < kMost; ++i) mine_[i] = Make(thread_ + i * kThreads);
  }

  // Copies the next step's data from memory to `rows`. Complete after WaitCopies and, for other
  // threads, a barrier. ends: this pass is the last of the step.
  HASTE_DEVICE void Read(T* rows, int pass = 0, bool ends = true) {
    Each(rows, pass, ends, [this](char* shared, char* memory, int units) {
      if (aligned_) {
        CopyAsync<kPieceBytes>(shared, memory);
      } else {
        CopyUnits(reinterpret_cast<T*>(shared), reinterpret_cast<const T*>(memory), units);
      }
    });
  }
  // Prefetches into L2 what Read will read `steps` steps later.
  HASTE_DEVICE void Prefetch(int steps, int pass) const {
    const int count = CountOf(pass);
    const int64_t further = pass * rows_.rows * row_stride_ + steps * stride_;
    HASTE_UNROLL for (int i = 0; i < kMost; ++i) {
      if (thread_ + i * kThreads >= count) break;
      PrefetchL2(mine_[i].at + (mine_[i].wide ? kGates : 1) * further);
    }
  }
  // Copies the next step's data from `rows` to memory.
  HASTE_DEVICE void Write(T* rows, int pass = 0, bool ends = true) {
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
    char* at;       // in memory, at the next step
    int to, units;  // offset in `rows` in bytes; size in elements
    bool wide;
  };

  static HASTE_DEVICE void CopyUnits(T* to, const T* from, int units) {
    T some[kPieceUnits];
    HASTE_UNROLL for (int i = 0; i < kPieceUnits; ++i) {
      if (i < units) some[i] = from[i];
    }
    HASTE_UNROLL for (int i = 0; i < kPieceUnits; ++i) {
      if (i < units) to[i] = some[i];
    }
  }

  // The block's units are contiguous in a row of a tensor; in a wide tensor, for each gate.
  HASTE_DEVICE int RunsOf(int i) const { return i < rows_.wide ? kGates : 1; }
  // Piece i at the first step.
  HASTE_DEVICE Piece Make(int i) const {
    Piece piece = {};
    if (i >= count_) return piece;
    const int row = i / of_row_;
    int rest = i % of_row_;
    HASTE_UNROLL for (int t = 0; t < kTensors; ++t) {
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
  HASTE_DEVICE int CountOf(int pass) const {
    return min(rows_left_ - pass * rows_.rows, rows_.rows) * of_row_;
  }
  template <class Move>
  HASTE_DEVICE void Each(T* rows, int pass, bool ends, const Move& move) {
    char* shared = reinterpret_cast<char*>(rows);
    const int count = CountOf(pass);
    const int64_t down = pass * rows_.rows * row_stride_;
    HASTE_UNROLL for (int i = 0; i < kMost; ++i) {
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
  const int room_, units_;  // of the block: units it has room for, and units that exist
  const int run_;           // pieces in a run of the units
  const bool aligned_;      // do pieces begin at multiples of 16 bytes?
  char* first_[kTensors];   // this block's first row, at the walk's first step
  int of_row_ = 0, count_, rows_left_;
  int64_t row_stride_, stride_;  // in bytes, for a tensor that is not wide
  Piece mine_[kMost];
};

// Stands in for a kernel's parameters: where the tensors of one row of a step are.
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

// --- Host code

// The bits that are set in any of the addresses of tensors that are copied by rows: of these, and
// of the reserve's beside the gates.
template <class Cell, class Args, class... Tensors>
uintptr_t AddressBits(const Args& args, Tensors*... tensors) {
  uintptr_t bits = (uintptr_t{0} | ... | reinterpret_cast<uintptr_t>(tensors));
  for (int i = 0; i < SavedTensors<Cell>(); ++i) bits |= reinterpret_cast<uintptr_t>(args.saved[i]);
  return bits;
}

}  // namespace haste
