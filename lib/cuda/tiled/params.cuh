// Parameters of the `tiled` engine's kernels, and the layout of a step's operand in memory.
#pragma once

#include "lib/cuda/cell/params.cuh"
#include "lib/cuda/ptx/fp16_scale.cuh"
#include "lib/cuda/ptx/mma.cuh"
#include "lib/cuda/tiled/wgmma_tile.cuh"
#include "lib/plan/engines/tiled.h"

namespace haste {

// Split terms of 16 bits of the operand that R is multiplied by. A float has three, or two if it
// has a bound. In cells whose exponents would add up rounding errors, a 16-bit number has two.
template <class Cell, class T>
constexpr int kOperandTerms = sizeof(T) == 4       ? kMmaTerms<T>
                              : Cell::kExponential ? 2
                                                   : 1;

// Whether the operand of a phase's product (lib/cuda/cell/phase_forward.cuh) has a scale for each
// row.
template <class Phase>
constexpr bool kScalesRows = Phase::kBackward && kScaledTerms<typename Phase::Params::Storage> > 0;

// Gates' gradients that have a scale where R is stationary, with padding; 0 without scales. Of two
// products of a step, each gate has its own.
template <class Cell, class T>
constexpr int kScaledGates = kScaledTerms<T> == 0    ? 0
                             : Cell::kResetGates > 0 ? 1
                                                     : ScaledGates(Cell::kGates);
constexpr int SlotBytesOfGates(int scaled_gates) {
  return StationarySlotBytes(scaled_gates > 0 ? ScaledMakers(scaled_gates) : 0);
}

template <class Phase>
constexpr TiledProductShape ShapeOf() {
  using Params = typename Phase::Params;
  return {Phase::kSums, kMmaTerms<typename Params::Storage>, Params::kTerms, kScalesRows<Phase>};
}

// An operand, [2, K, row tile, chunk, split term, rows × depth of a chunk]. The first index is the
// parity of the step, or where R is stationary of the product; wgmma_tile.cuh defines the order in
// a chunk. A block reads its rows of neighbouring chunks in one copy. Padding is 0. If rows have
// scales, a chunk begins with the factors that undo them, [rows] of float.
struct TiledOperand {
  uint16_t* a;
  int chunks, row_tiles;
  int width, log_rows;  // of a chunk, with all split terms; log2 of the rows of a tile

  // Where a chunk of a lane's row tile begins.
  __host__ __device__ __forceinline__ int64_t At(int64_t lane, int64_t row_tile,
                                                 int64_t chunk) const {
    return ((lane * row_tiles + row_tile) * chunks + chunk) * width << log_rows;
  }
  __host__ __device__ __forceinline__ int64_t Size(int64_t lanes) const {
    return At(2 * lanes, 0, 0);
  }
  // The first chunk of an element's row tile. RowOf: the row's index in that tile. 32 bits are
  // enough in a row tile: the plan makes no larger one.
  HASTE_DEVICE uint16_t* Of(int64_t lane, const Element& e) const {
    const uint32_t tile_size = static_cast<uint32_t>(chunks * width) << log_rows;
    return a + (At(lane, 0, 0) +
                static_cast<uint64_t>(static_cast<uint32_t>(e.n) >> log_rows) * tile_size);
  }
  HASTE_DEVICE uint32_t RowOf(const Element& e) const {
    return static_cast<uint32_t>(e.n) & ((1u << log_rows) - 1);
  }
};

// Passed by value as a kernel parameter. kOfOperand: split terms of the operand.
template <class T, int kOfOperand>
struct TiledParams : WalkParams<T> {
  static constexpr int kTerms = kOfOperand;
  TiledTiling tiling;
  bool exact;           // for floats: full precision, not that of TensorFloat-32
  const uint4* kernel;  // R, packed (pack.cuh)
  // For cells whose steps have two products (kResetGates): tiling, kernel and operand belong to the
  // current product. Where R is stationary they belong to both, and there is no other.
  TiledOperand operand, other;
  // [K, row tiles] how often a block has ended a step, over all steps. Where R is stationary:
  // [K, row tiles, flags] how many steps, or products, a block has ended.
  uint32_t* arrived;
  // Only where blocks exchange partial sums in memory (StationaryMemoryMeeting).
  uint4* parts;
  // Only for Scaled: in forward the bound of |h|, with dropout; the largest |R|.
  float* most;
};

template <class T, int kOfOperand>
using TiledForwardParams = WithArgs<TiledParams<T, kOfOperand>, HasteRnnForwardArgs>;
template <class T, int kOfOperand>
using TiledBackwardParams = WithArgs<TiledParams<T, kOfOperand>, HasteRnnBackwardArgs>;

template <class T, int kOfOperand>
HASTE_DEVICE ProductScales ScalesOf(const TiledParams<T, kOfOperand>& p) {
  return ProductScales(__ldg(p.most), __ldg(p.most + 1), 0.0f);
}
template <class T, int kOfOperand>
HASTE_DEVICE ProductScales ScalesOf(const TiledBackwardParams<T, kOfOperand>& p) {
  return ProductScales(__ldg(p.most + 1));
}

// Where an element is in a split term, for any size of tiles.
template <class T, int kOfOperand>
HASTE_DEVICE uint32_t TiledOperandAt(uint32_t row, uint32_t depth) {
  return BlockTiles<T, kOfOperand, 8, 32, 2>::OperandAt(row, depth);
}

// Where number d of row 0 of a row tile is, from the row tile's first chunk on.
template <class T, int kOfOperand>
HASTE_DEVICE uint32_t TiledDepthAt(const TiledOperand& operand, uint32_t d) {
  constexpr int kDepth = TiledDepth(kMmaTerms<T>, kOfOperand);
  return (d / kDepth * (kOfOperand * kDepth) << operand.log_rows) +
         TiledOperandAt<T, kOfOperand>(0, d % kDepth);
}

// A number as one or two split terms of 16 bits.
template <class T, int kOfOperand>
HASTE_DEVICE void SplitNumber(float value, uint16_t (&part)[kOfOperand]) {
  using Operand = MmaOperand<T>;
  part[0] = FromCompute<Operand>(value).bits;
  if constexpr (kOfOperand == 2) {
    // The first split term of infinity or NaN is the number itself.
    const float rest = value - ToCompute(Operand{part[0]});
    part[1] = isfinite(rest) ? FromCompute<Operand>(rest).bits : 0;
  }
}

// Stores a number's split terms. to: the first of them.
template <class T, int kOfOperand>
HASTE_DEVICE void PutTerms(const TiledParams<T, kOfOperand>& p, const TiledOperand& operand,
                           uint16_t* to, float value) {
  constexpr int kDepth = TiledDepth(kMmaTerms<T>, kOfOperand);
  const auto put = [&](const auto& part) {
    HASTE_UNROLL for (int s = 0; s < kOfOperand; ++s) to[s * kDepth << operand.log_rows] = part[s];
  };
  if constexpr (sizeof(T) == 4) {
    if constexpr (kScaledTerms<T> > 0) value *= ScalesOf(p).state;
    uint16_t part[3];
    SplitOperand<T>(value, part);
    put(part);
  } else {
    uint16_t part[kOfOperand];
    SplitNumber<T>(value, part);
    put(part);
  }
}

template <class T, int kOfOperand>
HASTE_DEVICE void PutTiled(const TiledParams<T, kOfOperand>& p, const TiledOperand& operand,
                           int64_t step, const Element& e, int64_t d, float value) {
  uint16_t* row =
      operand.Of((step & 1) * p.K + e.k, e) + TiledOperandAt<T, kOfOperand>(operand.RowOf(e), 0);
  PutTerms(p, operand, row + TiledDepthAt<T, kOfOperand>(operand, static_cast<uint32_t>(d)), value);
}
constexpr int kStationaryNumbers = kStationaryChunkBytes / 2;  // of a chunk, in 16 bits
// Where a number is whose place among chunks of one term would be `at`.
template <int kOfOperand>
constexpr HASTE_DEVICE int AmongTerms(int at) {
  return at / kStationaryNumbers * (kOfOperand - 1) * kStationaryNumbers + at;
}
// The same where R is stationary, [chunk, split term]. Chunks have all rows of 8 of the depth, then
// those of the next: rows that are multiplied together are neighbours in shared memory. rows: of a
// row tile.
template <int kOfOperand>
HASTE_DEVICE int StationaryOperandAt(int rows, int row, int depth) {
  return AmongTerms<kOfOperand>(depth / 8 * (8 * rows) + row * 8 + depth % 8);
}
template <class T, int kOfOperand>
HASTE_DEVICE void PutOperand(const TiledParams<T, kOfOperand>& p, int64_t step, const Element& e,
                             int64_t d, float value) {
  if constexpr (kMmaTerms<T> == 1) {
    if (p.tiling.stationary()) {
      const int rows = 1 << p.operand.log_rows, row = static_cast<int>(p.operand.RowOf(e));
      if constexpr (kScaledTerms<T> > 0) value *= ScalesOf(p).state;
      uint16_t part[kOfOperand];
      SplitNumber<T>(value, part);
      uint16_t* to = p.operand.Of((step & 1) * p.K + e.k, e) +
                     StationaryOperandAt<kOfOperand>(rows, row, static_cast<int>(d));
      HASTE_UNROLL for (int s = 0; s < kOfOperand; ++s) to[s * kStationaryNumbers] = part[s];
      return;
    }
  }
  PutTiled(p, p.operand, step, e, d, value);
}
template <class T, int kOfOperand>
HASTE_DEVICE void PutOtherOperand(const TiledParams<T, kOfOperand>& p, int64_t step,
                                  const Element& e, int64_t d, float value) {
  PutTiled(p, p.other, step, e, d, value);
}

// An element that knows its place in the operand of the next step's product, for cells whose steps
// have one. kCount: numbers that it has there, at depths g * H + j. Elements of a thread differ in
// their row alone: all else is made once a step.
template <class T, int kOfOperand, int kCount>
struct TiledElement : Element {
  uint32_t row;            // in its row tile
  uint16_t* row_tile;      // its first chunk
  uint32_t place[kCount];  // from there, in row 0

  HASTE_DEVICE void Aim(const TiledParams<T, kOfOperand>& p, int64_t step) {
    row = p.operand.RowOf(*this);
    row_tile = OpaqueGlobal(p.operand.Of((step & 1) * p.K + k, *this));
    HASTE_UNROLL for (int g = 0; g < kCount; ++g) {
      place[g] = Opaque(static_cast<int>(
          TiledDepthAt<T, kOfOperand>(p.operand, static_cast<uint32_t>(g * p.H + j))));
    }
  }
  HASTE_DEVICE uint16_t* To(int i) const {
    return row_tile + (TiledOperandAt<T, kOfOperand>(row, 0) + place[i]);
  }
};
template <class T, int kOfOperand>
HASTE_DEVICE void PutOperand(const TiledParams<T, kOfOperand>& p, int64_t,
                             const TiledElement<T, kOfOperand, 1>& e, int64_t, float value) {
  PutTerms(p, p.operand, e.To(0), value);
}
template <class T, int kOfOperand, int kGates>
HASTE_DEVICE void PutGates(const TiledBackwardParams<T, kOfOperand>& p, int64_t,
                           const TiledElement<T, kOfOperand, kGates>& e,
                           const float (&values)[kGates]) {
  HASTE_UNROLL for (int g = 0; g < kGates; ++g) PutTerms(p, p.operand, e.To(g), values[g]);
}

// Called by whole warps, for 32 units of a row (a group). Units after the last have values 0.
template <int kTerms, int kGates>
HASTE_DEVICE void PutGates(const TiledBackwardParams<Scaled<kTerms>, kTerms>& p, int64_t,
                           const TiledElement<Scaled<kTerms>, kTerms, kGates>& e,
                           const float (&values)[kGates]) {
  using T = Scaled<kTerms>;
  constexpr int kDepth = TiledDepth(kTerms, kTerms);
  static_assert(kTerms == 2 && kDepth == 32,
                "a chunk is a warp's units; two parts for PackedParts");
  float most = 0.0f;
  HASTE_UNROLL for (int g = 0; g < kGates; ++g) most = fmaxf(most, fabsf(values[g]));
  const RowScale scale(LargestBits(__float_as_uint(most)));
  const TiledOperand& operand = p.operand;
  const uint32_t lane = threadIdx.x % 32, row = e.row;
  const uint32_t chunk_size = operand.width << operand.log_rows;
  uint16_t* first = e.row_tile + static_cast<uint32_t>(e.j) / kDepth * kGates * chunk_size;
  if (lane < kGates) reinterpret_cast<float*>(first + lane * chunk_size)[row] = scale.down;
  // Even lanes have the first split terms of two depths, odd lanes the second.
  const uint32_t part = lane % 2, scales = 2u << operand.log_rows;
  uint16_t* to = first + scales + (part * kDepth << operand.log_rows) +
                 TiledOperandAt<T, kTerms>(row, lane - part);
  HASTE_UNROLL for (int g = 0; g < kGates; ++g, to += chunk_size) {
    const uint32_t packed = PackedTerms<T>(values[g] * scale.up);
    if (part == 0 || p.exact) *reinterpret_cast<uint32_t*>(to) = packed;
  }
}

// The tile of a block. grid.x runs over splits, unit tiles, row tiles and lanes, splits fastest.
struct TiledPlace {
  int split, unit_tile;
  int64_t group;  // [K, row tiles]
  int64_t lane, row_tile, row;

  HASTE_DEVICE explicit TiledPlace(const TiledTiling& t) {
    int64_t rest = blockIdx.x;
    split = static_cast<int>(rest % t.splits);
    rest /= t.splits;
    unit_tile = static_cast<int>(rest % t.unit_tiles);
    group = rest / t.unit_tiles;
    lane = group / t.row_tiles;
    row_tile = group % t.row_tiles;
    row = row_tile * t.rows;
  }
};

}  // namespace haste
