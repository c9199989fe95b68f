// Matrix products on tensor cores, one warp at a time (sm_80+), with our own order of operands.
//
// c[16 × 8] += a[16 × 16] · b[16 × 8] sums over 16 depths, in any order. In our order a thread has
// eight neighbouring depths of two consecutive products (a "chunk" of 32 depths): lane 4·n + i of b
// has row n's elements 8·i … 8·i + 7 of the chunk, 16 bytes of memory. Of c, a lane has rows
// lane / 4 and lane / 4 + 8, columns 2·(lane % 4) and the next.
//
// A float is the sum of three bfloat16 split terms (8 bits each of its 24), so a product of floats
// is a sum of nine products. The three smallest are left out: at most 2^-22 of the product if split
// terms are cut off, 2^-24 if they are rounded, 2^-26 on average. With two split terms and three
// products the error is 2^-16; they are used where TensorFloat-32 (2^-11) would be enough. Numbers
// with a bound are scaled float16: one split term has the eleven bits of TensorFloat-32. Two have
// 22 bits and a sign and, with three products, an error of 2^-22.
#pragma once

#include <type_traits>

#include "lib/cuda/ptx/vector_access.cuh"

namespace haste {

constexpr int kChunkDepth = 32;
constexpr int kTileRows = 16, kTileColumns = 8;  // of c

// The type that is multiplied in place of a T, and the number of split terms.
template <class T>
constexpr int kScaledTerms = 0;
template <int kTerms>
constexpr int kScaledTerms<Scaled<kTerms>> = kTerms;
template <class T>
using MmaOperand =
    std::conditional_t<std::is_same_v<T, Half> || (kScaledTerms<T> > 0), Half, Bfloat16>;
template <class T>
constexpr int kMmaTerms = kScaledTerms<T> > 0              ? kScaledTerms<T>
                          : sizeof(T) == 2                 ? 1
                          : std::is_same_v<T, TensorFloat> ? 2
                                                           : 3;
// Bytes of a number of b in transit: its split terms, or the float if there are three.
template <class T>
constexpr int kOperandBytes = kMmaTerms<T> == 1 ? 2 : 4;

template <class Operand>
HASTE_DEVICE void Mma(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&c)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HASTE_MMA(TYPES)                                           \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPES               \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<Operand, Half>) {
    HASTE_MMA("f16.f16");
  } else {
    HASTE_MMA("bf16.bf16");
  }
#undef HASTE_MMA
#endif
}

// x as split terms of bfloat16, the largest first. A TensorFloat is the first two. The first split
// term of infinity or NaN is the number itself.
HASTE_DEVICE void Split(float x, uint16_t (&part)[3]) {
  uint16_t bits = FromCompute<Bfloat16>(x).bits;
  // Rounding up must not turn a finite number into infinity.
  if ((bits & 0x7FFF) == 0x7F80) bits = static_cast<uint16_t>(__float_as_uint(x) >> 16);
  part[0] = bits;
  float rest = (bits & 0x7F80) == 0x7F80 ? 0.0f : x - ToCompute(Bfloat16{bits});
  part[1] = FromCompute<Bfloat16>(rest).bits;
  rest -= ToCompute(Bfloat16{part[1]});
  part[2] = FromCompute<Bfloat16>(rest).bits;
}

// The same as T is multiplied, of which x may be a product.
template <class T>
HASTE_DEVICE void SplitOperand(float x, uint16_t (&part)[3]) {
  if constexpr (kMmaTerms<T> == 1) {
    part[0] = FromCompute<MmaOperand<T>>(x).bits;
  } else if constexpr (kScaledTerms<T> == 2) {
    const Half first = FromCompute<Half>(x);
    part[0] = first.bits;
    part[1] = FromCompute<Half>(x - ToCompute(first)).bits;
  } else {
    Split(x, part);
  }
}

// Called by two neighbouring lanes with neighbouring depths. The first lane gets the first split
// terms of both, packed as in an operand, the second lane the second ones. No result has all bits
// set.
template <class T>
HASTE_DEVICE uint32_t PackedTerms(float x) {
  uint16_t part[3];
  SplitOperand<T>(x, part);
  const uint32_t mine = part[0] | static_cast<uint32_t>(part[1]) << 16;
  const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, mine, 1);
  return threadIdx.x % 2 == 0 ? __byte_perm(mine, other, 0x5410) : __byte_perm(other, mine, 0x7632);
}

// Two neighbouring depths of each split term, packed as in an operand.
template <class T>
HASTE_DEVICE void PackPair(T first, T second, uint32_t (&packed)[kMmaTerms<T>]) {
  if constexpr (sizeof(T) == 2) {
    packed[0] = first.bits | static_cast<uint32_t>(second.bits) << 16;
  } else {
    uint16_t low[3], high[3];
    SplitOperand<T>(ToCompute(first), low);
    SplitOperand<T>(ToCompute(second), high);
    HASTE_UNROLL for (int i = 0; i < kMmaTerms<T>; ++i) {
      packed[i] = low[i] | static_cast<uint32_t>(high[i]) << 16;
    }
  }
}

// One tile of a, in split terms.
template <class T>
struct alignas(16) TileA {
  uint32_t part[kMmaTerms<T>][4];

  // element(row, depth): of rows lane / 4 (0) and 8 after it (1), and of the lane's eight depths,
  // which are those from lane % 4 · 8 on. half: which four of them.
  template <class Element>
  HASTE_DEVICE void Load(int half, const Element& element) {
    HASTE_UNROLL for (int i = 0; i < 4; ++i) {
      uint32_t packed[kMmaTerms<T>];
      const int depth = half * 4 + i / 2 * 2;
      PackPair<T>(element(i % 2, depth), element(i % 2, depth + 1), packed);
      HASTE_UNROLL for (int s = 0; s < kMmaTerms<T>; ++s) part[s][i] = packed[s];
    }
  }
  // The same of what this lane has of both halves: of row lane / 4, and of the row 8 further.
  HASTE_DEVICE void Set(int half, const T (&row)[8], const T (&further)[8]) {
    HASTE_UNROLL for (int i = 0; i < 4; ++i) {
      uint32_t packed[kMmaTerms<T>];
      const int d = half * 4 + i / 2 * 2;
      PackPair<T>(i % 2 == 0 ? row[d] : further[d], i % 2 == 0 ? row[d + 1] : further[d + 1],
                  packed);
      HASTE_UNROLL for (int s = 0; s < kMmaTerms<T>; ++s) part[s][i] = packed[s];
    }
  }
};

// What a lane has of one chunk of b: two tiles, in split terms.
template <class T>
struct ChunkB {
  uint32_t part[kMmaTerms<T>][4];

  // A split term, as it is multiplied.
  HASTE_DEVICE void SetTerm(int term, uint4 v) {
    part[term][0] = v.x;
    part[term][1] = v.y;
    part[term][2] = v.z;
    part[term][3] = v.w;
  }
  // v: the lane's eight elements in the order of memory; with two split terms, as in PackedTerms.
  HASTE_DEVICE void Set(const uint4 (&v)[kOperandBytes<T> / 2]) {
    if constexpr (kMmaTerms<T> == 1) {
      SetTerm(0, v[0]);
    } else if constexpr (kMmaTerms<T> == 2) {
      HASTE_UNROLL for (int i = 0; i < 2; ++i) {
        part[0][2 * i] = v[i].x;
        part[1][2 * i] = v[i].y;
        part[0][2 * i + 1] = v[i].z;
        part[1][2 * i + 1] = v[i].w;
      }
    } else {
      HASTE_UNROLL for (int i = 0; i < 2; ++i) {
        SetPair(2 * i, v[i].x, v[i].y);
        SetPair(2 * i + 1, v[i].z, v[i].w);
      }
    }
  }

 private:
  // Split terms are cut off, not rounded: three of eight bits hold all 24, with a third of the
  // instructions. Infinity becomes NaN.
  HASTE_DEVICE void SetPair(int i, uint32_t first, uint32_t second) {
    HASTE_UNROLL for (int s = 0; s < 3; ++s) {
      part[s][i] = __byte_perm(first, second, 0x7632);
      first = CutOff(first);
      second = CutOff(second);
    }
  }
  static HASTE_DEVICE uint32_t CutOff(uint32_t x) {
    return __float_as_uint(__uint_as_float(x) - __uint_as_float(x & 0xFFFF0000u));
  }
};

// Sums of one tile. With three split terms, the large products and the small ones are summed
// separately, so that the latter are not cut off.
template <class T>
struct TileC {
  static constexpr int kSums = kMmaTerms<T> == 3 ? 2 : 1;
  float sum[kSums][4] = {};

  HASTE_DEVICE void Add(const TileA<T>& a, const ChunkB<T>& b, int half) {
    using Operand = MmaOperand<T>;
    const int at = 2 * half;
    Mma<Operand>(a.part[0], b.part[0][at], b.part[0][at + 1], sum[0]);
    if constexpr (kMmaTerms<T> > 1) {
      Mma<Operand>(a.part[0], b.part[1][at], b.part[1][at + 1], sum[kSums - 1]);
      Mma<Operand>(a.part[1], b.part[0][at], b.part[0][at + 1], sum[kSums - 1]);
    }
    if constexpr (kMmaTerms<T> == 3) {
      Mma<Operand>(a.part[1], b.part[1][at], b.part[1][at + 1], sum[1]);
      Mma<Operand>(a.part[0], b.part[2][at], b.part[2][at + 1], sum[1]);
      Mma<Operand>(a.part[2], b.part[0][at], b.part[0][at + 1], sum[1]);
    }
  }
  HASTE_DEVICE float Get(int i) const {
    return kSums == 1 ? sum[0][i] : sum[0][i] + sum[kSums - 1][i];
  }
};

}  // namespace haste
