// The walk through time of one cell on the CPU. Per-target header.
//
// R is packed once a call into panels (lib/cpu/product/product-inl.h): forward's hold all gates of
// the same hidden units side by side, so that the cell runs on the accumulators while they are in
// registers; backward's hold the units of h, to be multiplied by the gradients of all gates.
// Forward of a single row reads R in place, unless R is large or its vectors cross cache lines
// (lib/cpu/engines/row_in_place.h).
//
// h is double-buffered: every panel of a step reads all of the previous step's h.
//
// A cell with two products a step (kResetGates) walks it in two phases, each with panels of its own
// gates. The second reads the whole lane's results of the first.
#if defined(HASTE_LIB_CPU_ENGINES_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_WALK_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_WALK_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "haste/c_api.h"
#include "lib/base/workspace.h"
#include "lib/cells/cells.h"
#include "lib/cpu/engines/task_rows.h"
#include "lib/cpu/engines/zoneout-inl.h"
#include "lib/cpu/product/product-inl.h"

HASTE_TARGET_BEGIN

// Rows [begin, end) of one lane, or panels [begin, end) counted through all lanes.
struct Range {
  int64_t begin, end;
};

// What forward and backward share: sizes, masks, random draws, scratch that both need.
template <class Cell, class T>
class Walk {
 public:
  using C = Compute<T>;
  using V = Vec<C>;
  static constexpr int kGates = Cell::kGates;
  static constexpr int kStates = Cell::kStates;
  static constexpr int kKept = Cell::kKept;
  static constexpr int kPhases = Cell::kResetGates > 0 ? 2 : 1;
  // Gates [FirstGate(p), EndGate(p)) take the product of phase p.
  static constexpr int FirstGate(int phase) { return phase == 0 ? 0 : Cell::kResetGates; }
  static constexpr int EndGate(int phase) {
    return phase + 1 < kPhases ? Cell::kResetGates : kGates;
  }
  static constexpr int GatesOf(int phase) { return EndGate(phase) - FirstGate(phase); }

  // rows_per_task: of TaskRows.
  Walk(const HasteRnnConfig& config, int64_t rows_per_task, const uint8_t* mask,
       const int64_t* seed, Workspace* workspace)
      : config_(config),
        mask_(mask),
        N(config.batch),
        T_(config.time),
        K(config.lanes),
        H(config.hidden),
        W(Width<C>()),
        Hp((H + W - 1) / W * W),
        rows_(N, K, rows_per_task),
        act_(CellActivations<Cell>(config)) {
    dropout_ = config.training && config.recurrent_dropout > 0.0f;
    zoneout_ = AnyZoneout<Cell>(config);
    if (seed != nullptr) key_ = MakePhiloxKey(seed);
    if (dropout_) scale_ = rows_.Take(workspace, Hp);
    if (mask != nullptr) first_live_ = workspace->Take<int64_t>(2 * N);
  }

  // Before rows are walked, once for all of them.
  void Prepare() {
    if (mask_ == nullptr) return;
    for (int64_t n = 0; n < N; ++n) {
      const uint8_t* row = mask_ + n * T_;
      int64_t first = 0, last = T_ - 1;
      while (first < T_ && !row[first]) ++first;
      while (last >= 0 && !row[last]) --last;
      first_live_[n] = first;
      first_live_[N + n] = T_ - 1 - last;
    }
  }

  void PrepareDropout(int64_t k, Range rows) {
    if (!dropout_) return;
    for (int64_t n = rows.begin; n < rows.end; ++n) {
      C* scale = scale_ + Row(k, n);
      for (int64_t j = 0; j < H; j += W) {
        Store(DropoutScales<C>(key_, n, k * H + j, config_.recurrent_dropout), scale + j);
      }
    }
  }

  // Panels of R of a lane, in each phase, and whether Pack is to be called for them.
  int64_t panels(int phase) const { return panels_[phase]; }
  bool packs() const { return true; }

  // Whether h is zero at forward's first step, which then leaves the product with R out.
  static bool StartsFromZeros(const HasteRnnForwardArgs& args) { return args.s0[0] == nullptr; }
  // Whether R itself is packed. A pack that is kept is for other calls too.
  bool PacksR(const HasteRnnForwardArgs& args, const PackPlace& place) const {
    return place.kept || T_ > 1 || !StartsFromZeros(args);
  }

  // What a step of a lane consists of, to be divided among threads: panels.
  int64_t parts(int64_t step) const { return panels_[step % kPhases]; }

 protected:
  // The reserve's tensors of state s as it enters a step, and of kept[i] with i >= kGates.
  static constexpr int SavedState(int s) {
    int before = 0;
    for (int i = 0; i < s; ++i) before += Cell::kReadsState[i];
    return before;
  }
  static constexpr int SavedKept(int i) { return SavedStates<Cell>() + i - kGates; }

  // Time index of a step of the walk.
  int64_t Time(int64_t k, int64_t step) const {
    return config_.reverse != nullptr && config_.reverse[k] ? T_ - 1 - step : step;
  }
  // Row of [N, T, K] that follows (n, t, k) in the walk; after the last step, any valid row.
  int64_t RowAhead(int64_t k, int64_t n, int64_t t, bool backward = false) const {
    const bool reverse = (config_.reverse != nullptr && config_.reverse[k]) != backward;
    return StepRow(std::clamp<int64_t>(t + (reverse ? -1 : 1), 0, T_ - 1), k, n);
  }
  bool Live(int64_t n, int64_t t) const { return mask_ == nullptr || mask_[n * T_ + t] != 0; }
  // Whether PlainStep does what all steps need, if no reserve is kept.
  bool IsPlain() const {
    const bool default_activations =
        act_.candidate == Cell::kActivation && act_.recurrent == Cell::kRecurrentActivation;
    // Zoneout of states that are tied is an expectation in inference, which zoneout_ leaves out.
    const bool zoneout = zoneout_ || act_.log_zoneout < 0;
    return mask_ == nullptr && !zoneout && !dropout_ && H % W == 0 && default_activations;
  }
  // Whether y repeats the previous output at a masked step (otherwise it is 0).
  bool Repeats(int64_t k, int64_t n, int64_t step) const {
    const bool reverse = config_.reverse != nullptr && config_.reverse[k];
    return !config_.zero_output_for_mask && step >= first_live_[(reverse ? N : 0) + n];
  }
  // Row of [N, T, K] of a step.
  int64_t StepRow(int64_t t, int64_t k, int64_t n) const { return (n * T_ + t) * K + k; }
  // Offset of a row in scratch of [K, N, Hp].
  int64_t Row(int64_t k, int64_t n) const { return rows_.At(k, n, Hp); }

  // Copies a state, or its gradient, of some rows of a lane: from a tensor [N, K, H], where null
  // holds zeros, to scratch [K, N, Hp], and back, where null takes nothing.
  void LoadState(const void* tensor, int64_t k, Range rows, C* to) const {
    const T* from = static_cast<const T*>(tensor);
    for (int64_t n = rows.begin; n < rows.end; ++n) {
      for (int64_t j = 0; j < Hp; j += W) {
        const V v = from == nullptr ? V() : LoadPart(from + (n * K + k) * H + j, H - j);
        Store(v, to + Row(k, n) + j);
      }
    }
  }
  void StoreState(const C* from, int64_t k, Range rows, void* tensor) const {
    if (tensor == nullptr) return;
    T* to = static_cast<T*>(tensor);
    for (int64_t n = rows.begin; n < rows.end; ++n) {
      for (int64_t j = 0; j < H; j += W) {
        StorePart(Load(from + Row(k, n) + j), to + (n * K + k) * H + j, H - j);
      }
    }
  }

  // h as it enters the product, where dropout makes that another tensor.
  void LoadOperand(const C* h, int64_t k, Range rows, C* to) const {
    if (!dropout_) return;
    const int64_t first = Row(k, rows.begin), count = (rows.end - rows.begin) * Hp;
    for (int64_t at = first; at < first + count; at += W) Store(Scaled(Load(h + at), at), to + at);
  }

  // One vector of units of all gates, in a tensor [N, T, K, G, H].
  HWY_INLINE void StoreGates(void* tensor, int64_t step_row, int64_t j, const V* v) const {
    T* to = static_cast<T*>(tensor) + step_row * kGates * H + j;
    for (int g = 0; g < kGates; ++g) StorePart(v[g], to + g * H, H - j);
  }

  // What forward leaves for backward. prev: the states that enter the step; h_in: h as R multiplies
  // it.
  HWY_INLINE void StoreReserve(const HasteRnnForwardArgs& args, int64_t step_row, int64_t j,
                               const V* prev, V h_in, const V* kept) const {
    StoreGates(args.gates, step_row, j, kept);
    const auto save = [&](int tensor, V v) HWY_ATTR {
      StorePart(v, static_cast<T*>(args.saved[tensor]) + step_row * H + j, H - j);
    };
    for (int s = 0; s < kStates; ++s) {
      if (Cell::kReadsState[s]) save(SavedState(s), s == 0 ? h_in : prev[s]);
    }
    for (int i = kGates; i < kKept; ++i) save(SavedKept(i), kept[i]);
    if (kMixesHidden<Cell> && dropout_) save(SavedTensors<Cell>(), prev[0]);
  }
  HWY_INLINE void LoadReserve(const HasteRnnBackwardArgs& args, int64_t step_row, int64_t j,
                              V* kept, V* prev) const {
    const T* gates = static_cast<const T*>(args.gates) + step_row * kGates * H + j;
    for (int g = 0; g < kGates; ++g) kept[g] = LoadPart(gates + g * H, H - j);
    const auto saved = [&](int tensor) HWY_ATTR {
      return LoadPart(static_cast<const T*>(args.saved[tensor]) + step_row * H + j, H - j);
    };
    for (int s = 0; s < kStates; ++s) {
      if (!Cell::kReadsState[s]) continue;
      const bool apart = s == 0 && kMixesHidden<Cell> && dropout_;
      prev[s] = saved(apart ? SavedTensors<Cell>() : SavedState(s));
    }
    for (int i = kGates; i < kKept; ++i) kept[i] = saved(SavedKept(i));
  }

  V Scaled(V h, int64_t at) const { return dropout_ ? h * Load(scale_ + at) : h; }

  HWY_INLINE Zoneout<Cell, C> ZoneoutOf(int64_t t, int64_t k, int64_t n, int64_t j) const {
    return {config_, key_, t, n, k * H + j};
  }

  // Prefetches what the next step reads and writes at the same place. Rows of one step are too far
  // apart for the hardware's prefetcher.
  static HWY_INLINE void Ahead(const void* tensor, int64_t at, int count = 1, int64_t stride = 0) {
    const T* from = static_cast<const T*>(tensor) + at;
    for (int i = 0; i < count; ++i) __builtin_prefetch(from + i * stride, 1);
  }

  // Calls use(unit_vector, row, acc) for each vector of hidden units of kPanels panels, which are
  // `apart` elements apart, and each row, or the RowSums of some rows if it takes them. kPerUnit
  // vectors belong to one vector of units; a single panel may be the last one, which may have fewer
  // units.
  template <int kPerUnit, int kUnits, bool kHasStart = false, int kPanels = 1, class Use,
            class Prefetch = NoPrefetch, class Start = FromPanel>
  void Product(int64_t units, const C* a, int64_t a_stride, int64_t rows, const C* panel,
               int64_t depth, const Use& use, const Prefetch& meet = {}, int64_t apart = 0,
               const Start& start = {}) const {
    if constexpr (kUnits > 1 && kPanels == 1) {
      if (units < kUnits) {
        return Product<kPerUnit, kUnits - 1, kHasStart>(units, a, a_stride, rows, panel, depth, use,
                                                        meet, apart, start);
      }
    }
    constexpr int kAll = kUnits * kPanels;
    PanelProduct<kPerUnit * kAll, kHasStart, kPanels>(
        a, a_stride, rows, panel, depth,
        [&](int64_t row, const auto& acc) HWY_ATTR -> decltype(use(0, row, acc + 0)) {
          for (int u = 0; u < kAll; ++u) use(u, row, acc + u * kPerUnit);
        },
        meet, apart, start);
  }

  // Calls run(first, together) for all of `panels`, of kVecs vectors, where `together`, a constant,
  // are to be multiplied at once. whole: those that have all of their units. Every other step goes
  // backwards: it begins with what the one before has left in the caches.
  template <int kVecs, class Run>
  static HWY_INLINE void EachPanels(int64_t step, Range panels, int64_t whole, int64_t rows,
                                    const Run& run) {
    const bool backwards = step % 2 != 0;
    for (int64_t left = panels.end - panels.begin; left > 0;) {
      int64_t count = NextPanels<kVecs>(rows, left);
      if ((backwards ? panels.begin + left : panels.end - left + count) > whole) count = 1;
      const int64_t first = backwards ? panels.begin + left - count : panels.end - left;
      left -= count;
      if constexpr (kMostPanels<kVecs> == 4) {
        if (count == 4) {
          run(first, std::integral_constant<int, 4>());
          continue;
        }
      }
      if (count == 2) {
        run(first, std::integral_constant<int, 2>());
      } else {
        run(first, std::integral_constant<int, 1>());
      }
    }
  }

  const HasteRnnConfig& config_;
  const uint8_t* mask_;
  const int64_t N, T_, K, H, W, Hp;
  const TaskRows<C> rows_;  // scratch [K, N, …]
  const Activations act_;
  bool dropout_ = false;
  bool zoneout_ = false;
  PhiloxKey key_{};
  C* scale_ = nullptr;             // [K, N, Hp] recurrent dropout
  int64_t* first_live_ = nullptr;  // [2, N] first live step of a forward, of a reverse walk
  int64_t panels_[kPhases] = {};   // of a lane, in each phase
};

HASTE_TARGET_END

#endif
