// What a block of an on-chip CUDA engine reads and writes at a step, in shared memory. I/O warps
// copy it. Pure arithmetic, for plans and kernels.
#pragma once

#include <stdint.h>

namespace haste {

constexpr int kCopyWarps = 4;    // of a block
constexpr int kPieceBytes = 16;  // copied together

// Rows of a step of some tensors in shared memory: [tensor, row, width]. The wide tensors, which
// have all gates, come first.
struct StepRows {
  int rows, wide, narrow;    // tensors
  int wide_row, narrow_row;  // elements

  // spread: with padding between rows that avoids bank conflicts.
  constexpr StepRows(int rows, int wide, int narrow, int64_t hidden, int gates, int storage_bytes,
                     bool spread)
      : rows(rows),
        wide(wide),
        narrow(narrow),
        wide_row(RowOf(static_cast<int>(hidden) * gates, storage_bytes, spread)),
        narrow_row(RowOf(static_cast<int>(hidden), storage_bytes, spread)) {}

  constexpr int wide_tensor() const { return rows * wide_row; }
  constexpr int narrow_tensor() const { return rows * narrow_row; }
  // Where a row of a tensor begins, and where the next step's rows begin; in elements.
  constexpr int At(int tensor, int row) const {
    return tensor < wide
               ? tensor * wide_tensor() + row * wide_row
               : wide * wide_tensor() + (tensor - wide) * narrow_tensor() + row * narrow_row;
  }
  constexpr int step() const { return At(wide + narrow, 0); }
  // The most pieces of a thread that copies.
  constexpr int pieces(int64_t hidden, int gates, int storage_bytes) const {
    const int all =
        rows * (wide * gates + narrow) * static_cast<int>(hidden) * storage_bytes / kPieceBytes;
    return (all + kCopyWarps * 32 - 1) / (kCopyWarps * 32);
  }

 private:
  static constexpr int RowOf(int width, int storage_bytes, bool spread) {
    const int align = kPieceBytes / storage_bytes;
    return (width + align - 1) / align * align + (spread ? align : 0);
  }
};

}  // namespace haste
