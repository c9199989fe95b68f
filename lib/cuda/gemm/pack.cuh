// Packs an operand of a product for tensor cores. A float becomes one or two split terms of
// float16. Each line (a row of a, a column of b) has a scale, a power of two.
#pragma once

#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/fp16_scale.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/plan/gemm/gemm.h"
#include "lib/plan/gemm/row_runs.h"

namespace haste {

// T: Scaled<kTerms> for floats; or Half, Bfloat16, which are multiplied as they are.
template <class T>
using ElementOf = std::conditional_t<(kScaledTerms<T> > 0), float, T>;

// With this limit, scaled floats down to 2^-149 and the factor that undoes the scale are numbers of
// full precision.
constexpr int kMostLineShift = 126;

// [panel, packed depths, split term, lines × depth in core matrices (lib/cuda/ptx/wgmma.cuh)].
// Padding is 0.
template <class T>
struct PackedLines {
  using Element = ElementOf<T>;
  static constexpr int kTerms = kMmaTerms<T>;
  static constexpr bool kScales = kScaledTerms<T> > 0;

  const Element* from;
  int64_t line_stride, depth_stride;  // one of them is 1
  RowRuns runs;                       // along the other dimension
  int64_t first;                      // the first row in runs
  int64_t lines, depth;               // of the operand
  int k_blocks;
  bool aligned;  // lines begin at multiples of 16 bytes, or depths do
  MmaOperand<T>* to;
  uint32_t* most;  // kScales: for each line, the bits of its largest magnitude

  // Stores 8 neighbours of a line in depth. run: their index in the K-block.
  HASTE_DEVICE void Put(int64_t line, int64_t k_block, int run, float scale,
                        const Element (&values)[8]) const {
    MmaOperand<T> terms[kTerms][8];
    HASTE_UNROLL for (int i = 0; i < 8; ++i) {
      if constexpr (kScales) {
        uint16_t part[3];
        SplitOperand<T>(values[i] * scale, part);
        HASTE_UNROLL for (int s = 0; s < kTerms; ++s) terms[s][i].bits = part[s];
      } else {
        terms[0][i] = values[i];
      }
    }
    constexpr int kSize = kPanel * kPackedDepth;
    const uint32_t panel = static_cast<uint32_t>(line) / kPanel;
    const uint32_t row = static_cast<uint32_t>(line) % kPanel;
    MmaOperand<T>* at = to + (static_cast<int64_t>(panel) * k_blocks + k_block) * kTerms * kSize +
                        (row / 8 * (kPackedDepth / 8) + run) * 64 + row % 8 * 8;
    HASTE_UNROLL for (int s = 0; s < kTerms; ++s) StoreFragment<8>(at + s * kSize, terms[s]);
  }
};

// The bits of |x|; infinity and NaN do not count.
HASTE_DEVICE uint32_t FiniteBits(float x) {
  const uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFu;
  return bits < 0x7F800000u ? bits : 0;
}

// For operands contiguous in depth: a block has 8 lines.
constexpr int kPackWarps = 16;
constexpr int kHeldKBlocks = 4;  // a warp keeps these in registers between its two passes

template <class T>
class LineReader {
  using Element = ElementOf<T>;
  static constexpr int kAtOnce = 16 / sizeof(Element);

 public:
  HASTE_DEVICE LineReader(const PackedLines<T>& p, int64_t line, int run)
      : p_(p),
        line_(line),
        run_(run),
        from_(p.from + (line < p.lines ? p.runs.At(p.first + line) * p.line_stride : 0)) {}

  HASTE_DEVICE void Read(int64_t k_block, Element (&values)[8]) const {
    const int64_t depth = k_block * kPackedDepth + run_ * 8;
    const Element* from = from_ + depth;
    if (p_.aligned && line_ < p_.lines && depth + 8 <= p_.depth) {
      HASTE_UNROLL for (int i = 0; i < 8; i += kAtOnce) {
        const auto some = LoadFragment<kAtOnce>(from + i);
        HASTE_UNROLL for (int j = 0; j < kAtOnce; ++j) values[i + j] = some.v[j];
      }
      return;
    }
    HASTE_UNROLL for (int i = 0; i < 8; ++i) {
      values[i] = line_ < p_.lines && depth + i < p_.depth ? from[i] : Element{};
    }
  }

 private:
  const PackedLines<T>& p_;
  const int64_t line_;
  const int run_;
  const Element* const from_;
};

template <class T>
__global__ void __launch_bounds__(kPackWarps * 32)
    PackAlongDepth(const __grid_constant__ PackedLines<T> p) {
  using Element = ElementOf<T>;
  constexpr bool kScales = PackedLines<T>::kScales;
  __shared__ uint32_t of_warp[kPackWarps][8];
  WaitForPreviousKernel();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t line = int64_t{blockIdx.x} * 8 + lane / 4;
  const int run = lane % 4;
  const LineReader<T> reader(p, line, run);
  Element held[kHeldKBlocks][8];
  HASTE_UNROLL for (int i = 0; i < kHeldKBlocks; ++i) reader.Read(warp + i * kPackWarps, held[i]);
  const int beyond = warp + kHeldKBlocks * kPackWarps;
  float scale = 1;
  if constexpr (kScales) {
    uint32_t most = 0;
    HASTE_UNROLL for (int i = 0; i < kHeldKBlocks; ++i) {
      HASTE_UNROLL for (int j = 0; j < 8; ++j) most = max(most, FiniteBits(held[i][j]));
    }
#pragma unroll 2
    for (int k_block = beyond; k_block < p.k_blocks; k_block += kPackWarps) {
      float values[8];
      reader.Read(k_block, values);
      HASTE_UNROLL for (int j = 0; j < 8; ++j) most = max(most, FiniteBits(values[j]));
    }
    most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
    most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
    if (run == 0) of_warp[warp][lane / 4] = most;
    __syncthreads();
    HASTE_UNROLL for (int i = 0; i < kPackWarps; ++i) most = max(most, of_warp[i][lane / 4]);
    if (warp == 0 && run == 0) p.most[line] = most;
    scale = RowScale(most, kMostLineShift).up;
  }
  HASTE_UNROLL for (int i = 0; i < kHeldKBlocks; ++i) {
    const int k_block = warp + i * kPackWarps;
    if (k_block < p.k_blocks) p.Put(line, k_block, run, scale, held[i]);
  }
#pragma unroll 2
  for (int k_block = beyond; k_block < p.k_blocks; k_block += kPackWarps) {
    Element values[8];
    reader.Read(k_block, values);
    p.Put(line, k_block, run, scale, values);
  }
}

// For operands whose lines are neighbours in memory: a block has 256 lines.
constexpr int kLinesOfBlock = 256;
constexpr int kMostDepths = 64;  // depths that a block of FindMostOfLines reads

// `most` must be 0 before.
template <class T>
__global__ void __launch_bounds__(kLinesOfBlock)
    FindMostOfLines(const __grid_constant__ PackedLines<T> p, int64_t line_blocks) {
  const int64_t line = blockIdx.x % line_blocks * kLinesOfBlock + threadIdx.x;
  if (line >= p.lines) return;
  const int64_t first = blockIdx.x / line_blocks * kMostDepths;
  const int64_t end = min(first + kMostDepths, p.depth);
  uint32_t most = 0;
  const auto look = [&](int64_t row) {
    most = max(most, FiniteBits(p.from[row * p.depth_stride + line]));
  };
  if (p.runs.run == 0) {  // addresses do not depend on a cursor, so loads overlap
#pragma unroll 16
    for (int64_t d = first; d < end; ++d) look(p.first + d);
  } else {
    RowCursor row(p.runs, p.first + first);
#pragma unroll 16
    for (int64_t d = first; d < end; ++d, row.Next()) look(row.at());
  }
  atomicMax(p.most + line, most);
}

// Runs after FindMostOfLines.
template <class T>
__global__ void __launch_bounds__(kLinesOfBlock)
    PackAlongLines(const __grid_constant__ PackedLines<T> p, int64_t line_blocks,
                   int64_t padded_lines) {
  using Element = ElementOf<T>;
  WaitForPreviousKernel();
  const int64_t line = blockIdx.x % line_blocks * kLinesOfBlock + threadIdx.x;
  if (line >= padded_lines) return;
  const int64_t k_block = blockIdx.x / line_blocks;
  const bool exists = line < p.lines;
  float scale = 1;
  if constexpr (PackedLines<T>::kScales) {
    scale = RowScale(exists ? p.most[line] : 0, kMostLineShift).up;
  }
  const Element* from = p.from + line;
  const int64_t left = exists ? p.depth - k_block * kPackedDepth : 0;
  Element values[kPackedDepth / 8][8];
  RowCursor row(p.runs, p.first + k_block * kPackedDepth);
  HASTE_UNROLL for (int d = 0; d < kPackedDepth; ++d, row.Next()) {
    values[d / 8][d % 8] = d < left ? from[row.at() * p.depth_stride] : Element{};
  }
  HASTE_UNROLL for (int run = 0; run < kPackedDepth / 8; ++run)
      p.Put(line, k_block, run, scale, values[run]);
}

}  // namespace haste
