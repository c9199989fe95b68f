// Which tiles a block has backward where R is stationary, and the chunks that it loads
// (stationary_backward.cuh).
#pragma once

#include "lib/cuda/tiled/stationary.cuh"

namespace haste {

// The tiles of a block. grid.x runs over the unit tiles that share the operand, splits, other unit
// tiles, groups of row tiles and lanes, the first fastest.
struct StationaryBackwardPlace : StationaryRows {
  int split, unit_tile;

  HASTE_DEVICE explicit StationaryBackwardPlace(const TiledTiling& t)
      : StationaryRows(t, static_cast<int>(blockIdx.x) / (t.splits * t.unit_tiles)) {
    int rest = static_cast<int>(blockIdx.x);
    unit_tile = rest % t.sharers;
    rest /= t.sharers;
    split = rest % t.splits;
    rest /= t.splits;
    unit_tile += rest % (t.unit_tiles / t.sharers) * t.sharers;
  }
};

// The chunks of the gates' gradients, as a loading warp sees them. Flags are [unit tile, split]:
// how many steps a block has ended.
template <class Cell, class Params>
class StationaryBackwardChunks {
  static constexpr int kScaled = kScaledGates<Cell, typename Params::Storage>;

 public:
  static constexpr int kTerms = Params::kTerms;
  static constexpr int kSlotBytes = SlotBytesOfGates(kScaled);

  HASTE_DEVICE StationaryBackwardChunks(const Params& p, const StationaryBackwardPlace& place)
      : tiling_(p.tiling),
        split_(place.split),
        parity_stride_(p.operand.At(p.K, 0, 0)),
        operand_(p.operand.a + p.operand.At(place.lane, place.row_tile, 0)),
        flags_(FlagsOf(p, place.lane, place.row_tile)) {}

  // Whether a block has made its part of the operand of a step's product, which follows the step
  // before: no flag counts that at first.
  HASTE_DEVICE bool IsMade(int turn, int chunk, int part, int64_t step) const {
    int tile, split;
    if constexpr (kScaled > 0) {
      const int block = (Number(chunk) * kStationaryMakers + part) / kScaled;
      tile = block / tiling_.splits;
      split = block % tiling_.splits;
    } else {
      // A chunk is of one unit tile, or of two whose clusters have half as many blocks.
      const int tiles = kStationaryRows / tiling_.rows;
      tile = (Number(chunk) * tiles + part / tiling_.splits) / Cell::kGates;
      split = part % tiling_.splits;
    }
    return tile >= tiling_.unit_tiles ||
           HasEnded(flags_ + turn * tiling_.flags() + FlagAt(tiling_, tile, split), step + 1);
  }
  HASTE_DEVICE const uint16_t* At(int turn, int chunk, int term, int64_t step) const {
    const int64_t number = int64_t{turn} * tiling_.total_chunks() + Number(chunk);
    return operand_ + (step & 1) * parity_stride_ + (number * kTerms + term) * (kSlotBytes / 2);
  }

  // Of a block, in its first row tile.
  static HASTE_DEVICE uint32_t* FlagOf(const Params& p, const StationaryBackwardPlace& place) {
    return FlagsOf(p, place.lane, place.row_tile) + FlagAt(p.tiling, place.unit_tile, place.split);
  }

 private:
  static HASTE_DEVICE int FlagAt(const TiledTiling& t, int unit_tile, int split) {
    return (unit_tile * t.splits + split) * kStationaryFlagStride;
  }
  // Of one of the block's chunks, among all.
  HASTE_DEVICE int Number(int chunk) const { return chunk * tiling_.splits + split_; }

  const TiledTiling& tiling_;
  const int split_;
  const int64_t parity_stride_;
  const uint16_t* const operand_;
  const uint32_t* const flags_;
};

}  // namespace haste
