// The walk through time of a cell without a matrix product, on the CPU. Per-target header.
//
// Elements are independent. So a task takes a strip (some units of one lane of one row of the
// batch) and walks all of its steps alone. The states that it carries from step to step are in
// arrays that stay in the first-level cache. It reads and writes each element of the tensors once,
// in runs as long as the strip is wide, and is bound by memory.
#if defined(HASTE_LIB_CPU_ENGINES_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_SCAN_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_SCAN_INL_H_
#endif

#include "haste/c_api.h"
#include "lib/base/workspace.h"
#include "lib/cells/cells.h"
#include "lib/cpu/engines/zoneout-inl.h"

HASTE_TARGET_BEGIN

// Units [unit, unit + units) of lane k of row n. `unit` is a multiple of a vector's lanes, and so
// is `units` unless the strip ends its lane.
struct Strip {
  int64_t n, k, unit, units;
};

// What forward and backward share.
template <class Cell, class T>
class Scan {
  static_assert(Cell::kKept == Cell::kGates && !Cell::kRecurrentBias && !Cell::kNormalizes,
                "a cell that is scanned keeps its gates only and has no parameters except R");

 public:
  using C = Compute<T>;
  using V = Vec<C>;
  static constexpr int kGates = Cell::kGates;
  static constexpr int kStates = Cell::kStates;
  static constexpr int kSaved = SavedStates<Cell>();
  static constexpr bool kDiagonal = Cell::kRecurrence == HASTE_DIAGONAL;
  // The widest strip. Narrower strips make shorter runs in memory, which is slower.
  static constexpr int64_t kMaxUnits = 16384 / sizeof(C);

 protected:
  using Lanes = C[kMaxUnits];

  Scan(const HasteRnnConfig& config, const uint8_t* mask, const int64_t* seed, Workspace* workspace)
      : config_(config),
        mask_(mask),
        T_(config.time),
        K(config.lanes),
        H(config.hidden),
        W(Width<C>()),
        act_(CellActivations<Cell>(config)) {
    dropout_ = config.training && config.recurrent_dropout > 0.0f;
    zoneout_ = AnyZoneout<Cell>(config);
    if (seed != nullptr) key_ = MakePhiloxKey(seed);
    workspace->Take<C>(1);  // every engine is given some memory
  }

  bool Reverse(int64_t k) const { return config_.reverse != nullptr && config_.reverse[k] != 0; }
  bool Live(int64_t n, int64_t t) const { return mask_ == nullptr || mask_[n * T_ + t] != 0; }

  // Calls step(act). If the activations are the defaults of the cell's layer, or the cell has none,
  // they are compile-time constants, and nothing branches.
  template <class Step>
  HWY_INLINE void WithActivations(const Step& step) const {
    if (Cell::kSeparateGates ||
        (act_.candidate == Cell::kActivation && act_.recurrent == Cell::kRecurrentActivation)) {
      step(Activations{Cell::kActivation, Cell::kRecurrentActivation});
    } else {
      step(act_);
    }
  }

  // Calls element(j, count) for each vector of a strip: `count` units from j on. count is a
  // constant for whole vectors. down: from the last vector to the first, so that a walk from the
  // end of time also goes through memory without jumps.
  template <class Element>
  HWY_INLINE void EachVector(const Strip& strip, bool down, const Element& element) const {
    const int64_t width = Width<C>(), whole = strip.units / width * width;
    if (!down) {
      for (int64_t j = 0; j < whole; j += width) element(j, width);
    }
    if (whole < strip.units) element(whole, strip.units - whole);
    if (down) {
      for (int64_t j = whole - width; j >= 0; j -= width) element(j, width);
    }
  }
  template <class Element>
  HWY_INLINE void EachVector(const Strip& strip, const Element& element) const {
    EachVector(strip, false, element);
  }

  // Offset in a tensor [N, T, K, H] of a strip at time t.
  int64_t At(const Strip& strip, int64_t t) const {
    return ((strip.n * T_ + t) * K + strip.k) * H + strip.unit;
  }
  int64_t StateAt(const Strip& strip) const { return (strip.n * K + strip.k) * H + strip.unit; }

  // The saved tensors of a strip at time t, in the order of the states that they hold.
  template <class P, class Q>
  void SavedAt(const Strip& strip, int64_t t, Q* const* saved, P** state) const {
    for (int i = 0; i < kSaved; ++i) state[i] = static_cast<P*>(saved[i]) + At(strip, t);
  }

  // The start of each gate of a strip at time t, in one tensor for all gates or one for each.
  template <class P, class Q>
  HWY_INLINE void GatesAt(const Strip& strip, int64_t t, Q* together, Q* const* apart,
                          P** gate) const {
    const int64_t row = (strip.n * T_ + t) * K + strip.k;
    for (int g = 0; g < kGates; ++g) {
      gate[g] = Cell::kSeparateGates
                    ? static_cast<P*>(apart[g]) + row * H + strip.unit
                    : static_cast<P*>(together) + (row * kGates + g) * H + strip.unit;
    }
  }

  // Distance from time t to the step to prefetch, in elements of [N, T, K, H]. 0 after the end, and
  // if steps are adjacent in memory, where the hardware's prefetcher is enough.
  int64_t Ahead(const Strip& strip, int64_t t, bool down) const {
    constexpr int64_t kSteps = 2;
    if (strip.units == K * H) return 0;
    const int64_t then = down ? t - kSteps : t + kSteps;
    return then >= 0 && then < T_ ? (then - t) * K * H : 0;
  }
  // Prefetches what a later step reads. from: what this step reads.
  template <int kCount>
  static HWY_INLINE void Prefetch(const T* const* from, int64_t ahead, int64_t j) {
    if (ahead == 0) return;
    for (int i = 0; i < kCount; ++i) __builtin_prefetch(from[i] + ahead + j);
  }

  // R of a strip, gate by gate, and the dropout factor of h.
  void LoadDiagonal(const Strip& strip, const void* r, Lanes* u, Lanes& scale) const {
    EachVector(strip, [&](int64_t j, int64_t count) HASTE_INLINED {
      for (int g = 0; g < kGates; ++g) {
        const T* from = static_cast<const T*>(r) + (strip.k * kGates + g) * H + strip.unit + j;
        Store(LoadPart(from, count), u[g] + j);
      }
      if (!dropout_) return;
      const int64_t unit = strip.k * H + strip.unit + j;
      Store(DropoutScales<C>(key_, strip.n, unit, config_.recurrent_dropout), scale + j);
    });
  }

  // A state of a strip, or its gradient, from a tensor [N, K, H], where null holds zeros, and back,
  // where null takes nothing.
  void LoadState(const Strip& strip, const void* tensor, Lanes& to) const {
    const T* from = static_cast<const T*>(tensor);
    EachVector(strip, [&](int64_t j, int64_t count) HASTE_INLINED {
      Store(from == nullptr ? V() : LoadPart(from + StateAt(strip) + j, count), to + j);
    });
  }
  void StoreState(const Strip& strip, const Lanes& from, void* tensor) const {
    if (tensor == nullptr) return;
    T* to = static_cast<T*>(tensor) + StateAt(strip);
    EachVector(strip, [&](int64_t j, int64_t count)
                          HASTE_INLINED { StorePart(Load(from + j), to + j, count); });
  }

  // Zoneout of one vector of a strip, for cells that leave Zoneout to the engine.
  HWY_INLINE Zoneout<Cell, C> ZoneoutAt(const Strip& strip, int64_t t, int64_t j) const {
    return Zoneout<Cell, C>(config_, key_, t, strip.n, strip.k * H + strip.unit + j);
  }
  // The same for cells that apply Zoneout themselves: share[s] is the share of the previous state
  // in state s, 0 or 1 where it is drawn.
  HWY_INLINE void Shares(const Strip& strip, int64_t t, int64_t j, V* share) const {
    if (!config_.training) {
      for (int s = 0; s < kStates; ++s) share[s] = V(static_cast<double>(config_.zoneout[s]));
      return;
    }
    const UnitDraws<C> draws(key_, t, strip.n, strip.k * H + strip.unit + j, kZoneoutStream);
    for (int s = 0; s < kStates; ++s) share[s] = draws.Drawn(s, config_.zoneout[s]);
  }

  const HasteRnnConfig& config_;
  const uint8_t* mask_;
  const int64_t T_, K, H, W;
  const Activations act_;
  bool dropout_ = false;
  bool zoneout_ = false;
  PhiloxKey key_{};
};

HASTE_TARGET_END

#endif
