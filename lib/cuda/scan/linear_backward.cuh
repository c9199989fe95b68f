// Backward of cells with kLinearScan: ds = a·(ds + w·dy). See lib/plan/scan.h.
#pragma once

#include "lib/cuda/scan/carry.cuh"

namespace haste {

// Layout of a warp's shared memory: gates, the state that entered, dy. dx overwrites the gates.
template <class Cell, class T, bool kWide>
struct LinearBackwardTiles {
  using In = TileReader<T, Cell::kGates + 2, kWide>;
  typename In::Tile in[In::kStages];
};

// The carried values. kWaiting: the gradient of outputs that repeat the output of a live step which
// the walk has not reached yet.
enum BackwardChain { kGradient, kWaiting, kBackwardChain };
// The chunk summary. If the chunk has a live step, ds becomes a·(ds + w·waiting) + b and waiting
// becomes kLeft. If not (kAny = 0), ds stays, and kLeft is added to waiting.
enum BackwardSummary { kBackwardA, kBackwardB, kSpanWaitingWeight, kLeft, kAny, kBackwardSummary };

// a and w of the steps of a tile, and dy. Steps that are not live (no bit in live) have a = 1,
// w = 0. Without masks, values after the last step may be anything, as they are never read.
template <class Cell, class T, int kSteps, bool kPlain>
struct BackwardSteps {
  using C = Compute<T>;
  static constexpr int kGates = Cell::kGates;
  C a[kSteps], w[kSteps], dy[kSteps];

  template <class Params, class Tile>
  HASTE_DEVICE BackwardSteps(const ScanParams<Params>& p, int count, uint32_t live,
                             const ChunkShares<1, C>& shares, int lane, const Tile& tile) {
    HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
      C gate[kGates], share[1] = {}, b = 0;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) gate[g] = ToCompute(tile[i][g][lane]);
      if (!kPlain) shares.Get(p, i, share);
      Cell::Affine(share, gate, &a[i], &b);
      MixAffine<Cell>(share[0], &a[i], &b);
      const bool on = kPlain || (live >> i & 1) != 0;
      a[i] = on ? a[i] : C(1);
      w[i] = on || Cell::kOutputsState ? Cell::OutputWeight(gate) : C(0);
      // At a masked step dy counts only if the output repeats another.
      const bool counts = on || (!kPlain && !p.zero_output_for_mask && i < count);
      dy[i] = counts && p.args.dy != nullptr ? ToCompute(tile[i][kGates + 1][lane]) : C(0);
    }
  }
};

// Extends the chunk summary `span` by what comes after it: a step, or another summary.
template <class C>
HASTE_DEVICE void Append(C a, C b, C w, C left, bool any, C (&span)[kBackwardSummary]) {
  if (!any) {
    span[kLeft] += left;
    return;
  }
  if (span[kAny] == C(0)) span[kSpanWaitingWeight] = w;
  span[kBackwardB] = MulAdd(a, span[kBackwardB], MulAdd(a * w, span[kLeft], b));
  span[kBackwardA] *= a;
  span[kLeft] = left;
  span[kAny] = 1;
}

// kSummaries: computes only the chunk summaries of the gradient, for the next pass.
template <class Cell, class T, bool kPlain, bool kWide, bool kSummaries>
__global__ void __launch_bounds__(kMaxScanThreads, 1)
    LinearBackward(const __grid_constant__ ScanParams<BackwardParams<T>> p) {
  using C = Compute<T>;
  using Tiles = LinearBackwardTiles<Cell, T, kWide>;
  using In = typename Tiles::In;
  constexpr int kGates = Cell::kGates, kWidth = kGateRows<Cell>, kSteps = In::kSteps;
  static_assert(Cell::kOutputsState || Cell::kZoneoutInGate, "y is of the state after Zoneout");
  constexpr int kValues = kSummaries ? kBackwardSummary : kPlain ? kGradient + 1 : kBackwardChain;
  extern __shared__ __align__(16) unsigned char scan_shared[];

  const ScanPlace place(p);
  Tiles& tiles = reinterpret_cast<Tiles*>(scan_shared)[place.warp];
  CarryChain<C, kValues> carry(scan_shared + place.warps * sizeof(Tiles), place);
  __syncthreads();

  ElementCursor e(p, place.Index(place.lane), true);
  const RowStride piece =
      RowStrideOf(p, ElementCursor(p, place.Index(Piece<T, kWide>().column), true));
  const int64_t begin = e.t;
  const PhiloxKey key = !kPlain && p.zoneout && p.training ? MakePhiloxKey(p.seed) : PhiloxKey{};

  const int turn_steps = place.warps * kSteps;
  int step = place.first + place.warp * kSteps;
  const auto fetch = [&](typename In::Tile& tile, int at) {
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      const void* from = Cell::kSeparateGates ? p.args.x[g] : p.args.gates;
      In::template Fetch<kWidth>(tile, g, static_cast<const T*>(from), g % kWidth, piece, p.H, at,
                                 place.end);
    }
    const void* const others[2] = {kSummaries ? nullptr : p.args.saved[0], p.args.dy};
    HASTE_UNROLL for (int i = 0; i < 2; ++i) {
      In::template Fetch<1>(tile, kGates + i, static_cast<const T*>(others[i]), 0, piece, p.H, at,
                            place.end);
    }
    CommitCopies();
  };
  HASTE_UNROLL for (int i = 0; i < In::kAhead; ++i) fetch(tiles.in[i], step + i * turn_steps);

  C chain[kValues] = {};
  if constexpr (kSummaries) {
    chain[kBackwardA] = 1;
  } else {
    const T* dsT = static_cast<const T*>(p.args.dsT[0]);
    if (dsT != nullptr && e.exists) chain[kGradient] = ToCompute(dsT[e.at]);
    if (p.summaries != nullptr) {
      WaitForPreviousKernel();
      for (int64_t c = 0; c < place.chunk; ++c) {
        C span[kBackwardSummary];
        HASTE_UNROLL for (int i = 0; i < kBackwardSummary; ++i) {
          span[i] = *SummaryAt<kBackwardSummary>(p, place, c, i);
        }
        C& ds = chain[kGradient];
        if constexpr (kPlain) {
          ds = MulAdd(span[kBackwardA], ds, span[kBackwardB]);
        } else if (span[kAny] != C(0)) {
          ds = MulAdd(span[kSpanWaitingWeight], chain[kWaiting], ds);
          ds = MulAdd(span[kBackwardA], ds, span[kBackwardB]);
          chain[kWaiting] = span[kLeft];
        } else {
          chain[kWaiting] += span[kLeft];
        }
      }
    }
  }

  int stage = 0;
  uint32_t turn = place.warp;
  for (int base = place.first; base < place.end; base += turn_steps) {
    const int ahead = stage == 0 ? In::kAhead : stage - 1;
    fetch(tiles.in[ahead], step + In::kAhead * turn_steps);
    const int count = min(StepsLeft(step, place.end), kSteps);
    e.t = begin + static_cast<int64_t>(step) * e.sign;
    const uint32_t live = kPlain ? ~0u : LiveBits(p, e, count);
    const ChunkShares<1, C> shares(p, e, key, kPlain ? 0 : count);
    In::Wait();
    auto& tile = tiles.in[stage];
    BackwardSteps<Cell, T, kSteps, kPlain> steps(p, count, live, shares, place.lane, tile);

    if constexpr (kSummaries) {
      C own[kBackwardSummary] = {};
      own[kBackwardA] = 1;
      HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
        const bool on = live >> i & 1;
        Append(steps.a[i], steps.a[i] * (steps.w[i] * steps.dy[i]), steps.w[i],
               on ? C(0) : steps.dy[i], on, own);
      }
      carry.Take(turn, chain);
      Append(own[kBackwardA], own[kBackwardB], own[kSpanWaitingWeight], own[kLeft],
             own[kAny] != C(0), chain);
      carry.Pass(turn, chain);
    } else {
      carry.Take(turn, chain);
      C ds[kSteps + 1];  // of the state that leaves each step, and of that which entered the last
      HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
        ds[i] = chain[kGradient];
        bool on = true;
        if constexpr (!kPlain) {
          on = live >> i & 1;
          steps.dy[i] += chain[kWaiting];
          chain[kWaiting] = on ? C(0) : steps.dy[i];
        }
        if (on) chain[kGradient] = steps.a[i] * MulAdd(steps.w[i], steps.dy[i], ds[i]);
      }
      ds[kSteps] = chain[kGradient];
      carry.Pass(turn, chain);

      WithCellActivations<Cell, C>(p.act, [&](const Activations& act) {
        HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
          C gate[kGates], share[1] = {}, before[1], dx[kGates] = {};
          HASTE_UNROLL for (int g = 0; g < kGates; ++g) gate[g] = ToCompute(tile[i][g][place.lane]);
          const C prev[1] = {ToCompute(tile[i][kGates][place.lane])};
          C d[1] = {Cell::kOutputsState ? ds[i] + steps.dy[i] : ds[i]};
          if (!kPlain) shares.Get(p, i, share);
          if (!kPlain && !Cell::kZoneoutInGate && share[0] != C(0)) {
            d[0] = share[0] == C(1) ? C(0) : d[0] - d[0] * share[0];  // Zoneout passes on the rest
          }
          Cell::Backward(act, share, gate, prev, d, steps.dy[i], dx, before);
          const bool on = kPlain || (live >> i & 1) != 0;
          HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
            tile[i][g][place.lane] = FromCompute<T>(on ? dx[g] : C(0));
          }
        }
      });
      __syncwarp();
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        void* const to = Cell::kSeparateGates ? p.args.dx[g] : p.args.dwx;
        WriteRows<kWide, kSteps, (kGates + 2) * kScanWidth, kWidth>(
            &tile[0][g][0], static_cast<T*>(to), g % kWidth, piece, p.H, step, place.end);
      }
      if (e.exists && p.args.ds0[0] != nullptr && step < p.T_ && step + kSteps >= p.T_) {
        C d = 0;
        HASTE_UNROLL for (int i = 0; i < kSteps; ++i) d = step + i < p.T_ ? ds[i + 1] : d;
        static_cast<T*>(p.args.ds0[0])[e.at] = FromCompute<T>(d);
      }
    }
    __syncwarp();
    stage = stage == In::kAhead ? 0 : stage + 1;
    step += turn_steps;
    turn += place.warps;
  }
  if constexpr (kSummaries) StoreSummary(p, place, chain);
}

}  // namespace haste
