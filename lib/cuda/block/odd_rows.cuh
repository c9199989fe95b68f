// Copies rows of a step that do not all begin at multiples of 16 bytes in memory: the hidden units
// do not fill such pieces, or a tensor begins elsewhere.
#pragma once

#include <type_traits>

#include "lib/cuda/cell/on_chip.cuh"
#include "lib/cuda/ptx/async.cuh"
#include "lib/plan/engines/block.h"

namespace haste {

// Whether a kernel has code for this architecture. That of odd rows is for 9.0 alone, where it was
// timed, so that it is in the library once; plans do not ask for it elsewhere (lib/plan/cuts.cc).
constexpr bool HasBlockCode(bool clusters, [[maybe_unused]] bool odd) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  return !odd && HasOnChipCode(clusters);
#else
  return HasOnChipCode(clusters);
#endif
}

// Each warp that copies has a row of four. Its lanes have neighbouring pieces, of the largest of 8,
// 4 and 2 bytes that all rows begin at multiples of. Rows in shared memory do begin at multiples of
// 16, so that threads with elements do not see a difference. kMostUnits: of a block.
template <class T, int kGates, int kTensors, int kRows, int kMostUnits, bool kCluster>
class OddRows {
 public:
  // As those of StepTraffic (lib/cuda/cell/step_io.cuh).
  template <class Params>
  HASTE_DEVICE OddRows(const Params& p, const StepRows& rows, void* const (&tensors)[kTensors],
                       int thread, int64_t first_row, int64_t k, int unit, bool from_end)
      : rows_(rows),
        warp_(thread / 32),
        lane_(thread % 32),
        rows_left_(static_cast<int>(min(p.N - first_row, int64_t{kRows}))),
        hidden_(static_cast<int>(p.H)),
        units_(min(kMostUnits, hidden_ - unit)),
        piece_(p.piece),
        wide_piece_(p.wide_piece) {
    const int64_t place = ((first_row + warp_) * p.T_ + (from_end ? p.T_ - 1 : 0)) * p.K + k;
    HASTE_UNROLL for (int t = 0; t < kTensors; ++t) {
      next_[t] = tensors[t] == nullptr
                     ? nullptr
                     : reinterpret_cast<char*>(static_cast<T*>(tensors[t]) +
                                               place * GatesOf(t) * hidden_ + unit);
    }
    const int64_t stride = p.K * p.H * static_cast<int64_t>(sizeof(T));
    row_stride_ = stride * p.T_ * kCopyWarps;
    stride_ = from_end ? -stride : stride;
  }

  // Copies the next step's data from memory to `rows`. Complete after WaitCopies and Settle.
  HASTE_DEVICE void Read(T* rows) {
    settles_ = rows;
    EachTensor([&](auto* v, auto wide) {
      using V = std::remove_pointer_t<decltype(v)>;
      constexpr bool kWide = decltype(wide)::value, kStaged = kIsStaged<V, kWide>;
      EachRow<kWide, kStaged>(rows, [&](int t, int r, char* shared, char* memory) {
        EachPiece<V, kWide, kStaged>(shared, memory, [&](int i, int, char* to, char* from) {
          if constexpr (kStaged) {
            staged_[t][r][i] = LoadTwoBytes(from);
          } else if constexpr (sizeof(V) == 2) {
            *reinterpret_cast<T*>(to) = *reinterpret_cast<const T*>(from);
          } else {
            CopyAsync<sizeof(V)>(to, from);
          }
        });
      });
    });
    Advance();
  }
  // Before the next Read, and a step later, so that loads have arrived.
  HASTE_DEVICE void Settle() {
    if (sizeof(T) > 2 || settles_ == nullptr) return;
    EachTensor([&](auto* v, auto wide) {
      using V = std::remove_pointer_t<decltype(v)>;
      constexpr bool kWide = decltype(wide)::value;
      if constexpr (kIsStaged<V, kWide>) {
        EachRow<kWide, true>(settles_, [&](int t, int r, char* shared, char*) {
          EachPiece<V, kWide, true>(shared, shared, [&](int i, int, char* to, char*) {
            *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(staged_[t][r][i]);
          });
        });
      }
    });
    settles_ = nullptr;
  }
  // Copies the next step's data from `rows` to memory.
  HASTE_DEVICE void Write(T* rows) {
    EachTensor([&](auto* v, auto wide) {
      using V = std::remove_pointer_t<decltype(v)>;
      constexpr bool kWide = decltype(wide)::value;
      EachRow<kWide, false>(rows, [&](int, int, char* shared, char* memory) {
        V some[kMostPieces];
        EachPiece<V, kWide, false>(
            shared, memory,
            [&](int, int j, char* from, char*) { some[j] = *reinterpret_cast<const V*>(from); },
            [&](int, int j, char*, char* to) { *reinterpret_cast<V*>(to) = some[j]; });
      });
    });
    Advance();
  }

 private:
  static constexpr int kRowsOfWarp = kRows / kCopyWarps;
  // Pieces of 2 bytes cannot be copied asynchronously: registers hold them until the next step.
  // Rows of an even number of gates are in such pieces only if a tensor begins oddly, and are read
  // on the spot: registers are few.
  template <class V, bool kWide>
  static constexpr bool kIsStaged = sizeof(V) == 2 && !(kWide && kGates % 2 == 0 && !kCluster);
  // Pieces of a row that a lane has. In a cluster a warp has the units of a gate, one after the
  // other; else a whole row of all gates.
  template <class V>
  static constexpr int PiecesOf(int gates) {
    constexpr int kBytes = 32 * sizeof(V);
    return kCluster ? gates : (gates * kMostUnits * static_cast<int>(sizeof(T)) - 1) / kBytes + 1;
  }
  using Smallest = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  static constexpr int kMostPieces = PiecesOf<Smallest>(kGates);
  // A register for each: the compiler would pack them in twos, and wait for them to do so.
  static HASTE_DEVICE uint32_t LoadTwoBytes(const char* from) {
    uint32_t two;
    asm volatile("ld.global.u16 %0, [%1];" : "=r"(two) : "l"(from));
    return two;
  }
  static constexpr int kTogether = kCluster ? kGates : 4;  // pieces on their way

  HASTE_DEVICE int GatesOf(int t) const { return t < rows_.wide ? kGates : 1; }

  // Calls visit(a pointer to the type of pieces, do rows have all gates?) for both kinds of
  // tensors.
  template <class Visit>
  HASTE_DEVICE void EachTensor(const Visit& visit) const {
    WithPiece(wide_piece_, [&](auto* v) { visit(v, std::true_type()); });
    WithPiece(piece_, [&](auto* v) { visit(v, std::false_type()); });
  }
  template <class Visit>
  static HASTE_DEVICE void WithPiece(int piece, const Visit& visit) {
    if (piece >= 8) {
      visit(static_cast<uint2*>(nullptr));
    } else if (sizeof(T) > 2 || piece == 4) {
      visit(static_cast<uint32_t*>(nullptr));
    } else {
      visit(static_cast<Smallest*>(nullptr));
    }
  }
  // Calls visit(tensor, index, where it is in shared memory, in memory) for each row of this warp.
  template <bool kWide, bool kUnrolled, class Visit>
  HASTE_DEVICE void EachRow(T* rows, const Visit& visit) const {
    HASTE_UNROLL for (int t = 0; t < kTensors; ++t) {
      if ((t < rows_.wide) != kWide || next_[t] == nullptr) continue;
#pragma unroll(kUnrolled || kCluster ? kRowsOfWarp : 1)
      for (int r = 0; r < kRowsOfWarp; ++r) {
        const int row = warp_ + r * kCopyWarps;
        if (row >= rows_left_) break;
        char* const memory = next_[t] + r * GatesOf(t) * row_stride_;
        // Else the compiler takes it for a generic address, and waits at barriers for what is read.
        __builtin_assume(__isGlobal(memory));
        visit(t, r, reinterpret_cast<char*>(rows + rows_.At(t, row)), memory);
      }
    }
  }
  // Calls each of visits(piece, index among those together, where it is in shared memory, in
  // memory) for all pieces of this lane that are together, then for the next.
  template <class V, bool kWide, bool kUnrolled, class... Visits>
  HASTE_DEVICE void EachPiece(char* shared, char* memory, const Visits&... visits) const {
    constexpr int kRuns = kWide ? kGates : 1, kAll = PiecesOf<V>(kRuns);
    constexpr int kBytes = sizeof(T), kWarpBytes = 32 * sizeof(V);
    constexpr int kStep = kUnrolled || kAll < kTogether ? kAll : kTogether;
    const int at = lane_ * static_cast<int>(sizeof(V));
    const int left = (kCluster ? 1 : kRuns) * units_ * kBytes - at;
    shared += at;
    memory += at;
    const auto go = [&](int first, const auto& visit) {
      HASTE_UNROLL for (int j = 0; j < kStep; ++j) {
        const int i = first + j;
        if constexpr (kCluster) {
          if (left > 0) {
            visit(i, j, shared + i * kClusterUnits * kBytes, memory + i * hidden_ * kBytes);
          }
        } else {
          if (left > i * kWarpBytes) {
            visit(i, j, shared + i * kWarpBytes, memory + i * kWarpBytes);
          }
        }
      }
    };
#pragma unroll(kUnrolled || kCluster ? kAll / kStep : 1)
    for (int first = 0; first < kAll; first += kStep) (go(first, visits), ...);
  }
  HASTE_DEVICE void Advance() {
    HASTE_UNROLL for (int t = 0; t < kTensors; ++t) {
      if (next_[t] != nullptr) next_[t] += GatesOf(t) * stride_;
    }
  }

  const StepRows rows_;
  const int warp_, lane_, rows_left_, hidden_;
  const int units_;               // of the block
  const int piece_, wide_piece_;  // bytes
  char* next_[kTensors];         // this warp's first row at the next step, from the block's unit on
  int64_t row_stride_, stride_;  // in bytes, of a tensor that is not wide: four rows, a step
  T* settles_ = nullptr;         // where pieces of 2 bytes go that are on their way
  uint32_t staged_[kTensors][kRowsOfWarp][kMostPieces];
};

}  // namespace haste
