// Tiles of a scan: some steps of kScanWidth neighbouring elements, which a warp copies between
// global and shared memory for itself. All lanes call these functions together.
//
// kWide: copies pieces of 16 bytes, with a few lanes for each step. Otherwise, if a tensor's rows
// are not aligned for that, element by element.
#pragma once

#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/plan/scan.h"

namespace haste {

// Where a lane's piece, or element, is in each step of a walk. Tensors are [N, T, K, width, H], and
// a piece is at one of the width columns. Offsets here are in [N, T, K, H].
struct RowStride {
  int64_t first, pitch;  // of the first step's row, and from one step to the next
  int64_t j;             // in the row
  bool exists;

  template <int kWidth>
  HASTE_DEVICE int64_t At(int step, int column, int64_t H) const {
    return (first + static_cast<int64_t>(step) * pitch) * kWidth + column * H + j;
  }
};

// The pieces of a tile that a lane copies: from column `column` on, of the steps `step`, `step` +
// kElements …
template <class T, bool kWide>
struct Piece {
  static constexpr int kElements = kWide ? 16 / sizeof(T) : 1;
  static constexpr int kLanes = kScanWidth / kElements;  // lanes that share a step

  const int column = threadIdx.x % kLanes * kElements;
  const int step = threadIdx.x % kScanWidth / kLanes;
};

// Steps of a walk from `step` on.
HASTE_DEVICE int StepsLeft(int step, int end) { return end > step ? end - step : 0; }

// A warp's reads of kTensors tensors, tile by tile.
template <class T, int kTensors, bool kWide>
class TileReader {
  using P = Piece<T, kWide>;
  static constexpr int kPieceBytes = P::kElements * sizeof(T);

 public:
  static constexpr int kSteps = TileSteps(kTensors * sizeof(T));
  static_assert(kSteps % P::kElements == 0, "every lane has as many pieces");
  using Tile = T[kSteps][kTensors][kScanWidth];
  static constexpr int kAhead = TilesAhead(sizeof(Tile));  // in flight while one is computed
  static constexpr int kStages = kAhead + 1;

  // Starts to load tensor l for the steps of a tile that begins at `step`, up to `end`. from: null
  // reads nothing.
  template <int kWidth>
  static HASTE_DEVICE void Fetch(Tile& tile, int l, const T* from, int column,
                                 const RowStride& track, int64_t H, int step, int end) {
    const P piece;
    const int left = track.exists && from != nullptr ? StepsLeft(step + piece.step, end) : 0;
    const T* at = from + track.At<kWidth>(step + piece.step, column, H);
    const int64_t next = P::kElements * kWidth * track.pitch;
    if constexpr (kPieceBytes >= 4) {
      HASTE_UNROLL for (int i = 0; i < kSteps; i += P::kElements) {
        if (i < left) CopyAsync<kPieceBytes>(&tile[i + piece.step][l][piece.column], at);
        at += next;
      }
    } else {  // too small for an asynchronous copy: through registers
      constexpr int kAtOnce = 4;
      HASTE_UNROLL for (int first = 0; first < kSteps; first += kAtOnce) {
        T value[kAtOnce];
        HASTE_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          if (first + i < left) value[i] = at[i * next];
        }
        HASTE_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          if (first + i < left) tile[first + i][l][piece.column] = value[i];
        }
        at += kAtOnce * next;
      }
    }
  }

  // Waits for the oldest tile in flight.
  static HASTE_DEVICE void Wait() {
    WaitForGroups<kAhead>();
    __syncwarp();
  }
};

// Writes the steps of a tile that begins at `step`. kSteps: of a
// tile; kRow: elements from one of its rows to the next; to: null writes nothing.
template <bool kWide, int kSteps, int kRow, int kWidth, class T>
HASTE_DEVICE void WriteRows(const T* tile, T* to, int column, const RowStride& track, int64_t H,
                            int step, int end) {
  using P = Piece<T, kWide>;
  const P piece;
  if (to == nullptr || !track.exists) return;
  const int left = StepsLeft(step + piece.step, end);
  T* at = to + track.At<kWidth>(step + piece.step, column, H);
  const T* from = tile + piece.step * kRow + piece.column;
  HASTE_UNROLL for (int i = 0; i < kSteps; i += P::kElements) {
    if (i < left) StoreFragment(at, LoadFragment<P::kElements>(from + i * kRow).v);
    at += P::kElements * kWidth * track.pitch;
  }
}

}  // namespace haste
