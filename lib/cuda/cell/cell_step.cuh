// The cell (lib/cells/cell.h) as kernels use it: its traits as constants for device code, which
// cannot use static arrays of a struct; its reserve; and one step of an element, forward and
// backward.
#pragma once

#include "lib/cells/cells.h"
#include "lib/cuda/cell/params.cuh"
#include "lib/cuda/cell/step_params.cuh"
#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/ptx/fast_math.cuh"

namespace haste {

// Product columns of a thread in forward. Cells of fewer than three gates take enough units to
// make four columns.
constexpr int ForwardColumns(int gates) { return gates >= 3 ? gates : 4; }
constexpr int kBackwardColumns = 4;

// The product of a phase (phase_forward.cuh): of R's gates kBefore … kBefore + kGates - 1. Forward
// leaves one sum a gate, backward one sum over the gates.
template <class Cell, int kFirst, int kCount>
struct PhaseProduct {
  static constexpr int kBefore = kFirst, kGates = kCount, kAfter = Cell::kGates - kFirst - kCount;
  static constexpr int kAllGates = Cell::kGates;
};
template <class Cell, int kFirst, int kCount>
struct ForwardProduct : PhaseProduct<Cell, kFirst, kCount> {
  static constexpr bool kBackward = false;
  static constexpr int kStride = 1;  // of the walk
  static constexpr int kDepth = 1;   // of the product, in multiples of H
  static constexpr int kColumns = ForwardColumns(kCount), kSums = kCount;
};
template <class Cell, int kFirst, int kCount>
struct BackwardProduct : PhaseProduct<Cell, kFirst, kCount> {
  static constexpr bool kBackward = true;
  static constexpr int kStride = -1;
  static constexpr int kDepth = kCount, kColumns = kBackwardColumns, kSums = 1;
};

template <class Cell>
constexpr uint32_t ReadStates() {
  uint32_t bits = 0;
  for (int s = 0; s < Cell::kStates; ++s) bits |= Cell::kReadsState[s] ? 1u << s : 0u;
  return bits;
}
// Bit s: the reserve holds state s as it enters a step.
template <class Cell>
constexpr uint32_t kReadStates = ReadStates<Cell>();
template <class Cell>
constexpr int kSavedStates = SavedStates<Cell>();

template <class Cell>
HASTE_DEVICE bool ReadsState(int s) {
  return kReadStates<Cell> >> s & 1;
}
// Index in `saved` of state s.
template <class Cell>
HASTE_DEVICE int SavedAt(int s) {
  return __popc(kReadStates<Cell> & ((1u << s) - 1));
}

// h as kernels store and read it in the reserve, which is how the cell reads it. Of kMixesHidden
// another tensor has h with dropout (engine_table.h). scale: the factor from dropout.
template <class Cell, class C>
HASTE_DEVICE C KeptHidden(C h, C scale) {
  return kMixesHidden<Cell> ? h : h * scale;
}
template <class Cell, class C>
HASTE_DEVICE C KeptScale(C scale) {
  return kMixesHidden<Cell> ? C(1) : scale;
}

// Index in `extra` of the bias of h·R. The parameters of layer normalisation come before it.
template <class Cell>
constexpr int kRecurrentBiasAt = (Cell::kNormalizes ? 1 : 0) + (Cell::kNormalizesState > 0 ? 2 : 0);

// Calls run(act) with the kernel's activations. If they are the defaults of the cell's layer, they
// are known at compile time: nothing branches, and the gates of an element are computed side by
// side. C: the compute type. For double, which gains least, only one version is compiled.
template <class Cell, class C, class Run>
HASTE_DEVICE void WithActivations(const Activations& act, const Run& run) {
  if constexpr (sizeof(C) < sizeof(double)) {
    if (act.candidate == Cell::kActivation && act.recurrent == Cell::kRecurrentActivation &&
        !(Cell::kTiedZoneout && act.log_zoneout < 0)) {
      return run(Activations{Cell::kActivation, Cell::kRecurrentActivation});
    }
  }
  run(act);
}

// Offsets of one step of an element: of its gate 0 in [N, T, K, G, H], and in [N, T, K, H].
struct StepPlace {
  int64_t gates, one;

  StepPlace() = default;
  // one: the offset in [N, T, K, H], at hidden unit j.
  HASTE_DEVICE StepPlace(int64_t one, int gates_of_cell, int j)
      : gates(one * gates_of_cell - j * (gates_of_cell - 1)), one(one) {}
  // row: the step's index in [N, T, K].
  HASTE_DEVICE StepPlace(int64_t row, int gates_of_cell, int64_t H, int64_t j)
      : gates(row * gates_of_cell * H + j), one(row * H + j) {}
};

// A step of the walk for one element.
struct StepAt {
  int64_t step, t;  // t: its time
  bool reverse;
  StepPlace place;

  StepAt() = default;
  __device__ __forceinline__ StepAt(int64_t step, int64_t t, bool reverse, const StepPlace& place)
      : step(step), t(t), reverse(reverse), place(place) {}
  template <class T>
  HASTE_DEVICE StepAt(const RecurrenceParams<T>& p, const Element& e, int gates_of_cell,
                      bool reverse, int64_t step)
      : step(step),
        t(TimeOf(p, reverse, step)),
        reverse(reverse),
        place((e.n * p.T_ + t) * p.K + e.k, gates_of_cell, p.H, e.j) {}
};

// Is this the last step of the walk? Sizes fit 32 bits.
template <class T>
__device__ __forceinline__ bool IsLast(const RecurrenceParams<T>& p, const StepAt& at) {
  return static_cast<int>(at.step) == static_cast<int>(p.T_) - 1;
}

// Stores gates [kFirst, kEnd) of a step in the reserve.
template <class Cell, int kFirst, int kEnd, class Params>
HASTE_DEVICE void KeepGates(const Params& p, const StepPlace& place,
                            const typename Params::C (&kept)[Cell::kKept]) {
  using T = typename Params::Storage;
  T* gates = static_cast<T*>(p.args.gates) + place.gates;
  HASTE_UNROLL for (int g = kFirst; g < kEnd; ++g) gates[g * p.H] = FromCompute<T>(kept[g]);
}

// Stores the other tensors of the reserve: the states that enter the step, and whatever else the
// cell keeps.
template <class Cell, class Params>
HASTE_DEVICE void KeepSaved(const Params& p, const StepPlace& place,
                            const typename Params::C (&before)[Cell::kStates],
                            const typename Params::C (&kept)[Cell::kKept]) {
  using T = typename Params::Storage;
  HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
    if (ReadsState<Cell>(s)) {
      static_cast<T*>(p.args.saved[SavedAt<Cell>(s)])[place.one] = FromCompute<T>(before[s]);
    }
  }
  HASTE_UNROLL for (int i = Cell::kGates; i < Cell::kKept; ++i) {
    static_cast<T*>(p.args.saved[kSavedStates<Cell> + i - Cell::kGates])[place.one] =
        FromCompute<T>(kept[i]);
  }
}

// Stores states or their gradients in tensors [N, K, H], some of which may be null.
template <class T, int kStates>
HASTE_DEVICE void StoreStates(void* const* to, int64_t at, const Compute<T> (&states)[kStates]) {
  HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
    if (to[s] != nullptr) static_cast<T*>(to[s])[at] = FromCompute<T>(states[s]);
  }
}

// What backward reads from the reserve: the gates before kEnd, and all saved tensors.
template <class Cell, class T, int kEnd>
struct Reserve {
  using C = Compute<T>;

  T kept[Cell::kKept], state[Cell::kStates];

  template <class Params>
  __device__ void Load(const Params& p, const StepPlace& place) {
    Each(p, place, [](const T* from, T* to) { *to = *from; });
  }
  template <class Params>
  static __device__ void Prefetch(const Params& p, const StepPlace& place) {
    Reserve unused;
    unused.Each(p, place, [](const T* from, T*) { PrefetchL2(from); });
  }

  // The cell's arguments. 0 where it reads nothing.
  __device__ void Get(C (&keeps)[Cell::kKept], C (&before)[Cell::kStates]) const {
    HASTE_UNROLL for (int i = 0; i < Cell::kKept; ++i) {
      keeps[i] = i < kEnd || i >= Cell::kGates ? ToCompute(kept[i]) : C(0);
    }
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
      before[s] = ReadsState<Cell>(s) ? ToCompute(state[s]) : C(0);
    }
  }

 private:
  template <class Params, class Visit>
  HASTE_DEVICE void Each(const Params& p, const StepPlace& place, const Visit& visit) {
    const T* gates = static_cast<const T*>(p.args.gates) + place.gates;
    HASTE_UNROLL for (int g = 0; g < kEnd; ++g) visit(gates + g * p.H, &kept[g]);
    HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
      if (!ReadsState<Cell>(s)) continue;
      visit(static_cast<const T*>(p.args.saved[SavedAt<Cell>(s)]) + place.one, &state[s]);
    }
    HASTE_UNROLL for (int i = Cell::kGates; i < Cell::kKept; ++i) {
      visit(static_cast<const T*>(p.args.saved[kSavedStates<Cell> + i - Cell::kGates]) + place.one,
            &kept[i]);
    }
  }
};

// Converts between a compute type and its CellScalar.
template <class To, class From, int kCount>
HASTE_DEVICE void Recast(const From (&from)[kCount], To (&to)[kCount]) {
  HASTE_UNROLL for (int i = 0; i < kCount; ++i) {
    if constexpr (std::is_same_v<From, ApproximateFloat>) {
      to[i] = from[i].v;
    } else {
      to[i] = To(from[i]);
    }
  }
}

// Applies Zoneout: next[s] takes the share share[s] of prev[s].
template <int kStates, class C>
HASTE_DEVICE void MixZoneout(const C (&share)[kStates], const C (&prev)[kStates],
                             C (&next)[kStates]) {
  // A state that is wholly old or wholly new is selected, not mixed: the other value may be
  // infinite.
  HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
    if (share[s] == C(1)) {
      next[s] = prev[s];
    } else if (share[s] != C(0)) {
      next[s] = MulAdd(share[s], prev[s] - next[s], next[s]);
    }
  }
}

// Its gradient: what Zoneout passed around the cell has one that goes around it too, `past`. The
// rest of ds is the cell's.
template <int kStates, class C>
HASTE_DEVICE void SplitZoneout(const C (&share)[kStates], C (&ds)[kStates], C (&past)[kStates]) {
  HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
    past[s] = share[s] == C(0) ? C(0) : ds[s] * share[s];
    ds[s] = share[s] == C(1) ? C(0) : ds[s] - past[s];
  }
}

// In place of a function that a cell does not need.
struct DoNothing {
  template <class... Args>
  HASTE_DEVICE void operator()(Args&&...) const {}
};

// Several elements of a thread, side by side: a live step of the cell, computed in CellScalar, then
// Zoneout.
template <class Cell, class T, int kCount>
struct Elements {
  using C = Compute<T>;
  using V = CellScalar<T>;
  using Gates = C[kCount][Cell::kGates];
  using States = C[kCount][Cell::kStates];
  using Kept = C[kCount][Cell::kKept];

  // before: prev, with h of KeptHidden. share: from ZoneoutShares, read only if p.zoneout. kept:
  // the cell's; kOperand and the gates of kResetGates are already set. finish(kept, next): sets h
  // of kNormalizesState.
  template <class Finish = DoNothing>
  static HASTE_DEVICE void Forward(const RecurrenceParams<T>& p, const Gates& x, const Gates& q,
                                   const States& before, const States& prev, const States& share,
                                   Kept& kept, States& next, const Finish& finish = {}) {
    static_assert(Cell::kNormalizesState == 0 || !std::is_same_v<Finish, DoNothing>, "h is unset");
    WithActivations<Cell, C>(p.act, [&](const Activations& act) {
      HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
        V in[Cell::kGates], product[Cell::kGates], keeps[Cell::kKept];
        V entering[Cell::kStates], leaving[Cell::kStates];
        Recast(x[e], in);
        Recast(q[e], product);
        Recast(before[e], entering);
        Recast(kept[e], keeps);
        Cell::Forward(act, in, product, entering, keeps, leaving);
        Recast(keeps, kept[e]);
        Recast(leaving, next[e]);
      }
    });
    finish(kept, next);
    HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
      if (p.zoneout) MixZoneout(share[e], prev[e], next[e]);
    }
  }

  // Their gradients. ds: on entry, gradients of the states that leave the step; on return, of those
  // that enter it, without what the product with Rᵀ adds. scale: the factor of h from dropout.
  // begin(kept, prev, ds, dx): of kNormalizesState, the gradient of that state and the dx of the
  // gates of h.
  template <class Begin = DoNothing>
  static HASTE_DEVICE void Backward(const RecurrenceParams<T>& p, const Kept& kept,
                                    const States& prev, const States& share,
                                    const C (&scale)[kCount], States& ds, Gates& dx, Gates& dq,
                                    const Begin& begin = {}) {
    static_assert(Cell::kNormalizesState == 0 || !std::is_same_v<Begin, DoNothing>, "dx is unset");
    States past = {}, before;
    HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
      if (p.zoneout) SplitZoneout(share[e], ds[e], past[e]);
    }
    begin(kept, prev, ds, dx);
    WithActivations<Cell, C>(p.act, [&](const Activations& act) {
      HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
        V keeps[Cell::kKept], din[Cell::kGates], dproduct[Cell::kGates];
        V entered[Cell::kStates], dleft[Cell::kStates], dentered[Cell::kStates];
        Recast(kept[e], keeps);
        Recast(prev[e], entered);
        Recast(ds[e], dleft);
        if constexpr (Cell::kNormalizesState > 0) Recast(dx[e], din);
        CellBackward<Cell>(act, keeps, entered, dleft, din, dproduct, dentered);
        Recast(din, dx[e]);
        Recast(dproduct, dq[e]);
        Recast(dentered, before[e]);
      }
    });
    HASTE_UNROLL for (int e = 0; e < kCount; ++e) {
      HASTE_UNROLL for (int s = 0; s < Cell::kStates; ++s) {
        ds[e][s] = MulAdd(before[e][s], s == 0 ? KeptScale<Cell>(scale[e]) : C(1), past[e][s]);
      }
    }
  }
};

// Views an array as an array of one such array.
template <class V, int kSize>
HASTE_DEVICE V (&OfOne(V (&array)[kSize]))[1][kSize] {
  return reinterpret_cast<V(&)[1][kSize]>(array);
}

}  // namespace haste
