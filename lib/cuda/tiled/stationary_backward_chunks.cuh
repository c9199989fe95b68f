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
// how many steps, or products, a block has ended. kRows: of a row tile.
template <class Cell, int kRows, class Params>
class StationaryBackwardChunks : public StationaryChunks<Params> {
  static constexpr int kSplits = kRows / 16;
  static constexpr int kScaled = kScaledGates<Cell, typename Params::Storage>;

 public:
  static constexpr int kTerms = Params::kTerms;
  static constexpr bool kDividesR = Cell::kResetGates > 0;
  static constexpr int kSlotBytes = SlotBytesOfGates(kScaled);

  HASTE_DEVICE StationaryBackwardChunks(const Params& p, const StationaryBackwardPlace& place)
      : StationaryChunks<Params>(p, place.lane, place.row_tile,
                                 FlagAt(place.unit_tile, place.split)),
        split_(place.split) {}

  // Whether a block has made its part of the operand of a step's product, which follows the step
  // before: no flag counts that at first.
  HASTE_DEVICE bool IsMade(int turn, int chunk, int part, int step) const {
    int tile, split;
    if constexpr (kScaled > 0) {
      const int block =
          OfGates<kScaled>(Number(chunk) * kStationaryMakers + part, kSplits * kStationaryMakers);
      tile = block / kSplits;
      split = block % kSplits;
    } else {
      // A chunk is of one unit tile, or of two whose clusters have half as many blocks.
      constexpr int kTiles = kStationaryRows / kRows;
      tile = OfGates<Cell::kGates>(Number(chunk) * kTiles + part / kSplits, kSplits * kTiles);
      split = part % kSplits;
    }
    return tile >= this->p_.tiling.unit_tiles ||
           HasEnded(this->Flag(turn, FlagAt(tile, split)), step + 1);
  }
  // Of one of the block's chunks, among all.
  HASTE_DEVICE int Number(int chunk) const { return chunk * kSplits + split_; }

 private:
  // Which block, or unit tile, a piece of the depth is of: each has kGates pieces, or as many as
  // gates are in the product. of_chunk: pieces of a chunk of each split.
  template <int kGates>
  HASTE_DEVICE int OfGates(int piece, int of_chunk) const {
    if constexpr (!kDividesR) {
      return piece / kGates;
    } else {
      const int second = piece - this->p_.tiling.first_chunks * of_chunk;
      return second < 0 ? piece / (Cell::kGates - Cell::kResetGates) : second / Cell::kResetGates;
    }
  }
  static HASTE_DEVICE int FlagAt(int unit_tile, int split) {
    return (unit_tile * kSplits + split) * kStationaryFlagStride;
  }

  const int split_;
};

}  // namespace haste
