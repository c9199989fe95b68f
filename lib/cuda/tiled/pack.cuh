// Packs R for the `tiled` engine, once a call: in 16-bit split terms, in the order of
// wgmma_tile.cuh.
#pragma once

#include "lib/cuda/cell/prepare.cuh"
#include "lib/cuda/cell/state_bound.cuh"
#include "lib/cuda/ptx/mma.cuh"
#include "lib/cuda/tiled/params.cuh"

namespace haste {

// The depth of the product, [gate, H], at `depth` of a chunk; none after the last.
template <class Phase>
HASTE_DEVICE int64_t TiledDepthAt(int64_t chunk, int depth, int64_t H) {
  constexpr int kDepth = ShapeOf<Phase>().depth(), kGates = Phase::kDepth;
  if constexpr (kScalesRows<Phase>) {
    const int64_t unit = chunk / kGates * kDepth + depth;
    return unit < H ? chunk % kGates * H + unit : kGates * H;
  }
  return chunk * kDepth + depth;
}

// to[k, unit tile, chunk, split term, tile, piece, lane of a warp], uint4. A warp writes one piece
// of a tile. In a block, the tiles of the same 16 units follow one another.
template <class Phase>
__global__ void PackTiled(const typename Phase::Params p,
                          const typename Phase::Params::Storage* __restrict__ r,
                          uint4* __restrict__ to) {
  const TiledTiling& t = p.tiling;
  const int64_t K = p.K, H = p.H;
  using T = typename Phase::Params::Storage;
  constexpr int kTerms = kMmaTerms<T>, kSums = Phase::kSums, kTiles = ShapeOf<Phase>().tiles();
  constexpr int kAllGates = Phase::kAllGates;
  constexpr int kDepth = ShapeOf<Phase>().depth(), kPieces = ShapeOf<Phase>().tile_pieces();
  constexpr int kPiecesOfTile = kPieces / kTiles;
  const int64_t warps = K * t.unit_tiles * t.total_chunks() * kPieces;
  [[maybe_unused]] const float scale = kScaledTerms<T> > 0 ? ScalesOf(p).weight : 1.0f;
  for (int64_t at = GlobalThread() / 32; at < warps; at += GlobalThreads() / 32) {
    int64_t rest = at / kPiecesOfTile;
    const int piece = static_cast<int>(at % kPiecesOfTile);
    const int tile = static_cast<int>(rest % kTiles);
    rest /= kTiles;
    const int64_t chunk = rest % t.total_chunks();
    rest /= t.total_chunks();
    const int64_t unit = rest % t.unit_tiles * t.units + tile / kSums * kTileRows;
    const int64_t k = rest / t.unit_tiles;
    const int gate = tile % kSums;
    uint32_t line[kTerms][4];
    BlockTiles<T, Phase::Params::kTerms, kTiles, 32, 1>::PackLine(
        piece,
        [&](int row, int depth) {
          const int64_t d = TiledDepthAt<Phase>(chunk, depth, H), j = unit + row;
          if (j >= H || d >= Phase::kDepth * H) return FromCompute<T>(0.0f);
          T weight = Phase::kBackward
                         ? r[(k * H + j) * kAllGates * H + Phase::kBefore * H + d]
                         : r[((k * H + d) * kAllGates + Phase::kBefore + gate) * H + j];
          if constexpr (kScaledTerms<T> > 0) weight.value *= scale;
          return weight;
        },
        line);
    uint4* of_chunk = to + at / kPieces * kTerms * kPieces * 32 + at % kPieces * 32;
    HASTE_UNROLL for (int s = 0; s < kTerms; ++s) {
      const auto& v = line[s];
      of_chunk[s * kPieces * 32 + threadIdx.x % 32] = make_uint4(v[0], v[1], v[2], v[3]);
    }
  }
}

// The part of R of a block where R is stationary. block: [k, unit tile, split].
template <class Phase>
class StationaryWeights {
  using T = typename Phase::Params::Storage;
  static constexpr int kGates = Phase::kAllGates;

 public:
  HASTE_DEVICE StationaryWeights(const typename Phase::Params& p, const T* r, int block)
      : tiling_(p.tiling),
        H_(static_cast<int>(p.H)),
        split_(block % p.tiling.splits),
        tile_(block / p.tiling.splits % p.tiling.unit_tiles),
        r_(r + block / p.tiling.splits / p.tiling.unit_tiles * p.H * kGates * p.H) {
    if constexpr (kScaledTerms<T> > 0) scale_ = ScalesOf(p).weight;
  }

  // row: of the block's 64. chunk: of the block. Row 16 g + 8 u + i is forward gate g of
  // unit 2 i + u, backward unit 16 g + 2 i + u.
  HASTE_DEVICE uint32_t At(int row, int chunk, int in_chunk) const {
    const int unit = row % 8 * 2 + row / 8 % 2;
    const int d = (chunk * tiling_.splits + split_) * tiling_.stationary_depth() + in_chunk;
    if constexpr (Phase::kBackward) {
      const int j = tile_ * kStationaryBackwardUnits + row / 16 * 16 + unit;
      if constexpr (Phase::kAfter == 0) {
        constexpr int kInDepth = kScalesRows<Phase> ? ScaledGates(kGates) : kGates;
        return OfGates<0, kGates, kInDepth>(j, d);
      } else {
        // Those of the gates after the reset gates, then those of the reset gates.
        constexpr int kReset = Phase::kGates;
        const int reset = d - tiling_.first_chunks * tiling_.splits * tiling_.stationary_depth();
        return reset < 0 ? OfGates<kReset, kGates, Phase::kAfter>(j, d)
                         : OfGates<0, kReset, kReset>(j, reset);
      }
    } else {
      const int j = tile_ * kStationaryUnits + unit;
      if (row / 16 >= kGates || d >= H_ || j >= H_) return 0;
      return Bits(r_[(int64_t{d} * kGates + row / 16) * H_ + j]);
    }
  }

 private:
  // Backward: of the depth of a product over gates kFrom … kEnd - 1, padded to kInDepth gates:
  // [tile of units, gate, unit].
  template <int kFrom, int kEnd, int kInDepth>
  HASTE_DEVICE uint32_t OfGates(int j, int d) const {
    constexpr int kUnits = kScalesRows<Phase> ? kStationaryScaleUnits : kStationaryBackwardUnits;
    const int of_gate = d / kUnits, gate = kFrom + of_gate % kInDepth;
    const int from = of_gate / kInDepth * kUnits + d % kUnits;
    if (j >= H_ || from >= H_ || gate >= kEnd) return 0;
    return Bits(r_[(int64_t{j} * kGates + gate) * H_ + from]);
  }

  HASTE_DEVICE uint16_t Bits(T weight) const {
    if constexpr (kScaledTerms<T> > 0) {
      return FromCompute<MmaOperand<T>>(weight.value * scale_).bits;
    } else {
      return weight.bits;
    }
  }

  const TiledTiling& tiling_;
  const int H_, split_, tile_;
  const T* const r_;  // of the lane
  float scale_;       // only for Scaled
};

// For R that is stationary. to[block, half, chunk of the half, piece], uint4: a half has every
// other chunk of the depth. First the chunks that registers hold, [16 of the depth, thread], then
// those in shared memory, [8 of the depth, row].
template <class Phase>
__global__ void PackStationary(const typename Phase::Params p,
                               const typename Phase::Params::Storage* __restrict__ r,
                               uint4* __restrict__ to) {
  const TiledTiling& t = p.tiling;
  const int of_chunk = t.kernel_chunk_bytes() / 16;
  const int in_registers = t.kept / 2;
  const int half_chunks = t.chunks / 2;
  const int64_t pieces = p.K * t.group_blocks() * t.chunks * of_chunk;
  for (int64_t at = GlobalThread(); at < pieces; at += GlobalThreads()) {
    const int piece = static_cast<int>(at) & (of_chunk - 1);  // a power of two
    int rest = static_cast<int>(at / of_chunk);
    const int of_half = rest % half_chunks;
    rest /= half_chunks;
    const int chunk = 2 * of_half + rest % 2;
    const StationaryWeights<Phase> weights(p, r, rest / 2);
    uint32_t packed[4];
    HASTE_UNROLL for (int i = 0; i < 4; ++i) {
      int row, in_chunk;
      if (of_half < in_registers) {
        const int thread = piece % 128, lane = thread % 32;
        row = thread / 32 * 16 + lane / 4 + i % 2 * 8;
        in_chunk = piece / 128 * 16 + lane % 4 * 2 + i / 2 * 8;
      } else {
        row = piece % 64;
        in_chunk = piece / 64 * 8 + 2 * i;
      }
      packed[i] = weights.At(row, chunk, in_chunk) | weights.At(row, chunk, in_chunk + 1) << 16;
    }
    to[at] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

// Finds what ScalesOf uses, over all rows and lanes. `most` must be 0 before. weights: numbers of
// R.
template <class Cell, class Phase>
__global__ void FindMost(const typename Phase::Params p, int64_t weights,
                         const typename Phase::Params::Storage* __restrict__ r) {
  float weight = 0.0f, state = 1.0f;
  for (int64_t i = GlobalThread(); i < weights; i += GlobalThreads()) {
    weight = Larger(weight, ToCompute(r[i]));
  }
  if constexpr (!Phase::kBackward) {
    for (int64_t i = GlobalThread(); HasInitialStates(p) && i < p.N * p.K * p.H;
         i += GlobalThreads()) {
      state = Larger(state, BoundOfState<Cell>(p, i));
    }
  }
  weight = LargestOfWarp(weight);
  state = LargestOfWarp(state) / (1.0f - p.dropout_rate);
  if (threadIdx.x % 32 == 0) {
    // The bits of magnitudes have the same order as the magnitudes.
    atomicMax(reinterpret_cast<unsigned*>(p.most), __float_as_uint(state));
    atomicMax(reinterpret_cast<unsigned*>(p.most + 1), __float_as_uint(weight));
  }
}

}  // namespace haste
