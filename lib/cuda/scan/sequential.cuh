// The walk of a cell without a matrix product whose state is not a linear function of the previous
// one: one thread walks all steps of an element.
//
// Elements are independent, so a thread waits only for memory, and keeps it busy alone: while it
// computes one chunk of steps, loads of the next chunk to its registers are in flight. From there a
// chunk goes to the thread's own places in shared memory. So the loop over its steps needs no
// unrolling, and the cell's code exists once. Blocks have one warp, so that few elements still
// spread over many multiprocessors.
#pragma once

#include "lib/cuda/scan/params.cuh"

namespace haste {

constexpr int kScanThreads = 32;
constexpr int kChunkBytes = 256;    // of loads that a thread has in flight
constexpr int kMaxChunkSteps = 64;  // one bit each in a word

// A thread's reads of kTensors tensors, chunk by chunk.
template <class T, int kTensors>
class Chunks {
  static constexpr int kFit = kChunkBytes / (sizeof(T) * kTensors);

 public:
  static constexpr int kSteps = kFit < kMaxChunkSteps ? kFit : kMaxChunkSteps;
  using Shared = T[kSteps][kTensors][kScanThreads];

  const T* from[kTensors];  // of the next chunk; null: zeros
  int64_t stride[kTensors];

  // Starts to load the next chunk, of at most `left` steps.
  HASTE_DEVICE void Fetch(int64_t left) {
    const int count = left <= 0 ? 0 : static_cast<int>(left < kSteps ? left : kSteps);
    HASTE_UNROLL for (int l = 0; l < kTensors; ++l) {
      const T* at = from[l];
      const int there = at == nullptr ? 0 : count;
      HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
        if (i < there) ahead_[i][l] = *at;
        at += stride[l];
      }
      if (there > 0) from[l] = at;
    }
  }
  // Waits for the loads, and stores them in shared memory.
  HASTE_DEVICE void Stage(Shared& shared) const {
    HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
      HASTE_UNROLL for (int l = 0; l < kTensors; ++l) shared[i][l][threadIdx.x] = ahead_[i][l];
    }
  }

 private:
  T ahead_[kSteps][kTensors] = {};
};

// kPlain: no mask, no Zoneout.
template <class Cell, class T, bool kPlain>
__global__ void __launch_bounds__(kScanThreads)
    ScanForward(const __grid_constant__ ScanParams<ForwardParams<T>> p) {
  using C = Compute<T>;
  constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  constexpr bool kDiagonal = Cell::kRecurrence == HASTE_DIAGONAL;
  static_assert(kSavedStates<Cell> == kStates && Cell::kKept == kGates, "the reserve of a scan");
  using Loads = Chunks<T, kGates>;
  __shared__ typename Loads::Shared staged;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
  if (index >= p.N * p.lanes * p.H) return;
  ElementCursor e(p, index, false);

  const int64_t gate_stride = e.sign * p.K * p.H * kGateRows<Cell>, stride = e.sign * p.K * p.H;
  const int64_t row = e.Row(p);
  Loads loads;
  T* gate_to[kGates] = {};
  T* saved_to[kStates] = {};
  const bool keep = p.args.keep != 0;
  HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
    loads.from[g] = GateAt<Cell, const T>(p.args.wx, p.args.x, g, row, p.H, e.j);
    loads.stride[g] = gate_stride;
    if (keep && !Cell::kSeparateGates) {
      gate_to[g] = static_cast<T*>(p.args.gates) + (row * kGates + g) * p.H + e.j;
    }
  }
  T* y_to = static_cast<T*>(p.args.y) + row * p.H + e.j;
  C state[kStates], u[kGates] = {}, y = 0;
  HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
    const T* s0 = static_cast<const T*>(p.args.s0[s]);
    state[s] = s0 == nullptr ? C(0) : ToCompute(s0[e.at]);
    if (keep) saved_to[s] = static_cast<T*>(p.args.saved[s]) + row * p.H + e.j;
  }
  if constexpr (kDiagonal) {
    const T* r = static_cast<const T*>(p.args.R) + e.k * kGates * p.H + e.j;
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) u[g] = ToCompute(r[g * p.H]);
  }
  const C scale = kDiagonal ? DropScale(p, e) : C(1);
  const PhiloxKey key = !kPlain && p.zoneout && p.training ? MakePhiloxKey(p.seed) : PhiloxKey{};
  bool begun = false;  // was there a live step?

  loads.Fetch(p.T_);
  for (int64_t left = p.T_; left > 0; left -= Loads::kSteps) {
    loads.Stage(staged);
    loads.Fetch(left - Loads::kSteps);
    const int count = static_cast<int>(left < Loads::kSteps ? left : Loads::kSteps);
    const uint64_t live = kPlain ? ~uint64_t{0} : LiveSteps(p, e, count);
    const ChunkShares<kStates, C> shares(p, e, key, kPlain ? 0 : count);
    e.t += count * e.sign;
    WithCellActivations<Cell, C>(p.act, [&](const Activations& act) {
#pragma unroll kScanUnroll
      for (int i = 0; i < count; ++i) {
        C x[kGates], q[kGates], before[kStates], gate[kGates] = {}, next[kStates],
                                                 share[kStates] = {};
        HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
          before[s] = s == 0 ? state[0] * scale : state[s];
        }
        C out = 0;
        if (kPlain || (live >> i & 1) != 0) {
          HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
            x[g] = ToCompute(staged[i][g][threadIdx.x]);
            q[g] = u[g] * before[0];
          }
          if (!kPlain) shares.Get(p, i, share);
          Cell::Forward(act, share, x, q, before, gate, next, &y);
          if constexpr (!kPlain && !Cell::kZoneoutInGate) MixZoneout(share, state, next);
          HASTE_UNROLL for (int s = 0; s < kStates; ++s) state[s] = next[s];
          if constexpr (Cell::kOutputsState) y = state[0];
          out = y;
          begun = true;
        } else if (begun && !p.zero_output_for_mask) {
          out = y;
        }
        *y_to = FromCompute<T>(out);
        y_to += stride;
        if (keep) {
          HASTE_UNROLL for (int g = 0; g < kGates && !Cell::kSeparateGates; ++g) {
            *gate_to[g] = FromCompute<T>(gate[g]);
            gate_to[g] += gate_stride;
          }
          HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
            *saved_to[s] = FromCompute<T>(before[s]);
            saved_to[s] += stride;
          }
        }
      }
    });
  }
  StoreStates<T>(p.args.sT, e.at, state);
}

template <class Cell, class T, bool kPlain>
__global__ void __launch_bounds__(kScanThreads)
    ScanBackward(const __grid_constant__ ScanParams<BackwardParams<T>> p) {
  using C = Compute<T>;
  constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  constexpr bool kDiagonal = Cell::kRecurrence == HASTE_DIAGONAL;
  using Loads = Chunks<T, kGates + kStates + 1>;  // gates, states that entered, dy
  __shared__ typename Loads::Shared staged;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
  if (index >= p.N * p.lanes * p.H) return;
  ElementCursor e(p, index, true);

  const int64_t gate_stride = e.sign * p.K * p.H * kGateRows<Cell>, stride = e.sign * p.K * p.H;
  const int64_t row = e.Row(p), element = row * p.H + e.j;
  Loads loads;
  T* to[kGates];
  HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
    loads.from[g] = GateAt<Cell, const T>(p.args.gates, p.args.x, g, row, p.H, e.j);
    loads.stride[g] = gate_stride;
    to[g] = GateAt<Cell, T>(p.args.dwx, p.args.dx, g, row, p.H, e.j);
  }
  C ds[kStates], u[kGates] = {}, du[kGates] = {};
  C waiting = 0;  // gradient of outputs that repeat the output of a live step not yet reached
  HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
    loads.from[kGates + s] = static_cast<const T*>(p.args.saved[s]) + element;
    loads.stride[kGates + s] = stride;
    const T* dsT = static_cast<const T*>(p.args.dsT[s]);
    ds[s] = dsT == nullptr ? C(0) : ToCompute(dsT[e.at]);
  }
  const T* dy_from = static_cast<const T*>(p.args.dy);
  loads.from[kGates + kStates] = dy_from == nullptr ? nullptr : dy_from + element;
  loads.stride[kGates + kStates] = stride;
  if constexpr (kDiagonal) {
    const T* r = static_cast<const T*>(p.args.R) + e.k * kGates * p.H + e.j;
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) u[g] = ToCompute(r[g * p.H]);
  }
  const C scale = kDiagonal ? DropScale(p, e) : C(1);
  const PhiloxKey key = !kPlain && p.zoneout && p.training ? MakePhiloxKey(p.seed) : PhiloxKey{};

  loads.Fetch(p.T_);
  for (int64_t left = p.T_; left > 0; left -= Loads::kSteps) {
    loads.Stage(staged);
    loads.Fetch(left - Loads::kSteps);
    const int count = static_cast<int>(left < Loads::kSteps ? left : Loads::kSteps);
    const uint64_t live = kPlain ? ~uint64_t{0} : LiveSteps(p, e, count);
    const ChunkShares<kStates, C> shares(p, e, key, kPlain ? 0 : count);
    e.t += count * e.sign;
    WithCellActivations<Cell, C>(p.act, [&](const Activations& act) {
#pragma unroll kScanUnroll
      for (int i = 0; i < count; ++i) {
        C dy = ToCompute(staged[i][kGates + kStates][threadIdx.x]), dx[kGates] = {};
        if (kPlain || (live >> i & 1) != 0) {
          C gate[kGates], prev[kStates], past[kStates] = {}, share[kStates] = {}, before[kStates];
          HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
            gate[g] = ToCompute(staged[i][g][threadIdx.x]);
          }
          HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
            prev[s] = ToCompute(staged[i][kGates + s][threadIdx.x]);
          }
          dy += waiting;
          waiting = 0;
          if constexpr (Cell::kOutputsState) ds[0] += dy;
          if (!kPlain) shares.Get(p, i, share);
          if constexpr (!kPlain && !Cell::kZoneoutInGate) SplitZoneout(share, ds, past);
          Cell::Backward(act, share, gate, prev, ds, dy, dx, before);
          if constexpr (kDiagonal) {
            HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
              before[0] = MulAdd(u[g], dx[g], before[0]);
              du[g] = MulAdd(prev[0], dx[g], du[g]);
            }
            before[0] *= scale;  // the cell saw h with dropout
          }
          HASTE_UNROLL for (int s = 0; s < kStates; ++s) ds[s] = before[s] + past[s];
        } else if (!p.zero_output_for_mask) {
          waiting += dy;  // never used before the first live step, where outputs were 0
        }
        HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
          *to[g] = FromCompute<T>(dx[g]);
          to[g] += gate_stride;
        }
      }
    });
  }
  StoreStates<T>(p.args.ds0, e.at, ds);
  if constexpr (kDiagonal) {
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      p.partial[((e.n * p.K + e.k) * kGates + g) * p.H + e.j] = du[g];
    }
  }
}

}  // namespace haste
