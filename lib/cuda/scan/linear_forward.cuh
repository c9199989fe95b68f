// Forward of cells with kLinearScan: s = a·s + b, y = w·s. See lib/plan/scan.h.
#pragma once

#include "lib/cuda/scan/carry.cuh"

namespace haste {

// Layout of a warp's shared memory: tiles of inputs, and one tile of y and the states that enter.
template <class Cell, class T, bool kWide>
struct LinearForwardTiles {
  using In = TileReader<T, Cell::kGates, kWide>;
  using Out = T[In::kSteps][2][kScanWidth];
  typename In::Tile in[In::kStages];
  Out out;
};

// The carried values. kForwardWeight: w of the last live step, 0 before the first.
enum ForwardChain { kState, kForwardWeight, kBegun, kForwardChain };
// The chunk summary: the state that leaves the chunk is a·s + b. kLast: the last step that changes
// the state, counted from the chunk's beginning; -1 if none does.
enum ForwardSummary { kForwardA, kForwardB, kLast, kSpanWeight, kSpanBegun, kForwardSummary };

// a, b, w of the steps of a tile. Steps that are not live (no bit in live) have a = 1, b = 0.
// Without masks, values after the last step may be anything, as they are never read. keep: the
// gates are written to the tile.
template <class Cell, class T, int kSteps, bool kPlain>
struct ForwardSteps {
  using C = Compute<T>;
  C a[kSteps], b[kSteps], w[kSteps];

  template <class Params, class Tile>
  HASTE_DEVICE ForwardSteps(const ScanParams<Params>& p, const ElementCursor& e, int count,
                            uint32_t live, PhiloxKey key, int lane, bool keep, Tile& tile) {
    const ChunkShares<1, C> shares(p, e, key, kPlain ? 0 : count);
    WithCellActivations<Cell, C>(p.act, [&](const Activations& act) {
      HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
        C x[Cell::kGates], gate[Cell::kGates], share[1] = {};
        HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) x[g] = ToCompute(tile[i][g][lane]);
        if (!kPlain) shares.Get(p, i, share);
        Cell::Gates(act, x, gate);
        Cell::Affine(share, gate, &a[i], &b[i]);
        MixAffine<Cell>(share[0], &a[i], &b[i]);
        w[i] = Cell::OutputWeight(gate);
        const bool on = kPlain || (live >> i & 1) != 0;
        a[i] = on ? a[i] : C(1);
        b[i] = on ? b[i] : C(0);
        if constexpr (!Cell::kSeparateGates) {
          if (!keep) continue;
          HASTE_UNROLL for (int g = 0; g < Cell::kGates; ++g) {
            tile[i][g][lane] = FromCompute<T>(on ? gate[g] : C(0));
          }
        }
      }
    });
  }
};

// kSummaries: computes only the chunk summaries of the state, for the next pass.
template <class Cell, class T, bool kPlain, bool kWide, bool kSummaries>
__global__ void __launch_bounds__(kMaxScanThreads, 1)
    LinearForward(const __grid_constant__ ScanParams<ForwardParams<T>> p) {
  using C = Compute<T>;
  using Tiles = LinearForwardTiles<Cell, T, kWide>;
  using In = typename Tiles::In;
  constexpr int kGates = Cell::kGates, kWidth = kGateRows<Cell>, kSteps = In::kSteps;
  static_assert(Cell::kStates == 1 && Cell::kKept == kGates, "the reserve of a linear scan");
  constexpr int kValues = kSummaries ? kForwardSummary : kPlain ? kState + 1 : kForwardChain;
  extern __shared__ __align__(16) unsigned char scan_shared[];

  const ScanPlace place(p);
  Tiles& tiles = reinterpret_cast<Tiles*>(scan_shared)[place.warp];
  CarryChain<C, kValues> carry(scan_shared + place.warps * sizeof(Tiles), place);
  __syncthreads();

  ElementCursor e(p, place.Index(place.lane), false);
  const RowStride piece =
      RowStrideOf(p, ElementCursor(p, place.Index(Piece<T, kWide>().column), false));
  const int64_t begin = e.t;
  const PhiloxKey key = !kPlain && p.zoneout && p.training ? MakePhiloxKey(p.seed) : PhiloxKey{};

  const int turn_steps = place.warps * kSteps;
  int step = place.first + place.warp * kSteps;
  const auto fetch = [&](typename In::Tile& tile, int at) {
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
      const void* from = Cell::kSeparateGates ? p.args.x[g] : p.args.wx;
      In::template Fetch<kWidth>(tile, g, static_cast<const T*>(from), g % kWidth, piece, p.H, at,
                                 place.end);
    }
    CommitCopies();
  };
  HASTE_UNROLL for (int i = 0; i < In::kAhead; ++i) fetch(tiles.in[i], step + i * turn_steps);

  C chain[kValues] = {};
  C end_state = 0;
  int last = -1;  // step that leaves end_state, bit for bit what the next chunk begins with
  if constexpr (kSummaries) {
    chain[kForwardA] = 1;
    chain[kLast] = -1;
  } else {
    const T* s0 = static_cast<const T*>(p.args.s0[0]);
    if (s0 != nullptr && e.exists) chain[kState] = ToCompute(s0[e.at]);
    if (p.summaries != nullptr) {
      const auto span = [&](int64_t c, ForwardSummary part) {
        return *SummaryAt<kForwardSummary>(p, place, c, part);
      };
      WaitForPreviousKernel();
      const int64_t known = place.chunk + (place.end < p.T_ ? 1 : 0);
      for (int64_t c = 0; c < known; ++c) {
        const C after = MulAdd(span(c, kForwardA), chain[kState], span(c, kForwardB));
        if (c == place.chunk) {
          const C at = span(c, kLast);
          last = at < C(0) ? -1 : place.first + static_cast<int>(at);
          end_state = after;
          break;
        }
        chain[kState] = after;
        if constexpr (!kPlain) {
          if (span(c, kSpanBegun) != C(0)) {
            chain[kBegun] = 1;
            chain[kForwardWeight] = span(c, kSpanWeight);
          }
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
    In::Wait();
    auto& tile = tiles.in[stage];
    ForwardSteps<Cell, T, kSteps, kPlain> steps(p, e, count, live, key, place.lane,
                                                !kSummaries && p.args.keep, tile);

    if constexpr (kSummaries) {
      C a = 1, b = 0, own_last = -1;
      HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
        if (steps.a[i] != C(1) || steps.b[i] != C(0)) {
          own_last = static_cast<C>(step - place.first + i);
        }
        a *= steps.a[i];
        b = MulAdd(steps.a[i], b, steps.b[i]);
      }
      carry.Take(turn, chain);
      chain[kForwardA] *= a;
      chain[kForwardB] = MulAdd(a, chain[kForwardB], b);
      if (own_last >= C(0)) chain[kLast] = own_last;
      HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
        if (live >> i & 1) chain[kSpanWeight] = steps.w[i];
      }
      if (live != 0) chain[kSpanBegun] = 1;
      carry.Pass(turn, chain);
    } else {
      carry.Take(turn, chain);
      const C entered = chain[kState];
      HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
        C& s = chain[kState];
        s = MulAdd(steps.a[i], s, steps.b[i]);
        steps.b[i] = s;  // from here on: the state after the step
      }
      if (last >= step && last < step + kSteps) {
        HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
          if (step + i >= last) steps.b[i] = end_state;
        }
        chain[kState] = end_state;
      }
      const C weight = kPlain ? C(1) : chain[kPlain ? 0 : kForwardWeight];
      const bool begun = kPlain || chain[kPlain ? 0 : kBegun] != C(0);
      if constexpr (!kPlain) {
        HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
          if (live >> i & 1) chain[kForwardWeight] = steps.w[i];
        }
        if (live != 0) chain[kBegun] = 1;
      }
      carry.Pass(turn, chain);

      C w = weight;
      bool repeats = begun && !p.zero_output_for_mask;
      HASTE_UNROLL for (int i = 0; i < kSteps; ++i) {
        const bool on = kPlain || (live >> i & 1) != 0;
        w = on ? steps.w[i] : w;
        repeats = repeats || (on && !p.zero_output_for_mask);
        const C y = Cell::kOutputsState ? steps.b[i] : w * steps.b[i];
        tiles.out[i][0][place.lane] = FromCompute<T>(on || repeats ? y : C(0));
        tiles.out[i][1][place.lane] = FromCompute<T>(i == 0 ? entered : steps.b[i - 1]);
      }
      __syncwarp();
      T* const saved = p.args.keep ? static_cast<T*>(p.args.saved[0]) : nullptr;
      WriteRows<kWide, kSteps, 2 * kScanWidth, 1>(&tiles.out[0][0][0], static_cast<T*>(p.args.y), 0,
                                                  piece, p.H, step, place.end);
      WriteRows<kWide, kSteps, 2 * kScanWidth, 1>(&tiles.out[0][1][0], saved, 0, piece, p.H, step,
                                                  place.end);
      if (!Cell::kSeparateGates && p.args.keep) {
        HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
          WriteRows<kWide, kSteps, kGates * kScanWidth, kGates>(
              &tile[0][g][0], static_cast<T*>(p.args.gates), g, piece, p.H, step, place.end);
        }
      }
      // The state after the last step of the walk, as in y.
      if (e.exists && p.args.sT[0] != nullptr && step < p.T_ && step + kSteps >= p.T_) {
        C s = 0;
        HASTE_UNROLL for (int i = 0; i < kSteps; ++i) s = step + i < p.T_ ? steps.b[i] : s;
        static_cast<T*>(p.args.sT[0])[e.at] = FromCompute<T>(s);
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
