// What engines that keep states in memory do once a call, before the walk: lay out the states, and
// find where each row's live steps begin. `stepwise` also packs R into tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/base/int_math.h"
#include "lib/cuda/cell/step_params.cuh"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"

namespace haste {

constexpr int kPrepareThreads = 256;
constexpr int kLanesPerCall = 2048;  // directions that travel in one kernel's parameters

HASTE_DEVICE int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
HASTE_DEVICE int64_t GlobalThreads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Both packings take kGates neighbouring gates of R, with kBefore gates before them and kAfter
// after them. Padding is 0.
//
// Forward: b[k, tile, i, (unit, gate)] = R[k, i, gate, unit]. Threads run along the units to read
// contiguously.
template <int kGates, int kColumns, class T, int kBefore = 0, int kAfter = 0>
__global__ void PackForward(const Tiling tile, int64_t K, int64_t H, const T* __restrict__ r,
                            T* __restrict__ b) {
  constexpr int kUnits = kColumns / kGates;
  constexpr int kAllGates = kBefore + kGates + kAfter;
  const int64_t groups = tile.unit_tiles * tile.column_groups;
  const int64_t depth = tile.padded_depth();
  for (int64_t at = GlobalThread(); at < K * depth * groups; at += GlobalThreads()) {
    const int64_t group = at % groups;
    const int64_t i = at / groups % depth;
    const int64_t k = at / groups / depth;
    T values[kColumns] = {};
    HASTE_UNROLL for (int c = 0; c < kColumns; ++c) {
      const int64_t unit = group * kUnits + c / kGates;
      if (i < H && unit < H) {
        values[c] = r[((k * H + i) * kAllGates + kBefore + c % kGates) * H + unit];
      }
    }
    const int64_t row = (k * tile.unit_tiles + group / tile.column_groups) * depth + i;
    StoreFragment(b + row * tile.block_columns() + group % tile.column_groups * kColumns, values);
  }
}

// Backward: b[k, tile, (gate, j), unit] = R[k, unit, gate, j]. Threads run along the real_depth
// values of (gate, j).
template <int kColumns, class T, int kBefore = 0, int kAfter = 0>
__global__ void PackBackward(const Tiling tile, int64_t K, int64_t H, int64_t real_depth,
                             const T* __restrict__ r, T* __restrict__ b) {
  const int64_t groups = tile.unit_tiles * tile.column_groups;
  const int64_t depth = tile.padded_depth();
  const int64_t stride = real_depth + (kBefore + kAfter) * H;
  for (int64_t at = GlobalThread(); at < K * depth * groups; at += GlobalThreads()) {
    const int64_t d = at % depth;
    const int64_t group = at / depth % groups;
    const int64_t k = at / depth / groups;
    T values[kColumns] = {};
    HASTE_UNROLL for (int c = 0; c < kColumns; ++c) {
      const int64_t unit = group * kColumns + c;
      if (d < real_depth && unit < H) {
        values[c] = r[(k * H + unit) * stride + kBefore * H + d];
      }
    }
    const int64_t row = (k * tile.unit_tiles + group / tile.column_groups) * depth + d;
    StoreFragment(b + row * tile.block_columns() + group % tile.column_groups * kColumns, values);
  }
}

struct StatePointers {
  const void* of[HASTE_MAX_STATES];
};

// carried[s] = from.of[s], or 0 where that is null.
template <int kStates, class T>
__global__ void CarryIn(const WalkParams<T> p, const StatePointers from) {
  for (int64_t at = GlobalThread(); at < p.N * p.K * p.H; at += GlobalThreads()) {
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
      p.carried[s][at] =
          from.of[s] == nullptr ? Compute<T>(0) : ToCompute(static_cast<const T*>(from.of[s])[at]);
    }
  }
}

// The initial h as it enters the first product, with recurrent dropout applied.
template <class Params>
__global__ void FirstOperand(const Params p) {
  for (int64_t at = GlobalThread(); at < p.N * p.K * p.H; at += GlobalThreads()) {
    const Element e(p, at % p.N, at / p.N / p.H, at / p.N % p.H, true);
    PutOperand(p, 0, e, e.j, p.carried[0][e.at] * DropScale(p, e));
  }
}

// first_live[0, n]: the first live step of a walk from 0. [1, n]: of a walk from T - 1. T if no
// step is live. One warp a row.
static __global__ void FindFirstLive(int64_t N, int64_t T, const uint8_t* mask,
                                     int64_t* first_live) {
  const int lane = threadIdx.x % 32;
  for (int64_t row = GlobalThread() / 32; row < 2 * N; row += GlobalThreads() / 32) {
    const int64_t n = row % N;
    const bool reverse = row >= N;
    int64_t found = T;
    for (int64_t step = 0; step < T && found == T; step += 32) {
      const int64_t mine = step + lane;
      const bool live = mine < T && mask[n * T + (reverse ? T - 1 - mine : mine)] != 0;
      const unsigned any = __ballot_sync(0xFFFFFFFFu, live);
      if (any != 0) found = step + __ffs(any) - 1;
    }
    if (lane == 0) first_live[row] = found;
  }
}

// Passed from the host by value: a copy from host memory would make the stream wait.
struct Directions {
  uint32_t bits[kLanesPerCall / 32];
};
static __global__ void SetDirections(const Directions directions, int64_t lanes, uint8_t* reverse) {
  for (int64_t k = GlobalThread(); k < lanes; k += GlobalThreads()) {
    reverse[k] = directions.bits[k / 32] >> (k % 32) & 1;
  }
}

// --- Host code

// Launches a kernel whose threads take turns with what there is to do.
template <class... Params, class... Args>
cudaError_t LaunchPrepare(void (*kernel)(Params...), int64_t threads, const HasteExecutor& executor,
                          const Args&... args) {
  const int64_t blocks = std::min<int64_t>(CeilDiv(threads, kPrepareThreads), 4096);
  return Launch(kernel, {blocks, kPrepareThreads}, executor, args...);
}

// Finds where live steps begin.
template <class T>
int32_t PrepareFirstLive(const RecurrenceParams<T>& p, const HasteExecutor& executor,
                         HasteStatus* status) {
  if (p.mask == nullptr) return HASTE_OK;
  return HASTE_CUDA_STATUS(LaunchPrepare(FindFirstLive, 2 * p.N * 32, executor, p.N, p.T_, p.mask,
                                         const_cast<int64_t*>(p.first_live)),
                           status);
}

}  // namespace haste
