// An operand of a product of floats, made ready for tensor cores: two parts of float16 of each
// element, of a scale for each line (a row of a, a column of b): a power of two.
#ifndef HASTE_LIB_CUDA_SCALED_PACK_CUH_
#define HASTE_LIB_CUDA_SCALED_PACK_CUH_

#include "lib/cuda/async.cuh"
#include "lib/cuda/scaled.cuh"
#include "lib/cuda/storage.cuh"
#include "lib/product_plan.h"

namespace haste {

// Floats down to 2^-149 and the scale that undoes it are numbers of full precision.
constexpr int kMostLineShift = 126;

// [panel, slab, part, lines × depth of a slab in core matrices (warpgroup_mma.cuh)]; padding is 0.
struct PackedLines {
  const float* from;
  int64_t line_stride, depth_stride;  // one of them is 1
  int64_t lines, depth;               // of the operand
  int slabs;
  bool aligned;  // lines begin at multiples of 16 bytes, or depths do
  Half* to;
  uint32_t* most;  // of each line: the bits of its largest magnitude

  // 8 neighbours in depth of a line; run: in the slab.
  __device__ __forceinline__ void Put(int64_t line, int64_t slab, int run, float scale,
                                      const float (&values)[8]) const {
    Half parts[2][8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      uint16_t part[3];
      SplitOperand<Scaled<2>>(values[i] * scale, part);
      parts[0][i].bits = part[0];
      parts[1][i].bits = part[1];
    }
    constexpr int kSize = kPanel * kSlabDepth;
    const uint32_t panel = static_cast<uint32_t>(line) / kPanel;
    const uint32_t row = static_cast<uint32_t>(line) % kPanel;
    Half* at = to + (static_cast<int64_t>(panel) * slabs + slab) * 2 * kSize +
               (row / 8 * (kSlabDepth / 8) + run) * 64 + row % 8 * 8;
    StoreFragment<8>(at, parts[0]);
    StoreFragment<8>(at + kSize, parts[1]);
  }
};

// Of a magnitude that is no number nothing is known.
__device__ __forceinline__ uint32_t FiniteBits(float x) {
  const uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFu;
  return bits < 0x7F800000u ? bits : 0;
}

// Lines whose depth is neighbours in memory: a block has 8 of them.
constexpr int kPackWarps = 16;
constexpr int kHeldSlabs = 4;  // of a warp, in registers from one reading to the other

class LineReader {
 public:
  __device__ __forceinline__ LineReader(const PackedLines& p, int64_t line, int run)
      : p_(p), line_(line), run_(run) {}

  __device__ __forceinline__ void Read(int64_t slab, float (&values)[8]) const {
    const int64_t depth = slab * kSlabDepth + run_ * 8;
    const float* from = p_.from + line_ * p_.line_stride + depth;
    if (p_.aligned && line_ < p_.lines && depth + 8 <= p_.depth) {
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        const auto four = LoadFragment<4>(from + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[i + j] = four.v[j];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = line_ < p_.lines && depth + i < p_.depth ? from[i] : 0.0f;
    }
  }

 private:
  const PackedLines& p_;
  const int64_t line_;
  const int run_;
};

__global__ void __launch_bounds__(kPackWarps * 32)
    PackAlongDepth(const __grid_constant__ PackedLines p) {
  __shared__ uint32_t of_warp[kPackWarps][8];
  WaitForPreviousKernel();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t line = int64_t{blockIdx.x} * 8 + lane / 4;
  const int run = lane % 4;
  const LineReader reader(p, line, run);
  float held[kHeldSlabs][8];
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kHeldSlabs; ++i) reader.Read(warp + i * kPackWarps, held[i]);
#pragma unroll
  for (int i = 0; i < kHeldSlabs; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) most = max(most, FiniteBits(held[i][j]));
  }
  const int beyond = warp + kHeldSlabs * kPackWarps;
#pragma unroll 2
  for (int slab = beyond; slab < p.slabs; slab += kPackWarps) {
    float values[8];
    reader.Read(slab, values);
#pragma unroll
    for (int j = 0; j < 8; ++j) most = max(most, FiniteBits(values[j]));
  }
  most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
  most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
  if (run == 0) of_warp[warp][lane / 4] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPackWarps; ++i) most = max(most, of_warp[i][lane / 4]);
  if (warp == 0 && run == 0) p.most[line] = most;
  const float scale = RowScale(most, kMostLineShift).up;
#pragma unroll
  for (int i = 0; i < kHeldSlabs; ++i) {
    const int slab = warp + i * kPackWarps;
    if (slab < p.slabs) p.Put(line, slab, run, scale, held[i]);
  }
#pragma unroll 2
  for (int slab = beyond; slab < p.slabs; slab += kPackWarps) {
    float values[8];
    reader.Read(slab, values);
    p.Put(line, slab, run, scale, values);
  }
}

// Lines that are neighbours in memory: a block has 256 of them.
constexpr int kLinesOfBlock = 256;
constexpr int kMostDepths = 64;  // that a block of FindMostOfLines looks at

// `most` is 0 before.
__global__ void __launch_bounds__(kLinesOfBlock)
    FindMostOfLines(const __grid_constant__ PackedLines p, int64_t line_blocks) {
  const int64_t line = blockIdx.x % line_blocks * kLinesOfBlock + threadIdx.x;
  if (line >= p.lines) return;
  const int64_t first = blockIdx.x / line_blocks * kMostDepths;
  const int64_t end = min(first + kMostDepths, p.depth);
  uint32_t most = 0;
#pragma unroll 16
  for (int64_t d = first; d < end; ++d) {
    most = max(most, FiniteBits(p.from[d * p.depth_stride + line]));
  }
  atomicMax(p.most + line, most);
}

// After it.
__global__ void __launch_bounds__(kLinesOfBlock)
    PackAlongLines(const __grid_constant__ PackedLines p, int64_t line_blocks,
                   int64_t padded_lines) {
  WaitForPreviousKernel();
  const int64_t line = blockIdx.x % line_blocks * kLinesOfBlock + threadIdx.x;
  if (line >= padded_lines) return;
  const int64_t slab = blockIdx.x / line_blocks;
  const bool exists = line < p.lines;
  const float scale = RowScale(exists ? p.most[line] : 0, kMostLineShift).up;
  const float* from = p.from + slab * kSlabDepth * p.depth_stride + line;
  const int64_t left = exists ? p.depth - slab * kSlabDepth : 0;
  float values[kSlabDepth / 8][8];
#pragma unroll
  for (int d = 0; d < kSlabDepth; ++d) {
    values[d / 8][d % 8] = d < left ? from[d * p.depth_stride] : 0.0f;
  }
#pragma unroll
  for (int run = 0; run < kSlabDepth / 8; ++run) p.Put(line, slab, run, scale, values[run]);
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_SCALED_PACK_CUH_
