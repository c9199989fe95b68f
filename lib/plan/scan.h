// How a scan whose state is a linear function of the previous one (kLinearScan) is cut for a GPU: a
// pure function of sizes and device properties.
//
// A block walks kScanWidth neighbouring elements. Its warps take turns at the tiles of their time.
// Everything but the carry chain s = a·s + b runs side by side. The chain goes from warp to warp,
// so the number of warps changes no bit of the result. If there are too few elements for the GPU,
// time is cut into chunks, one for each block, and an additional pass computes the chunk summaries:
// how each chunk maps the state that enters it.
#pragma once

#include <stdint.h>

#include <algorithm>

#include "lib/base/int_math.h"
#include "lib/plan/plan.h"

namespace haste {

constexpr int kScanWidth = 32;     // elements of a block
constexpr int kMaxScanWarps = 16;  // of a block

// Bytes that a multiprocessor should have in flight to keep memory busy: some 30 GB/s for each
// of a microsecond, and half as much again.
constexpr int64_t kScanBytesUnderWay = 48 << 10;
// Warps that it should have to overlap arithmetic.
constexpr int64_t kScanWarpsAtWork = 12;
// That its registers hold, at 128 for each thread.
constexpr int64_t kScanResidentWarps = 16;
// A walk, whose steps and those of what is asked for ahead are counted in 32 bits.
constexpr int kMaxScanSteps = 2147480000;
// Chunks are counted from their beginning in floating point.
constexpr int64_t kMaxScanChunk = 1 << 24;

// Steps of a tile, a warp's turn, by the bytes that are read of a step of one element.
constexpr int TileSteps(int64_t element_bytes) {
  return element_bytes * kScanWidth * 8 < 2048 ? 16 : 8;
}
// Tiles that a warp has in flight: 4 KiB, or one.
constexpr int TilesAhead(int64_t tile_bytes) {
  return tile_bytes < 4096 ? static_cast<int>(CeilDiv(4096, tile_bytes)) : 1;
}

struct ScanSizes {
  int64_t elements, time;
  int64_t tile_steps, tile_bytes;    // what a warp reads for a turn
  int64_t warp_bytes, shared_bytes;  // of shared memory, for each warp and beside them
};

struct ScanPlan {
  int warps;  // of a block
  int64_t units, chunks, chunk_steps;

  int64_t blocks() const { return units * chunks; }
};

inline ScanPlan PlanLinearScan(const ScanSizes& sizes, const CudaProperties& device) {
  const int64_t processors = std::max(device.multiprocessors, 1);
  ScanPlan plan;
  plan.units = CeilDiv(sizes.elements, kScanWidth);
  const int64_t under_way = sizes.tile_bytes * TilesAhead(sizes.tile_bytes);
  const int64_t bytes = CeilDiv(processors * kScanBytesUnderWay, plan.units * under_way);
  const int64_t work = CeilDiv(processors * kScanWarpsAtWork, plan.units);
  // No more than share a multiprocessor with the other blocks that fall to it.
  const int64_t neighbours = CeilDiv(plan.units, processors);
  const int64_t shared = device.shared_bytes_per_block / neighbours - sizes.shared_bytes;
  const int64_t most = std::min({kScanResidentWarps / neighbours, shared / sizes.warp_bytes,
                                 CeilDiv(sizes.time, sizes.tile_steps), int64_t{kMaxScanWarps}});
  plan.warps = static_cast<int>(std::max<int64_t>(std::min(std::max(bytes, work), most), 1));

  const int64_t turn = plan.warps * sizes.tile_steps;
  // Two passes pay if at most a quarter of the GPU is busy and a block has enough tiles.
  int64_t chunks = 1;
  if (plan.units * 4 <= processors && sizes.time >= 4 * turn) {
    chunks = std::min(processors / plan.units, CeilDiv(sizes.time, turn));
  }
  plan.chunk_steps = PadTo(CeilDiv(sizes.time, chunks), turn);
  if (plan.chunk_steps > kMaxScanChunk) plan.chunk_steps = PadTo(sizes.time, turn);
  plan.chunks = CeilDiv(sizes.time, plan.chunk_steps);
  return plan;
}

}  // namespace haste
