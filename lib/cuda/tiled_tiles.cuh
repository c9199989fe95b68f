// What a block's warps multiply of one chunk, and the order in which operands lie for it.
//
// By wgmma, four warps at a time, which takes both operands from shared memory: tiles of 8 rows ×
// 16 bytes ("core matrices"), those of a chunk's depth side by side.
#ifndef HASTE_LIB_CUDA_TILED_TILES_CUH_
#define HASTE_LIB_CUDA_TILED_TILES_CUH_

#include <type_traits>

#include "lib/cuda/exchange.cuh"
#include "lib/cuda/mma.cuh"
#include "lib/tiled_plan.h"

namespace haste {

// c[64 × kRows] += a[64 × 16] · b[kRows × 16]ᵀ; a, b: descriptors. A thread has of each tile of 8
// rows what it would have of mma.sync's.
template <class Operand, int kRows>
__device__ __forceinline__ void WarpgroupMma(float (&c)[kRows / 2], uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kHalf = std::is_same_v<Operand, Half>;
#define HASTE_4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define HASTE_16(i) HASTE_4(i), HASTE_4(i + 4), HASTE_4(i + 8), HASTE_4(i + 12)
#define HASTE_WGMMA(shape, registers, operands, ...)                                               \
  if constexpr (kHalf) {                                                                           \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" registers "}, " operands   \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b));                                                                \
  } else {                                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" registers "}, " operands \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b));                                                                \
  }
  if constexpr (kRows == 16) {
    HASTE_WGMMA("m64n16k16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, 1, 1, 1, 0, 0;", HASTE_4(0),
                HASTE_4(4));
  } else if constexpr (kRows == 32) {
    HASTE_WGMMA("m64n32k16", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15",
                "%16, %17, 1, 1, 1, 0, 0;", HASTE_16(0));
  } else if constexpr (kRows == 64) {
    HASTE_WGMMA("m64n64k16",
                "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",
                "%32, %33, 1, 1, 1, 0, 0;", HASTE_16(0), HASTE_16(16));
  } else if constexpr (kRows == 128) {
    HASTE_WGMMA("m64n128k16",
                "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63",
                "%64, %65, 1, 1, 1, 0, 0;", HASTE_16(0), HASTE_16(16), HASTE_16(32), HASTE_16(48));
  }
#undef HASTE_WGMMA
#undef HASTE_16
#undef HASTE_4
#endif
}

// Where wgmma finds core matrices: 128 bytes each, those of a chunk's depth side by side.
template <int kDepth>
__device__ __forceinline__ uint64_t CoreMatrices(const void* shared) {
  constexpr uint64_t kAlongDepth = 128, kAlongRows = kDepth * 16;
  return (SharedAddress(shared) & 0x3FFFF) >> 4 | kAlongDepth >> 4 << 16 | kAlongRows >> 4 << 32;
}

// kTiles × kRows of a block, rows shared out to kRowGroups of its warps.
template <class T, int kOfOperand, int kTiles, int kRows, int kRowGroups>
class BlockTiles {
  static constexpr int kParts = kMmaParts<T>, kDepth = TiledDepth(kParts, kOfOperand);
  static constexpr int kSums = kParts == 1 ? 1 : 2;  // as TileC has them
  static constexpr int kOwnRows = kRows / kRowGroups;
  // Bytes of a part of a chunk; of a warpgroup's 64 sums.
  static constexpr int kKernelPart = kTiles * 32 * kDepth, kOperandPart = kRows * 2 * kDepth;
  static constexpr int kGroupBytes = 128 * kDepth;

 public:
  // Where a part has an element of the operand.
  static __device__ __forceinline__ uint32_t OperandAt(uint32_t row, uint32_t depth) {
    return (row / 8 * (kDepth / 8) + depth / 8) * 64 + row % 8 * 8 + depth % 8;
  }
  // 16 bytes of each part of R: of a piece of a tile, this lane's. element(row, depth).
  template <class Element>
  static __device__ __forceinline__ void PackLine(int piece, const Element& element,
                                                  uint32_t (&line)[kParts][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t packed[kParts];
      const int row = piece / (kDepth / 32) * 8 + lane % 8;
      const int depth = (piece % (kDepth / 32) * 4 + lane / 8) * 8 + 2 * i;
      PackPair<T>(element(row, depth), element(row, depth + 1), packed);
#pragma unroll
      for (int s = 0; s < kParts; ++s) line[s][i] = packed[s];
    }
  }

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
#pragma unroll
      for (int i = 0; i < kOwnRows / 2; ++i) sums_[s][i] = 0;
    }
  }
  // a, b: of all parts, or where it need not be exact of all but the last. All but the last
  // kPending chunks have been multiplied after Wait.
  template <bool kExact>
  __device__ __forceinline__ void Chunk(const unsigned char* a, const unsigned char* b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    constexpr int kUnit = 16, kStep = 256;  // bytes: of a descriptor's 1, of 16 of the depth
    const int group = threadIdx.x / 128;
    const uint64_t of_kernel = CoreMatrices<kDepth>(a) + group / kRowGroups * (kGroupBytes / kUnit);
    const uint64_t of_operand =
        CoreMatrices<kDepth>(b) + group % kRowGroups * (kOperandPart / kRowGroups / kUnit);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      const auto multiply = [&](int s, int r, int to) {
        WarpgroupMma<MmaOperand<T>, kOwnRows>(sums_[to],
                                              of_kernel + (s * kKernelPart + i * kStep) / kUnit,
                                              of_operand + (r * kOperandPart + i * kStep) / kUnit);
      };
      multiply(0, 0, 0);
      if constexpr (kParts == 1) {
        if constexpr (kOfOperand == 2) multiply(0, 1, 0);
      } else {
        if constexpr (kExact || kParts == 3) {
          multiply(0, 1, 1);
          multiply(1, 0, 1);
        }
        if constexpr (kExact && kParts == 3) {
          multiply(1, 1, 1);
          multiply(0, 2, 1);
          multiply(2, 0, 1);
        }
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  }
  template <int kPending>
  __device__ __forceinline__ void Wait() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
  }

  // Calls take(tile, tile of 8 rows, sums) for all of this warp.
  template <class Take>
  __device__ __forceinline__ void Each(const Take& take) const {
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int n = 0; n < kOwnRows / 8; ++n) {
      float4 v;
      v.x = Get(4 * n);
      v.y = Get(4 * n + 1);
      v.z = Get(4 * n + 2);
      v.w = Get(4 * n + 3);
      take(group / kRowGroups * 4 + warp, group % kRowGroups * (kOwnRows / 8) + n, v);
    }
  }

 private:
  __device__ __forceinline__ float Get(int i) const {
    return kSums == 1 ? sums_[0][i] : sums_[0][i] + sums_[kSums - 1][i];
  }

  float sums_[kSums][kOwnRows / 2];
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_TILED_TILES_CUH_
