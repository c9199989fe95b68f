// The product of a step of `tiled` where R stays on the chip: by wgmma, R from registers and from
// shared memory, the operand from slots that other warps fill (stationary.cuh).
#pragma once

#include "lib/cuda/tiled/stationary.cuh"

namespace haste {

// A block's product of a step: of a group of four warps, over its half of the chunks.
// kRegisterDepth: of R in registers. kShares: blocks of the cluster share the operand. kScaled:
// steps of 16 of the depth in which a row of the operand has one scale, or 0 without scales.
// kTerms: split terms of the operand.
template <class T, int kRows, int kRegisterDepth, bool kShares, int kScaled = 0, int kTerms = 1>
class StationaryProduct {
  using Sums = float[kRows / 2];  // 64 × kRows of the block, as WarpgroupMma has them
  // Of a chunk: its depth, in steps of 16; bytes in shared memory; bytes of R.
  static constexpr int kSteps = kStationaryChunkBytes / (32 * kRows);
  static constexpr int kSlotBytes = SlotBytesOfGates(kScaled);
  static constexpr int kKernelBytes = kStationarySums * 32 * kSteps;
  static constexpr int kUnit = 16;  // bytes: of addresses in descriptors
  static_assert(kRegisterDepth % (16 * kSteps) == 0, "whole chunks");

 public:
  static constexpr int kKept = kRegisterDepth / (16 * kSteps);  // chunks in registers, of each half

  HASTE_DEVICE StationaryProduct(const TiledTiling& t, const Pipeline& pipeline,
                                 unsigned char* slots, unsigned char* kept, int half)
      : pipeline_(pipeline),
        slots_(SharedAddress(slots)),
        kept_(SharedAddress(kept) + half * (t.chunks - t.kept) / 2 * kKernelBytes),
        chunks_(t.chunks / 2),
        first_chunks_(t.first_chunks / 2),
        slot_count_(t.slots),
        sharers_(t.sharers),
        slot_(half) {}

  // from: R, packed, of this block (PackStationary). kept: the region in shared memory.
  HASTE_DEVICE void Keep(const uint4* from, unsigned char* kept, int half) {
    constexpr int kPieces = kKernelBytes / 16;
    from += static_cast<int64_t>(half) * chunks_ * kPieces;
    // 0, unknown to the compiler: results of this operation need no scoreboard. A register that may
    // still be loaded makes each wgmma wait for what else has its scoreboard, which is a step's
    // inputs.
    const uint32_t zero = static_cast<uint32_t>(chunks_) >> 31;
    HASTE_UNROLL for (int c = 0; c < kKept; ++c) {
      HASTE_UNROLL for (int k = 0; k < kSteps; ++k) {
        const uint4 v = c < chunks_ ? from[(c * kSteps + k) * 128 + threadIdx.x % 128] : uint4{};
        a_[c][k][0] = v.x ^ zero;
        a_[c][k][1] = v.y ^ zero;
        a_[c][k][2] = v.z ^ zero;
        a_[c][k][3] = v.w ^ zero;
      }
    }
    const int others = max(chunks_ - kKept, 0);
    uint4* to = reinterpret_cast<uint4*>(kept + half * others * kKernelBytes);
    for (int i = threadIdx.x % 128; i < others * kPieces; i += 128) {
      to[i] = from[kKept * kPieces + i];
    }
    FenceSharedBulkCopies();
  }

  // The product in two parts: of the first kBegun chunks of R, then of the others, which are added.
  template <int kBegun>
  HASTE_DEVICE void Begin(Sums& sums) {
    MultiplySome<0, kBegun>(All(), sums, [](int*) {});
  }
  template <int kBegun>
  HASTE_DEVICE void Finish(Sums& sums) {
    MultiplyRest<kBegun>(All(), sums);
  }
  // All of it.
  HASTE_DEVICE void Multiply(Sums& sums) { Finish<0>(sums); }
  // Where a step's two products have chunks of their own: the first, or the second.
  HASTE_DEVICE void MultiplyPart(bool first, Sums& sums) {
    MultiplyRest<0>(Part{first ? 0 : first_chunks_, first ? first_chunks_ : chunks_}, sums);
  }

 private:
  // The chunks of a product: some, or all of R. Of all, more is known when this is compiled.
  struct Part {
    static constexpr bool kAll = false;
    int begin, end;
  };
  struct Whole {
    static constexpr bool kAll = true;
    static constexpr int begin = 0;
    int end;
  };
  HASTE_DEVICE Whole All() const { return {chunks_}; }

  // of: the product's. Of these, all from kFrom on.
  template <int kFrom, class Range>
  HASTE_DEVICE void MultiplyRest(const Range& of, Sums& sums) {
    MultiplySome<kFrom, kKept>(of, sums, [&](int* last) {
      const int first = Range::kAll ? kKept : max(kKept, of.begin);
      uint64_t a = Matrices<kStationarySums>(kept_);
      if constexpr (!Range::kAll) a += (first - kKept) * (kKernelBytes / kUnit);
      for (int c = first; c < of.end; ++c, a += kKernelBytes / kUnit) {
        HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
          const bool follows = Range::kAll || c + s > of.begin;
          Chunk(follows, follows, last, sums, [&](Sums& to, int k, uint64_t b, bool adds) {
            const uint64_t of_kernel = a + k * (32 * kStationarySums / kUnit);
            WarpgroupMma<MmaOperand<T>, kRows>(to, of_kernel, b, adds);
          });
        }
      }
    });
  }
  // Of R in registers the chunks from kFrom to kTo, then others(&last). last: the slot that the
  // tensor cores may still read.
  template <int kFrom, int kTo, class Range, class Others>
  HASTE_DEVICE void MultiplySome(const Range& of, Sums& sums, const Others& others) {
    static_assert(kFrom < kTo && kTo <= kKept, "a chunk of R in registers is the first");
    int last = 0;
    if constexpr (kScaled > 0 && kFrom == 0) {
      HASTE_UNROLL for (float& sum : sums) sum = 0.0f;
    }
    HASTE_UNROLL for (int c = kFrom; c < kTo; ++c) {
      if ((Range::kAll || c >= of.begin) && c < of.end) {
        HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
          const bool adds = c + s > of.begin;
          const bool follows = c + s > (Range::kAll ? kFrom : max(kFrom, of.begin));
          Chunk(adds, follows, &last, sums, [&](Sums& to, int k, uint64_t b, bool adds) {
            WarpgroupMmaKept<MmaOperand<T>, kRows>(to, a_[c][k], b, adds);
          });
        }
      }
    }
    others(&last);
    if constexpr (kScaled == 0) {
      WaitWarpgroupMma<0>();
      if (kFrom == 0 || of.end > kFrom) Free(last);
    }
  }

  // Chunks have all rows of 8 of the depth, then those of the next.
  template <int kOfRows>
  static HASTE_DEVICE uint64_t Matrices(uint32_t at) {
    return CoreMatricesAt<16 * kOfRows, 128>(at);
  }

  // issue(to, k, b, adds): a step. adds: to sums; else it is a product's first chunk. follows:
  // another, whose wgmma may still read its slot, *last.
  template <class Issue>
  HASTE_DEVICE void Chunk(bool adds, bool follows, int* last, Sums& sums, const Issue& issue) {
    pipeline_.Wait(slot_, lap_);
    if (threadIdx.x % 128 == 0) pipeline_.Expect(slot_, kSlotBytes);  // the next use
    const uint32_t slot = slots_ + slot_ * kSlotBytes;
    const uint64_t b = Matrices<kRows>(slot);
    if constexpr (kScaled > 0) {
      const float* down = reinterpret_cast<const float*>(
          stationary_shared + (slot - SharedAddress(stationary_shared)) + kStationaryChunkBytes);
      HASTE_UNROLL for (int s = 0; s < kSteps / kScaled; ++s) {
        AddScaled(s, b, down, sums, issue);
      }
      FenceSharedBulkCopies();  // to come: ordinary loads have read the scales
      Free(slot_);
    } else {
      BeginWarpgroupMma();
      HASTE_UNROLL for (int k = 0; k < kSteps; ++k) {
        issue(sums, k, b + k * (32 * kRows / kUnit), adds || k > 0);
      }
      CommitWarpgroupMma();
      if (follows) {
        WaitWarpgroupMma<1>();
        Free(*last);
      }
    }
    *last = slot_;
    slot_ += 2;
    if (slot_ >= slot_count_) {
      slot_ -= slot_count_;
      lap_ ^= 1;
    }
  }
  // Adds the products of a chunk whose rows have scale s. The other half of the warps keeps the
  // tensor cores busy meanwhile. down: of each scale and row what undoes it.
  template <class Issue>
  static HASTE_DEVICE void AddScaled(int s, uint64_t b, const float* down, Sums& sums,
                                     const Issue& issue) {
    Sums scaled;
    BeginWarpgroupMma();
    HASTE_UNROLL for (int k = s * kScaled; k < (s + 1) * kScaled; ++k) {
      issue(scaled, k, b + k * (32 * kRows / kUnit), k > s * kScaled);
    }
    CommitWarpgroupMma();
    WaitWarpgroupMma<0>();
    HASTE_UNROLL for (int n = 0; n < kRows / 8; ++n) {
      const auto of_pair = LoadFragment<2>(down + s * kRows + n * 8 + threadIdx.x % 4 * 2);
      HASTE_UNROLL for (int i = 0; i < 4; ++i) {
        float& product = scaled[4 * n + i];
        asm volatile("" : "+f"(product));  // keeps reads after the wait
        sums[4 * n + i] = fmaf(product, of_pair.v[i % 2], sums[4 * n + i]);
      }
    }
  }
  // Tells the block that fills a slot, its own and those of its cluster, that this warp has read
  // it.
  HASTE_DEVICE void Free(int slot) const {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    if constexpr (kShares) {
      // StationaryLoader: blocks take turns in the slots. sharers_ is a power of two.
      pipeline_.FreeIn(slot & (sharers_ - 1), slot);
    } else {
      pipeline_.Free(slot);
    }
  }

  const Pipeline pipeline_;
  const uint32_t slots_, kept_;
  const int chunks_, first_chunks_, slot_count_;
  const uint32_t sharers_;
  int slot_;
  uint32_t lap_ = 0;
  uint32_t a_[kKept][kSteps][4];
};

}  // namespace haste
