// What a thread has of a step where R is stationary (stationary.cuh): a pair of units of a pair of
// rows, and where they are in memory. Both directions.
#pragma once

#include <type_traits>

#include "lib/cuda/cell/element.cuh"
#include "lib/cuda/tiled/params.cuh"

namespace haste {

// A pair of units, as tensors have them: the first is lowest.
template <class T>
using StoredPair = std::conditional_t<sizeof(T) == 2, uint32_t, uint64_t>;
template <class T>
HASTE_DEVICE StoredPair<T> PairOf(T low, T high) {
  if constexpr (sizeof(T) == 2) {
    return low.bits | static_cast<uint32_t>(high.bits) << 16;
  } else {
    return __float_as_uint(low.value) | uint64_t{__float_as_uint(high.value)} << 32;
  }
}
template <class T>
HASTE_DEVICE T OfPair(StoredPair<T> both, int i) {
  if constexpr (sizeof(T) == 2) {
    return T{static_cast<uint16_t>(both >> 16 * (i % 2))};
  } else {
    return T{__uint_as_float(static_cast<uint32_t>(both >> 32 * (i % 2)))};
  }
}
template <class T>
HASTE_DEVICE StoredPair<T> StoreTwo(float low, float high) {
  if constexpr (sizeof(T) == 2) {
    return PackTwo<T>(low, high);
  } else {
    return PairOf<T>({low}, {high});
  }
}

template <class Cell, class Params>
class StationaryElements {
 protected:
  using T = typename Params::Storage;
  using Pair = StoredPair<T>;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kCount = 4;  // element i: unit i % 2 of row i / 2

  // Other elements of the thread, so far from the first.
  struct Shift {
    int rows, units;
  };

 public:
  using States = float[kCount][kStates];

  // row, unit: the first. step: of the walk. paired: pairs of units are whole words of all tensors.
  HASTE_DEVICE StationaryElements(const Params& p, int64_t lane, int64_t row, int unit,
                                  int64_t step, bool paired)
      : p_(p),
        lane_(lane),
        reverse_(p.reverse[lane] != 0),
        paired_(paired),
        plain_(p.mask == nullptr && !p.zoneout && p.dropout_rate == 0.0f),
        unit_(unit),
        first_row_(row),
        rows_(static_cast<int>(min(p.N - row, int64_t{kMaxStationaryTurns * kStationaryRows}))),
        row_stride_(p.T_ * p.K * p.H),
        at_(row * row_stride_ + TimeOf(p, reverse_, step) * p.K * p.H + lane * p.H + unit) {}

 protected:
  // Of what is known of an element's step.
  static constexpr int kBitsOfElement = 8, kDrawn = 3;
  static constexpr uint32_t kLive = 1, kRepeats = 2, kDropped = 4;
  static_assert(kDrawn + kStates <= kBitsOfElement && kCount * kBitsOfElement <= 32, "");

  HASTE_DEVICE bool paired() const { return paired_; }
  HASTE_DEVICE bool Exists(Shift by, int i) const {
    return by.rows + i / 2 < rows_ && unit_ + by.units + i % 2 < p_.H;
  }
  HASTE_DEVICE Element At(Shift by, int i) const {
    return Element(p_, first_row_ + by.rows + i / 2, lane_, unit_ + by.units + i % 2,
                   Exists(by, i));
  }
  // Where the first of these is at the present step, in [N, T, K, H] and [N, T, K, G, H].
  HASTE_DEVICE int64_t OneAt(Shift by) const { return OneAt(by, at_); }
  HASTE_DEVICE int64_t GatesAt(Shift by) const { return GatesAt(by, at_); }
  // at: of another step.
  HASTE_DEVICE int64_t OneAt(Shift by, int64_t at) const {
    return at + by.rows * row_stride_ + by.units;
  }
  HASTE_DEVICE int64_t GatesAt(Shift by, int64_t at) const {
    return OneAt(by, at) * kGates - (unit_ + by.units) * (kGates - 1);
  }

  HASTE_DEVICE void LoadCarried(Shift by, States& states) const {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(by, i);
      HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
        states[i][s] = e.exists ? p_.carried[s][e.at] : 0.0f;
      }
    }
  }
  // to: tensors [N, K, H].
  HASTE_DEVICE void StoreLast(Shift by, void* const* to, const States& states) const {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(by, i);
      if (e.exists) StoreStates<T>(to, e.at, states[i]);
    }
  }

  // What is known of a step of these elements.
  HASTE_DEVICE uint32_t FlagsAt(Shift by, int64_t step) const {
    uint32_t seen = 0;
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      if (Exists(by, i)) seen |= kLive << kBitsOfElement * i;
    }
    return plain_ ? seen : Drawn(by, step);
  }
  // The same of each element. scale: of h, from dropout.
  HASTE_DEVICE void Unpack(uint32_t all, StepFlags (&seen)[kCount], float (&scale)[kCount]) const {
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const uint32_t bits = all >> kBitsOfElement * i;
      seen[i].live = (bits & kLive) != 0;
      seen[i].repeats = (bits & kRepeats) != 0;
      seen[i].drawn = bits >> kDrawn & ((1u << kStates) - 1);
      scale[i] = 1.0f;
      if (p_.dropout_rate != 0.0f) {
        scale[i] = bits & kDropped ? 0.0f : 1.0f / (1.0f - p_.dropout_rate);
      }
    }
  }

  // The thread's pair of units of a row of H. 0 after the last.
  HASTE_DEVICE Pair OfUnits(const T* row) const {
    return PairOf(unit_ < p_.H ? row[unit_] : T{}, unit_ + 1 < p_.H ? row[unit_ + 1] : T{});
  }
  // A pair of units, of which the second may be one after the last: it is 0. kPaired: paired().
  template <bool kPaired>
  HASTE_DEVICE Pair LoadPair(Shift by, const void* tensor, int64_t at) const {
    const T* from = static_cast<const T*>(tensor) + at;
    if constexpr (kPaired) {
      Pair both;
      // Not to be delayed until after the product.
      if constexpr (sizeof(T) == 2) {
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(both) : "l"(from));
      } else {
        asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(both) : "l"(from));
      }
      return both;
    } else {
      const bool two = unit_ + by.units + 1 < p_.H;
      return PairOf(from[0], two ? from[1] : T{});
    }
  }
  template <bool kPaired>
  HASTE_DEVICE void StorePair(Shift by, void* tensor, int64_t at, Pair both) const {
    T* to = static_cast<T*>(tensor) + at;
    if constexpr (kPaired) {
      *reinterpret_cast<Pair*>(to) = both;
    } else {
      to[0] = OfPair(both, 0);
      if (unit_ + by.units + 1 < p_.H) to[1] = OfPair(both, 1);
    }
  }
  static HASTE_DEVICE T OfPair(Pair both, int i) { return haste::OfPair<T>(both, i); }

  // Stores a pair of the operand's numbers, their second split terms a chunk further.
  static HASTE_DEVICE void PutPair(uint16_t* to, const float (&of)[2]) {
    using Operand = MmaOperand<T>;
    if constexpr (Params::kTerms == 1) {
      *reinterpret_cast<uint32_t*>(to) = PackTwo<Operand>(of[0], of[1]);
    } else {
      uint16_t low[Params::kTerms], high[Params::kTerms];
      SplitNumber<T>(of[0], low);
      SplitNumber<T>(of[1], high);
      HASTE_UNROLL for (int s = 0; s < Params::kTerms; ++s) {
        *reinterpret_cast<uint32_t*>(to + s * kStationaryNumbers) =
            PairOf(Operand{low[s]}, Operand{high[s]});
      }
    }
  }

 private:
  // What is known where steps are masked, or something is drawn.
  HASTE_DEVICE uint32_t Drawn(Shift by, int64_t step) const {
    uint32_t seen = 0;
    HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
      const Element e = At(by, i);
      const StepFlags flags = ReadStepFlags<Cell>(p_, e, reverse_, static_cast<int>(step));
      uint32_t bits = flags.drawn << kDrawn;
      bits |= flags.live ? kLive : 0;
      bits |= flags.repeats ? kRepeats : 0;
      if (p_.dropout_rate != 0.0f && e.exists && DropScale(p_, e) == 0.0f) bits |= kDropped;
      seen |= bits << kBitsOfElement * i;
    }
    return seen;
  }

 protected:
  const Params& p_;
  const int64_t lane_;
  const bool reverse_, paired_;
  const bool plain_;  // every step is live, and nothing is drawn
  const int unit_;
  const int64_t first_row_;
  const int rows_;  // of the batch from that row on, as far as a block may have them
  const int64_t row_stride_;
  int64_t at_;
};

// A thread's states of all its turns. Registers have no index: the first are those of the present
// turn, and the others follow.
template <int kTurns, class States>
struct StationaryTurns {
  States of[kTurns];

  HASTE_DEVICE void Next(int turns) {
    static_assert(kTurns <= 2, "two are swapped");
    if constexpr (kTurns > 1) {
      if (turns == 1) return;
      HASTE_UNROLL for (int i = 0; i < static_cast<int>(std::extent_v<States>); ++i) {
        HASTE_UNROLL for (int k = 0; k < static_cast<int>(std::extent_v<States, 1>); ++k) {
          const float present = of[0][i][k];
          of[0][i][k] = of[1][i][k];
          of[1][i][k] = present;
        }
      }
    }
  }
};

// Whether pairs of units are whole words of these tensors.
template <class Params, class... Tensors>
HASTE_DEVICE bool ArePaired(const Params& p, const Tensors*... tensors) {
  constexpr size_t kBytes = sizeof(typename Params::Storage);
  const uintptr_t bits =
      (static_cast<uintptr_t>(p.H) * kBytes | ... | reinterpret_cast<uintptr_t>(tensors));
  return bits % (2 * kBytes) == 0;
}
// And of those of the reserve.
template <class Cell, class Params>
HASTE_DEVICE bool ReserveIsPaired(const Params& p) {
  bool paired = ArePaired(p, p.args.gates);
  HASTE_UNROLL for (int i = 0; i < kSavedStates<Cell> + Cell::kKept - Cell::kGates; ++i) {
    paired &= ArePaired(p, p.args.saved[i]);
  }
  return paired;
}

}  // namespace haste
