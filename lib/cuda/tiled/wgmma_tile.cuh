// How a block's warps multiply one chunk, and the layout of operands for that.
//
// Products are by wgmma; the core matrices along a chunk's depth follow one another
// (lib/cuda/ptx/wgmma.cuh).
#pragma once

#include "lib/cuda/ptx/mma.cuh"
#include "lib/cuda/ptx/wgmma.cuh"
#include "lib/plan/engines/tiled.h"

namespace haste {

// kTiles × kRows of a block; kRowGroups groups of warps share out the rows. kScalesRows: chunks are
// multiplied in groups, and in each group rows have their own scales.
template <class T, int kOfOperand, int kTiles, int kRows, int kRowGroups, bool kScalesRows = false>
class BlockTiles {
  static constexpr int kTerms = kMmaTerms<T>, kDepth = TiledDepth(kTerms, kOfOperand);
  // Sums as in TileC; with kScalesRows, one of the current group and one of those before.
  static constexpr int kSums = kTerms == 1 ? 1 : 2;
  static constexpr int kSmall = kScalesRows ? 0 : kSums - 1;  // index of the sum of small products
  static_assert(!kScalesRows || (kTerms == 2 && kRowGroups == 1), "what EndGroup goes by");
  static constexpr int kOwnRows = kRows / kRowGroups;
  // Bytes of a part of a chunk; of a warpgroup's 64 sums.
  static constexpr int kKernelPart = kTiles * 32 * kDepth, kOperandPart = kRows * 2 * kDepth;
  static constexpr int kGroupBytes = 128 * kDepth;

 public:
  // Where an element of the operand is in a split term.
  static HASTE_DEVICE uint32_t OperandAt(uint32_t row, uint32_t depth) {
    return (row / 8 * (kDepth / 8) + depth / 8) * 64 + row % 8 * 8 + depth % 8;
  }
  // 16 bytes of each part of R: of a piece of a tile, this lane's. element(row, depth).
  template <class Element>
  static HASTE_DEVICE void PackLine(int piece, const Element& element,
                                    uint32_t (&line)[kTerms][4]) {
    const int lane = threadIdx.x % 32;
    HASTE_UNROLL for (int i = 0; i < 4; ++i) {
      uint32_t packed[kTerms];
      const int row = piece / (kDepth / 32) * 8 + lane % 8;
      const int depth = (piece % (kDepth / 32) * 4 + lane / 8) * 8 + 2 * i;
      PackPair<T>(element(row, depth), element(row, depth + 1), packed);
      HASTE_UNROLL for (int s = 0; s < kTerms; ++s) line[s][i] = packed[s];
    }
  }

  HASTE_DEVICE void Clear() {
    HASTE_UNROLL for (int s = 0; s < kSums; ++s) {
      HASTE_UNROLL for (int i = 0; i < kOwnRows / 2; ++i) sums_[s][i] = 0;
    }
  }
  // a, b: of all parts, or where it need not be exact of all but the last. All but the last
  // kPending chunks have been multiplied after Wait. begins: a group.
  template <bool kExact>
  HASTE_DEVICE void Chunk(const unsigned char* a, const unsigned char* b, bool begins) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    constexpr int kUnit = 16, kStep = 256;  // bytes: a descriptor's unit; 16 of the depth
    const int group = threadIdx.x / 128;
    const uint64_t of_kernel = CoreMatrices<kDepth>(a) + group / kRowGroups * (kGroupBytes / kUnit);
    const uint64_t of_operand =
        CoreMatrices<kDepth>(b) + group % kRowGroups * (kOperandPart / kRowGroups / kUnit);
    BeginWarpgroupMma();
    HASTE_UNROLL for (int i = 0; i < kDepth / 16; ++i) {
      const auto multiply = [&](int s, int r, int to, bool adds = true) {
        WarpgroupMma<MmaOperand<T>, kOwnRows>(
            sums_[to], of_kernel + (s * kKernelPart + i * kStep) / kUnit,
            of_operand + (r * kOperandPart + i * kStep) / kUnit, adds);
      };
      multiply(0, 0, 0, !kScalesRows || i > 0 || !begins);
      if constexpr (kTerms == 1) {
        if constexpr (kOfOperand == 2) multiply(0, 1, 0);
      } else {
        if constexpr (kExact || kTerms == 3) {
          multiply(0, 1, kSmall);
          multiply(1, 0, kSmall);
        }
        if constexpr (kExact && kTerms == 3) {
          multiply(1, 1, kSmall);
          multiply(0, 2, kSmall);
          multiply(2, 0, kSmall);
        }
      }
    }
    CommitWarpgroupMma();
#endif
  }
  template <int kPending>
  HASTE_DEVICE void Wait() {
    WaitWarpgroupMma<kPending>();
  }

  // kScalesRows: after the last chunk of a group. down: of each row what undoes its scale.
  HASTE_DEVICE void EndGroup(const float* down) {
    Fragment<float, 2> of_pair[kOwnRows / 8];  // of rows: what a thread has of eight
    HASTE_UNROLL for (int n = 0; n < kOwnRows / 8; ++n) {
      of_pair[n] = LoadFragment<2>(down + n * 8 + threadIdx.x % 4 * 2);
    }
    Wait<0>();
    HASTE_UNROLL for (int i = 0; i < kOwnRows / 2; ++i) {
      asm volatile("" : "+f"(sums_[0][i]));  // keeps reads after the wait
      sums_[kSums - 1][i] = fmaf(sums_[0][i], of_pair[i / 4].v[i % 2], sums_[kSums - 1][i]);
    }
  }

  // Calls take(tile, tile of 8 rows, sums) for all tiles of this warp.
  template <class Take>
  HASTE_DEVICE void Each(const Take& take) const {
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
    HASTE_UNROLL for (int n = 0; n < kOwnRows / 8; ++n) {
      float4 v;
      v.x = Get(4 * n);
      v.y = Get(4 * n + 1);
      v.z = Get(4 * n + 2);
      v.w = Get(4 * n + 3);
      take(group / kRowGroups * 4 + warp, group % kRowGroups * (kOwnRows / 8) + n, v);
    }
  }

 private:
  HASTE_DEVICE float Get(int i) const {
    return kSums == 1 || kScalesRows ? sums_[kSums - 1][i] : sums_[0][i] + sums_[kSums - 1][i];
  }

  float sums_[kSums][kOwnRows / 2];
};

}  // namespace haste
