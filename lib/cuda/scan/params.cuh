// Parameters of the `scan` engine's kernels, and where they find one element and its steps.
#pragma once

#include "lib/cuda/cell/cell_step.cuh"

namespace haste {

constexpr int kScanLanes = 1024;  // of a launch: its parameters hold their directions
constexpr int kScanUnroll = 4;    // steps whose gates are computed together: they need no state

// Params: ForwardParams or BackwardParams, without their tiling and workspace.
template <class Params>
struct ScanParams : Params {
  int64_t first_lane, lanes;             // of this launch
  uint32_t directions[kScanLanes / 32];  // bit k: lane first_lane + k walks from T - 1 to 0
  typename Params::C* partial;           // HASTE_DIAGONAL, backward: [N, K, G, H] gradients of R

  // For cells with kLinearScan.
  int64_t units, chunk_steps;     // units of kScanWidth elements; a multiple of a tile's steps
  typename Params::C* summaries;  // [chunks, values, units, kScanWidth], if more than one chunk
};

// One element and the order in which a kernel sees its steps.
struct ElementCursor : Element {
  bool down;        // from T - 1 to 0
  int64_t t, sign;  // the time of the next step, and what one step adds to it

  template <class Params>
  __device__ ElementCursor(const ScanParams<Params>& p, int64_t index, bool backward) {
    exists = index < p.N * p.lanes * p.H;
    j = index % p.H;
    const int64_t lane = index / p.H % p.lanes;
    n = index / p.H / p.lanes;
    k = p.first_lane + lane;
    at = (n * p.K + k) * p.H + j;
    down = ((p.directions[lane / 32] >> (lane % 32) & 1) != 0) != backward;
    t = down ? p.T_ - 1 : 0;
    sign = down ? -1 : 1;
  }
  // The next step's row in [N, T, K].
  template <class Params>
  __device__ int64_t Row(const ScanParams<Params>& p) const {
    return (n * p.T_ + t) * p.K + k;
  }
};

// Where gate g of a row is, in a tensor of its own or next to the others.
template <class Cell, class P, class Q>
HASTE_DEVICE P* GateAt(Q* together, Q* const* apart, int g, int64_t row, int64_t H, int64_t j) {
  if constexpr (Cell::kSeparateGates) return static_cast<P*>(apart[g]) + row * H + j;
  return static_cast<P*>(together) + (row * Cell::kGates + g) * H + j;
}
template <class Cell>
constexpr int kGateRows = Cell::kSeparateGates ? 1 : Cell::kGates;

// Bit i: is the step that comes i steps from now live?
template <class Params>
HASTE_DEVICE uint64_t LiveSteps(const ScanParams<Params>& p, const ElementCursor& e, int count) {
  if (p.mask == nullptr) return ~uint64_t{0};
  const uint8_t* mask = p.mask + e.n * p.T_ + e.t;
  uint64_t live = 0;
#pragma unroll 8
  for (int i = 0; i < count; ++i) live |= static_cast<uint64_t>(mask[i * e.sign] != 0) << i;
  return live;
}

// The share of each state that Zoneout takes from the previous state, for the steps of a chunk. It
// is drawn ahead of the walk, where draws of several steps overlap.
template <int kStates, class C>
struct ChunkShares {
  uint64_t drawn[kStates];  // bit i: the step that comes i steps from now keeps the state

  template <class Params>
  HASTE_DEVICE ChunkShares(const ScanParams<Params>& p, const ElementCursor& e, PhiloxKey key,
                           int count)
      : drawn{} {
    if (!p.zoneout || !p.training) return;
#pragma unroll kScanUnroll
    for (int i = 0; i < count; ++i) {
      uint32_t word[4];
      Philox(key, static_cast<uint32_t>(e.t + i * e.sign), static_cast<uint32_t>(e.n),
             static_cast<uint32_t>(e.k * p.H + e.j), kZoneoutStream, word);
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        drawn[s] |= static_cast<uint64_t>(Draw(word[s], p.zoneout_rate[s])) << i;
      }
    }
  }

  // The shares of the step i steps from now. zoneout_rate is 0 if there is no Zoneout.
  template <class Params>
  HASTE_DEVICE void Get(const ScanParams<Params>& p, int i, C (&share)[kStates]) const {
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
      share[s] = p.training ? static_cast<C>(drawn[s] >> i & 1) : static_cast<C>(p.zoneout_rate[s]);
    }
  }
};

// Gates that are inputs as they are have no activations.
template <class Cell, class C, class Run>
HASTE_DEVICE void WithCellActivations(const Activations& act, const Run& run) {
  if constexpr (Cell::kSeparateGates) {
    run(Activations{HASTE_LINEAR, HASTE_LINEAR});
  } else {
    WithActivations<Cell, C>(act, run);
  }
}

}  // namespace haste
