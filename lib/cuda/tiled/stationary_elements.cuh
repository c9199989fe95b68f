// The elements of the form of `tiled` in which R is stationary (stationary.cuh): where a block's
// are, and what their threads do at a step.
#pragma once

#include "lib/cuda/cell/element.cuh"
#include "lib/cuda/tiled/params.cuh"

namespace haste {

// The tiles of a block. grid.x runs over unit tiles, groups of row tiles and lanes, unit tiles
// fastest.
struct StationaryPlace {
  int unit_tile;
  int64_t lane;
  int row_tile, turns;  // the first of this block; how many it has

  HASTE_DEVICE explicit StationaryPlace(const TiledTiling& t) {
    int rest = static_cast<int>(blockIdx.x);
    unit_tile = rest % t.unit_tiles;
    rest /= t.unit_tiles;
    const int groups = t.row_groups();
    row_tile = rest % groups * t.turns;
    lane = rest / groups;
    turns = min(static_cast<int>(t.turns), t.row_tiles - row_tile);
  }
};

// The elements of a thread: a pair of units of a pair of rows.
template <class Cell, class Params>
class StationaryElements {
  using T = typename Params::Storage;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kCount = 4, kRows = kStationaryRows;

 public:
  using States = float[kCount][kStates];

  HASTE_DEVICE StationaryElements(const Params& p, const StationaryPlace& place)
      : p_(p),
        lane_(place.lane),
        reverse_(p.reverse[place.lane] != 0),
        paired_(Paired(p)),
        plain_(p.mask == nullptr && !p.zoneout && p.dropout_rate == 0.0f),
        row_(threadIdx.x / 32 * 8 + threadIdx.x % 4 * 2),
        unit_(place.unit_tile * kStationaryUnits + threadIdx.x % 32 / 4 * 2),
        first_row_(int64_t{place.row_tile} * kRows + row_),
        rows_(static_cast<int>(min(p.N - first_row_, int64_t{kMaxStationaryTurns * kRows}))),
        row_stride_(p.T_ * p.K * p.H),
        at_(first_row_ * row_stride_ + TimeOf(p, reverse_, 0) * p.K * p.H + lane_ * p.H + unit_),
        to_(p.operand.a + p.operand.At(lane_, place.row_tile, 0) +
            StationaryOperandAt(row_, unit_)) {}

  HASTE_DEVICE void LoadStates(int turn, States& states) const {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(turn, i);
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        states[i][s] = e.exists ? p_.carried[s][e.at] : 0.0f;
      }
    }
  }

  // What is known of a step before its product.
  HASTE_DEVICE void Load(int turn, int64_t step) {
    seen_ = 0;
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      if (Exists(turn, i)) seen_ |= kLive << kBitsOfElement * i;
    }
    if (!plain_) seen_ = Flags(turn, step);
    const int64_t gates = GatesAt(turn);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) x_[r][g] = 0;
      if (!Exists(turn, 2 * r)) continue;
      const T* wx = static_cast<const T*>(p_.args.wx) + gates + r * kGates * row_stride_;
      if (paired_) {
        HASTE_UNROLL for (int g = 0; g < kGates; ++g) x_[r][g] = LoadWord(wx + g * p_.H);
      } else {
        HASTE_UNROLL for (int g = 0; g < kGates; ++g) x_[r][g] = LoadHalves(wx + g * p_.H);
      }
    }
  }

  // sums: of both halves of the depth. Stores what the next step multiplies.
  HASTE_DEVICE void Step(int turn, int64_t step, const float* sums, States& states) {
    const int tile_size = p_.tiling.chunks * (kStationaryChunkBytes / 2);
    uint16_t* to = to_ + turn * tile_size + ((step + 1) & 1) * p_.operand.At(p_.K, 0, 0);
    T stored[kCount][kGates];
    int units[kCount];
    StepFlags seen[kCount];
    float scale[kCount], before[kCount][kStates], kept[kCount][Cell::kKept];
    float next[kCount][kStates], y[kCount];
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const uint32_t bits = seen_ >> kBitsOfElement * i;
      seen[i].live = (bits & kLive) != 0;
      seen[i].repeats = (bits & kRepeats) != 0;
      seen[i].drawn = bits >> kDrawn & ((1u << kStates) - 1);
      scale[i] = 1.0f;
      if (p_.dropout_rate != 0.0f) {
        scale[i] = bits & kDropped ? 0.0f : 1.0f / (1.0f - p_.dropout_rate);
      }
      units[i] = unit_ + i % 2;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        stored[i][g] = T{static_cast<uint16_t>(x_[i / 2][g] >> 16 * (i % 2))};
      }
    }
    WalkForward<Cell>(
        p_, seen, lane_, units, stored, scale, states,
        [&](float (&q)[kCount][kGates]) {
          HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
            HASTE_UNROLL for (int m = 0; m < 2; ++m) {
              const auto of_rows = LoadFragment<2>(
                  sums + (16 * g + 8 * m + threadIdx.x % 32 / 4) * kStationarySumStride + row_);
              HASTE_UNROLL for (int r = 0; r < 2; ++r) q[2 * r + m][g] = of_rows.v[r];
            }
          }
        },
        before, kept, next, y);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      const int i = 2 * r;
      // The second unit may be one after the last: it is 0 as its R, wx and states are.
      if (Exists(turn, i)) {
        *reinterpret_cast<uint32_t*>(to + 8 * r) =
            PackTwo<T>(next[i][0] * scale[i], next[i + 1][0] * scale[i + 1]);
      }
      y_[r] = PackTwo<T>(y[i], y[i + 1]);
      HASTE_UNROLL for (int g = 0; g < Cell::kKept; ++g) {
        kept_[r][g] = PackTwo<T>(kept[i][g], kept[i + 1][g]);
      }
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        before_[r][s] = PackTwo<T>(before[i][s], before[i + 1][s]);
      }
    }
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) states[i][s] = next[i][s];
    }
  }

  // Stores everything else.
  HASTE_DEVICE void Write(int turn, int64_t step, const States& states) const {
    if (paired_) {
      Write(turn, [](T* to, uint32_t both) { *reinterpret_cast<uint32_t*>(to) = both; });
    } else {
      const bool two = unit_ + 1 < p_.H;
      Write(turn, [two](T* to, uint32_t both) {
        to[0] = T{static_cast<uint16_t>(both)};
        if (two) to[1] = T{static_cast<uint16_t>(both >> 16)};
      });
    }
    if (static_cast<int>(step) != static_cast<int>(p_.T_) - 1) return;
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(turn, i);
      if (e.exists) StoreStates<T>(p_.args.sT, e.at, states[i]);
    }
  }

  HASTE_DEVICE void NextStep() { at_ += reverse_ ? -p_.K * p_.H : p_.K * p_.H; }

 private:
  // Of what is known of an element's step.
  static constexpr int kBitsOfElement = 8, kDrawn = 3;
  static constexpr uint32_t kLive = 1, kRepeats = 2, kDropped = 4;
  static_assert(kDrawn + kStates <= kBitsOfElement && kCount * kBitsOfElement <= 32, "");

  // What is known where steps are masked, or something is drawn.
  HASTE_DEVICE uint32_t Flags(int turn, int64_t step) const {
    uint32_t seen = 0;
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(turn, i);
      const StepFlags flags = ReadStepFlags<Cell>(p_, e, reverse_, static_cast<int>(step));
      uint32_t bits = flags.drawn << kDrawn;
      bits |= flags.live ? kLive : 0;
      bits |= flags.repeats ? kRepeats : 0;
      if (p_.dropout_rate != 0.0f && e.exists && DropScale(p_, e) == 0.0f) bits |= kDropped;
      seen |= bits << kBitsOfElement * i;
    }
    return seen;
  }

  template <class Store>
  HASTE_DEVICE void Write(int turn, const Store& store) const {
    const int64_t one = OneAt(turn), gates = GatesAt(turn);
    HASTE_UNROLL for (int r = 0; r < 2; ++r) {
      if (!Exists(turn, 2 * r)) continue;
      const int64_t at = one + r * row_stride_;
      const auto put = [&](void* tensor, int64_t place, uint32_t both) {
        store(static_cast<T*>(tensor) + place, both);
      };
      put(p_.args.y, at, y_[r]);
      if (!p_.args.keep) continue;
      HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
        put(p_.args.gates, gates + r * kGates * row_stride_ + g * p_.H, kept_[r][g]);
      }
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        if (ReadsState<Cell>(s)) put(p_.args.saved[SavedAt<Cell>(s)], at, before_[r][s]);
      }
      HASTE_UNROLL for (int g = kGates; g < Cell::kKept; ++g) {
        put(p_.args.saved[kSavedStates<Cell> + g - kGates], at, kept_[r][g]);
      }
    }
  }

  // Whether pairs of units are whole words of all tensors.
  static HASTE_DEVICE bool Paired(const Params& p) {
    uintptr_t bits = static_cast<uintptr_t>(p.H) * 2 | reinterpret_cast<uintptr_t>(p.args.wx) |
                     reinterpret_cast<uintptr_t>(p.args.y);
    if (p.args.keep) {
      bits |= reinterpret_cast<uintptr_t>(p.args.gates);
      HASTE_UNROLL for (int i = 0; i < kSavedStates<Cell> + Cell::kKept - kGates; ++i) {
        bits |= reinterpret_cast<uintptr_t>(p.args.saved[i]);
      }
    }
    return bits % 4 == 0;
  }
  HASTE_DEVICE bool Exists(int turn, int i) const {
    return turn * kRows + i / 2 < rows_ && unit_ + i % 2 < p_.H;
  }
  HASTE_DEVICE Element At(int turn, int i) const {
    return Element(p_, first_row_ + turn * kRows + i / 2, lane_, unit_ + i % 2, Exists(turn, i));
  }
  // Where this thread's first element is at the present step, in [N, T, K, H] and [N, T, K, G, H].
  HASTE_DEVICE int64_t OneAt(int turn) const { return at_ + turn * kRows * row_stride_; }
  HASTE_DEVICE int64_t GatesAt(int turn) const {
    return OneAt(turn) * kGates - unit_ * (kGates - 1);
  }
  static HASTE_DEVICE uint32_t LoadWord(const T* from) {
    uint32_t both;
    // Not to be delayed until after the product.
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(both) : "l"(from));
    return both;
  }
  HASTE_DEVICE uint32_t LoadHalves(const T* from) const {
    return from[0].bits | (unit_ + 1 < p_.H ? static_cast<uint32_t>(from[1].bits) << 16 : 0);
  }

  const Params& p_;
  const int64_t lane_;
  const bool reverse_, paired_;
  const bool plain_;  // every step is live, and nothing is drawn
  const int row_, unit_;
  const int64_t first_row_;
  const int rows_;  // of the batch from that row on, as far as this block has them
  const int64_t row_stride_;
  int64_t at_;
  uint16_t* const to_;
  uint32_t seen_;  // of the step
  // Of pairs of units, as they are stored: wx, and results.
  uint32_t x_[2][kGates], before_[2][kStates], kept_[2][Cell::kKept], y_[2];
};

}  // namespace haste
