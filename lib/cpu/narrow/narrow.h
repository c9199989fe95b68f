// Products of narrow elements, mostly on instructions of their own: bfloat16 with float32 sums,
// int8 with int32 sums. Which instructions there are is known only at run time, so a kernel is
// reached through a pointer. It is compiled once, not once a cell.
//
// A kernel multiplies rows of an operand with a panel of weights. A panel has 1 to kMaxVectors
// vectors of `width` columns. Its depth is cut into groups of 4 bytes: 2 bfloat16 or 4 int8. A
// group of a column lies together, the columns of a vector side by side, then the same vector's
// other groups of a block, then the next vector, then the next block:
// [block][vector][group of the block][column][element of the group]. A block is one group; of AMX's
// bfloat16 it is the 16 groups of a tile.
//
// int8: an operand is a byte that stands for its value - 128, and not 0 where a weight is not. The
// sums start from a row of the panel, by which the 128 drops out (NarrowStart).
//
// The sum of a row does not depend on the rows beside it. int8 is exact, so all kernels give the
// same bits. In bfloat16 kernels round or add up in different ways: a machine uses one of them, for
// every number of rows.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace haste {

enum class Narrow { kBfloat16, kInt8 };

inline constexpr int kMaxVectors = 4;
inline constexpr int64_t kNarrowRows = 32;  // most of one call
inline constexpr int kRowColumns = 64;
// int32 sums of more products could overflow.
inline constexpr int64_t kMaxInt8Depth = 131072;

struct NarrowTile {
  const void* a;   // [rows, groups], floats if NarrowKernel::takes_floats
  int64_t a_row;   // bytes from one row to the next
  int64_t rows;    // 1 to kNarrowRows
  int64_t groups;  // a multiple of NarrowKernel::group_multiple
  const void* panel;
  int vectors;
  const int32_t* start;  // [vectors, width], or nullptr: 0. int8 only
  void* sums;            // [rows, vectors, width] float32 or int32; kNarrowRows rows may be written
  const float* bias = nullptr;  // [vectors, width], added to the sums if the kernel adds_bias
};

// Columns of a matrix that become panels: of each of `depth` rows, which are `row` bytes apart,
// `width` elements for each vector, from byte at[vector] on.
struct NarrowSource {
  const void* from;
  int64_t row;
  int64_t depth;
  int vectors;
  int64_t at[kMaxVectors];
  // Panels whose columns lie side by side: `next` bytes on, and `apart` bytes apart where they are
  // packed. Together, they read each cache line of the matrix once.
  int64_t panels, next, apart;
};

// A row of an operand times kRowColumns columns of a matrix as it is.
struct NarrowRow {
  const void* a;
  const void* b;
  int64_t row;  // bytes from one row of the matrix to the next
  int64_t depth;
  void* sums;  // [kRowColumns]
};

struct NarrowKernel {
  const char* name;
  Narrow type;
  int width;           // columns of a vector
  int group_multiple;  // groups are padded with zeros to a multiple of this
  // This thread calls enter before it multiplies, with the most rows that are to come, and leave
  // after that. nullptr: nothing to do. A single row of int8 needs neither.
  void (*enter)(int64_t rows);
  void (*leave)();
  void (*multiply)(const NarrowTile&);
  // Packs panels and, of int8, sets their starts, of which `start` is the first. nullptr:
  // lib/cpu/product/narrow_panel-inl.h packs.
  void (*pack)(const NarrowSource&, int64_t groups, void* panel, int32_t* start);
  // The sums of a row, as `multiply` gives them after packing. nullptr: not possible.
  void (*multiply_row)(const NarrowRow&);
  // Whether multiply adds a bias, and writes no rows but those of the tile.
  bool adds_bias = false;
  int block = 1;  // groups; divides group_multiple
  // bfloat16: whether the operand's elements are floats, of values that bfloat16 has.
  bool takes_floats = false;

  int group() const { return type == Narrow::kInt8 ? 4 : 2; }
  int64_t Groups(int64_t depth) const {
    const int64_t groups = (depth + group() - 1) / group();
    return (groups + group_multiple - 1) / group_multiple * group_multiple;
  }
  // Of a row of the operand.
  int64_t OperandBytes(int64_t groups) const { return groups * (takes_floats ? 8 : 4); }
  int64_t PanelBytes(int64_t depth, int64_t vectors) const {
    return Groups(depth) * vectors * width * 4;
  }
  // Where a vector of a group is in a panel of `vectors`, in bytes.
  int64_t At(int64_t group, int64_t vector, int64_t vectors) const {
    return ((group / block * vectors + vector) * block + group % block) * width * 4;
  }
};

// The kernel of this machine for vectors of `width` columns. nullptr: there is none for
// bfloat16. For int8 there always is one.
const NarrowKernel* FindNarrow(Narrow type, int64_t width);

// start = minus what an operand that stands for 0 gives with the panel's int8 weights.
void NarrowStart(const NarrowKernel&, const void* panel, int64_t groups, int vectors,
                 int32_t* start);

// At least `bytes` of memory of this thread, aligned to 64 bytes. It keeps them; a later call may
// move them.
void* NarrowScratch(size_t bytes);

// The kernels, where they are compiled: of 16 columns, but for those of AVX2 (8; Avx2Int8Wide 16)
// and AVX-VNNI (8), NEON (4), and PlainInt8 (any).
extern const NarrowKernel kAmxBfloat16, kAmxInt8, kAvx512Bfloat16, kAvx512FmaBfloat16, kAvx512Int8,
    kAvx2Int8, kAvx2Int8Wide, kAvxVnniInt8, kNeonBfloat16, kNeonInt8;
extern const NarrowKernel kPlainInt8[];  // of 1, 2, 4, 8, 16 columns

}  // namespace haste
