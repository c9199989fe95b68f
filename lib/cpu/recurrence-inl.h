// The walk through time of one cell on the CPU. Per-target header.
//
// R is packed once a call into panels (lib/cpu/product-inl.h): forward's hold all gates of the
// same hidden units side by side, so that the cell runs on the accumulators while they are in
// registers; backward's hold the units of h, to be multiplied by the gradients of all gates.
//
// h is double-buffered: every panel of a step reads all of the h that the step before has left.
#if defined(HASTE_LIB_CPU_RECURRENCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_RECURRENCE_INL_H_
#else
#define HASTE_LIB_CPU_RECURRENCE_INL_H_
#endif

#include <algorithm>

#include "lib/cells/cells.h"
#include "lib/cpu/product-inl.h"
#include "lib/cpu/workspace.h"
#include "lib/haste/c_api.h"
#include "lib/random.h"

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

  explicit Walk(const HasteRnnConfig& config, const uint8_t* mask, const int64_t* seed,
                Workspace* workspace)
      : config_(config),
        mask_(mask),
        N(config.batch),
        T_(config.time),
        K(config.lanes),
        H(config.hidden),
        W(Width<C>()),
        Hp((H + W - 1) / W * W),
        act_{config.activation, config.recurrent_activation} {
    dropout_ = config.training && config.recurrent_dropout > 0.0f;
    for (int s = 0; s < kStates; ++s) zoneout_ |= config.zoneout[s] > 0.0f;
    if (seed != nullptr) key_ = MakePhiloxKey(seed);
    if (dropout_) scale_ = workspace->Take<C>(K * N * Hp);
    if (mask != nullptr) first_live_ = workspace->Take<int64_t>(2 * N);
  }

  // Before rows are walked, once for all of them.
  void PrepareMask() {
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
      for (int64_t j = 0; j < H; ++j) {
        scale[j] = DropoutScale(key_, static_cast<uint32_t>(n), static_cast<uint32_t>(k * H + j),
                                config_.recurrent_dropout);
      }
      for (int64_t j = H; j < Hp; ++j) scale[j] = 0;
    }
  }

  int64_t panels() const { return panels_; }

 protected:
  // Time index of a step of the walk.
  int64_t Time(int64_t k, int64_t step) const {
    return config_.reverse != nullptr && config_.reverse[k] ? T_ - 1 - step : step;
  }
  // Row of [N, T, K] that follows (n, t, k) in the walk; beyond its end, any row there is.
  int64_t RowAhead(int64_t k, int64_t n, int64_t t, bool backward = false) const {
    const bool reverse = (config_.reverse != nullptr && config_.reverse[k]) != backward;
    return (n * T_ + std::min(std::max<int64_t>(t + (reverse ? -1 : 1), 0), T_ - 1)) * K + k;
  }
  bool Live(int64_t n, int64_t t) const { return mask_ == nullptr || mask_[n * T_ + t] != 0; }
  // At a masked step: does y repeat the output before (and not 0)?
  bool Repeats(int64_t k, int64_t n, int64_t step) const {
    const bool reverse = config_.reverse != nullptr && config_.reverse[k];
    return !config_.zero_output_for_mask && step >= first_live_[(reverse ? N : 0) + n];
  }
  // Offset of a row in scratch of [K, N, Hp].
  int64_t Row(int64_t k, int64_t n) const { return (k * N + n) * Hp; }

  V Scaled(V h, int64_t at) const { return dropout_ ? h * Load(scale_ + at) : h; }

  // keep[s] > 0 in the lanes where Zoneout keeps state s as it was.
  void DrawZoneout(int64_t t, int64_t n, int64_t unit, V (&keep)[kStates]) const {
    constexpr int kLanes = HWY_MAX_BYTES / sizeof(C);
    HWY_ALIGN C drawn[kStates][kLanes] = {};
    for (int64_t lane = 0; lane < W; ++lane) {
      uint32_t word[4];
      Philox(key_, static_cast<uint32_t>(t), static_cast<uint32_t>(n),
             static_cast<uint32_t>(unit + lane), kZoneoutStream, word);
      for (int s = 0; s < kStates; ++s) {
        drawn[s][lane] = Draw(word[s], config_.zoneout[s]) ? C(1) : C(0);
      }
    }
    for (int s = 0; s < kStates; ++s) keep[s] = Load(drawn[s]);
  }

  // Asks for what the next step of the walk will read and write at the same place. Rows of one step
  // lie far apart, which the hardware's own prefetching does not follow.
  template <class E>
  static HWY_INLINE void Ahead(const void* tensor, int64_t at, int count, int64_t stride) {
    const E* from = static_cast<const E*>(tensor) + at;
    for (int i = 0; i < count; ++i) __builtin_prefetch(from + i * stride, 1);
  }

  // Calls use(unit_vector, row, acc) for each vector of hidden units of a panel and each row.
  // kPerUnit vectors belong to one vector of units; the last panel may have fewer units.
  template <int kPerUnit, int kUnits, class Use>
  void Product(int64_t units, const C* a, int64_t a_stride, int64_t rows, const C* panel,
               int64_t depth, const Use& use) const {
    if constexpr (kUnits > 1) {
      if (units < kUnits) {
        return Product<kPerUnit, kUnits - 1>(units, a, a_stride, rows, panel, depth, use);
      }
    }
    PanelProduct<kPerUnit * kUnits>(a, a_stride, rows, panel, depth,
                                    [&](int64_t row, V(&acc)[kPerUnit* kUnits]) HWY_ATTR {
                                      for (int u = 0; u < kUnits; ++u) {
                                        use(u, row, acc + u * kPerUnit);
                                      }
                                    });
  }

  const HasteRnnConfig& config_;
  const uint8_t* mask_;
  const int64_t N, T_, K, H, W, Hp;
  const Activations act_;
  bool dropout_ = false;
  bool zoneout_ = false;
  PhiloxKey key_{};
  C* scale_ = nullptr;             // [K, N, Hp] recurrent dropout
  int64_t* first_live_ = nullptr;  // [2, N] first live step of a forward, of a reverse walk
  int64_t panels_ = 0;             // of a lane
};

template <class Cell, class T>
class ForwardWalk : public Walk<Cell, T> {
  using Base = Walk<Cell, T>;
  using Base::config_, Base::act_, Base::panels_, Base::Row;
  using Base::kGates, Base::kStates, Base::N, Base::T_, Base::K, Base::H, Base::W, Base::Hp;
  using typename Base::C;
  using typename Base::V;
  // Vectors of hidden units a panel: enough that a row of accumulators is about four vectors.
  static constexpr int kUnits = kGates >= 3 ? 1 : 4 / kGates;

 public:
  ForwardWalk(const HasteRnnConfig& config, const HasteRnnForwardArgs& args, Workspace* workspace)
      : Base(config, args.mask, args.seed, workspace), args_(args) {
    panels_ = (H + kUnits * W - 1) / (kUnits * W);
    packed_ = workspace->Take<C>(K * H * kGates * Hp);
    h_[0] = workspace->Take<C>(K * N * Hp);
    h_[1] = workspace->Take<C>(K * N * Hp);
    // Where h enters the product: h itself unless dropout makes a difference.
    operand_[0] = this->dropout_ ? workspace->Take<C>(K * N * Hp) : h_[0];
    operand_[1] = this->dropout_ ? workspace->Take<C>(K * N * Hp) : h_[1];
    for (int s = 1; s < kStates; ++s) state_[s] = workspace->Take<C>(K * N * Hp);
  }

  void Pack(int64_t k, int64_t panel) {
    const T* r = static_cast<const T*>(args_.R) + k * H * kGates * H;
    C* to = packed_ + k * H * kGates * Hp + panel * kUnits * kGates * W * H;
    const int64_t first = panel * kUnits * W;
    const int64_t units = std::min<int64_t>(kUnits, (H - first + W - 1) / W);
    for (int64_t i = 0; i < H; ++i) {
      for (int64_t u = 0; u < units; ++u) {
        const int64_t j = first + u * W;
        for (int g = 0; g < kGates; ++g, to += W) {
          Store(LoadPart(r + (i * kGates + g) * H + j, H - j), to);
        }
      }
    }
  }

  void Begin(int64_t k, Range rows) {
    this->PrepareDropout(k, rows);
    for (int64_t n = rows.begin; n < rows.end; ++n) {
      for (int64_t j = 0; j < Hp; j += W) {
        const int64_t at = Row(k, n) + j;
        for (int s = 0; s < kStates; ++s) {
          const T* from = static_cast<const T*>(args_.s0[s]);
          const V v = from == nullptr ? V() : LoadPart(from + (n * K + k) * H + j, H - j);
          Store(v, (s == 0 ? h_[0] : state_[s]) + at);
          if (s == 0) Store(this->Scaled(v, at), operand_[0] + at);
        }
      }
    }
  }

  void Step(int64_t step, int64_t k, int64_t panel, Range rows) {
    const int64_t first = panel * kUnits * W;
    const int64_t units = std::min<int64_t>(kUnits, (H - first + W - 1) / W);
    const C* weights = packed_ + k * H * kGates * Hp + panel * kUnits * kGates * W * H;
    const int64_t t = this->Time(k, step);
    this->template Product<kGates, kUnits>(
        units, operand_[step & 1] + Row(k, rows.begin), Hp, rows.end - rows.begin, weights, H,
        [&](int u, int64_t row, const V* q)
            HWY_ATTR { Element(step, t, k, rows.begin + row, first + u * W, q); });
  }

  void End(int64_t k, Range rows) {
    for (int s = 0; s < kStates; ++s) {
      T* to = static_cast<T*>(args_.sT[s]);
      if (to == nullptr) continue;
      const C* from = s == 0 ? h_[T_ & 1] : state_[s];
      for (int64_t n = rows.begin; n < rows.end; ++n) {
        for (int64_t j = 0; j < H; j += W) {
          StorePart(Load(from + Row(k, n) + j), to + (n * K + k) * H + j, H - j);
        }
      }
    }
  }

 private:
  // One row of one vector of hidden units, from j on; q: [kGates] its products with R.
  HWY_INLINE void Element(int64_t step, int64_t t, int64_t k, int64_t n, int64_t j, const V* q) {
    const int64_t at = Row(k, n) + j;
    const int64_t count = H - j;
    const int64_t step_row = (n * T_ + t) * K + k;
    const C* h = h_[step & 1];
    const int64_t ahead = this->RowAhead(k, n, t);
    Base::template Ahead<T>(args_.wx, ahead * kGates * H + j, kGates, H);
    Base::template Ahead<T>(args_.y, ahead * H + j, 1, 0);
    V prev[kStates], next[kStates], gate[kGates];
    prev[0] = Load(h + at);
    for (int s = 1; s < kStates; ++s) prev[s] = Load(state_[s] + at);
    V y;
    if (this->Live(n, t)) {
      V x[kGates];
      const T* wx = static_cast<const T*>(args_.wx) + step_row * kGates * H + j;
      for (int g = 0; g < kGates; ++g) x[g] = LoadPart(wx + g * H, count);
      Cell::Forward(act_, x, q, prev, gate, next);
      if (this->zoneout_) Zoneout(t, n, k * H + j, prev, next);
      y = next[0];
    } else {
      for (int s = 0; s < kStates; ++s) next[s] = prev[s];
      if (this->Repeats(k, n, step)) y = prev[0];
    }
    if (args_.gates != nullptr) {
      if (args_.gates != args_.wx) {
        Base::template Ahead<T>(args_.gates, ahead * kGates * H + j, kGates, H);
      }
      for (int s = 0; s < kStates; ++s) {
        Base::template Ahead<T>(args_.states[s], ahead * H + j, 1, 0);
      }
      T* gates = static_cast<T*>(args_.gates) + step_row * kGates * H + j;
      for (int g = 0; g < kGates; ++g) StorePart(gate[g], gates + g * H, count);
      for (int s = 0; s < kStates; ++s) {
        const V entering = s == 0 ? Load(operand_[step & 1] + at) : prev[s];
        StorePart(entering, static_cast<T*>(args_.states[s]) + step_row * H + j, count);
      }
    }
    StorePart(y, static_cast<T*>(args_.y) + step_row * H + j, count);
    const int after = (step + 1) & 1;
    Store(next[0], h_[after] + at);
    if (this->dropout_) Store(this->Scaled(next[0], at), operand_[after] + at);
    for (int s = 1; s < kStates; ++s) Store(next[s], state_[s] + at);
  }

  void Zoneout(int64_t t, int64_t n, int64_t unit, const V* prev, V* next) const {
    if (config_.training) {
      V keep[kStates];
      this->DrawZoneout(t, n, unit, keep);
      for (int s = 0; s < kStates; ++s) next[s] = IfPositive(keep[s], prev[s], next[s]);
    } else {
      for (int s = 0; s < kStates; ++s) {
        next[s] = MulAdd(V(config_.zoneout[s]), prev[s] - next[s], next[s]);
      }
    }
  }

  const HasteRnnForwardArgs& args_;
  C* packed_;               // [K, panel, H, unit vector, gate, W]
  C* h_[2];                 // [K, N, Hp] by parity of the step
  C* operand_[2];           // the same, as it enters the product
  C* state_[kStates] = {};  // [K, N, Hp] the other states
};

template <class Cell, class T>
class BackwardWalk : public Walk<Cell, T> {
  using Base = Walk<Cell, T>;
  using Base::config_, Base::act_, Base::panels_, Base::Row;
  using Base::kGates, Base::kStates, Base::N, Base::T_, Base::K, Base::H, Base::W, Base::Hp;
  using typename Base::C;
  using typename Base::V;
  static constexpr int kUnits = 4;

 public:
  BackwardWalk(const HasteRnnConfig& config, const HasteRnnBackwardArgs& args, Workspace* workspace)
      : Base(config, args.mask, args.seed, workspace), args_(args) {
    panels_ = (H + kUnits * W - 1) / (kUnits * W);
    packed_ = workspace->Take<C>(K * kGates * H * Hp);
    dpre_[0] = workspace->Take<C>(K * N * kGates * H);
    dpre_[1] = workspace->Take<C>(K * N * kGates * H);
    for (int s = 0; s < kStates; ++s) dstate_[s] = workspace->Take<C>(K * N * Hp);
  }

  // Transposes R by blocks that stay in the first-level cache.
  void Pack(int64_t k, int64_t panel) {
    constexpr int64_t kBlock = 32;
    const int64_t depth = kGates * H;
    const T* r = static_cast<const T*>(args_.R) + k * H * depth;
    C* to = packed_ + k * depth * Hp + panel * kUnits * W * depth;
    const int64_t first = panel * kUnits * W;
    const int64_t columns = std::min<int64_t>(kUnits * W, Hp - first);
    for (int64_t q0 = 0; q0 < depth; q0 += kBlock) {
      const int64_t q1 = std::min(depth, q0 + kBlock);
      for (int64_t u = 0; u < columns; ++u) {
        const bool real = first + u < H;
        HWY_ALIGN C row[kBlock] = {};
        if (real) {
          for (int64_t q = q0; q < q1; q += W) {
            StorePart(LoadPart(r + (first + u) * depth + q, q1 - q), row + (q - q0), q1 - q);
          }
        }
        for (int64_t q = q0; q < q1; ++q) to[q * columns + u] = row[q - q0];
      }
    }
  }

  void Begin(int64_t k, Range rows) {
    this->PrepareDropout(k, rows);
    for (int s = 0; s < kStates; ++s) {
      const T* from = static_cast<const T*>(args_.dsT[s]);
      for (int64_t n = rows.begin; n < rows.end; ++n) {
        for (int64_t j = 0; j < Hp; j += W) {
          const V v = from == nullptr ? V() : LoadPart(from + (n * K + k) * H + j, H - j);
          Store(v, dstate_[s] + Row(k, n) + j);
        }
      }
    }
  }

  // Step 0 is the last of the walk; step T has the product only, and leaves the initial states'
  // gradients.
  void Step(int64_t step, int64_t k, int64_t panel, Range rows) {
    const int64_t first = panel * kUnits * W;
    const int64_t units = std::min<int64_t>(kUnits, (H - first + W - 1) / W);
    const int64_t depth = kGates * H;
    const C* weights = packed_ + k * depth * Hp + panel * kUnits * W * depth;
    this->template Product<1, kUnits>(units, dpre_[(step + 1) & 1] + (k * N + rows.begin) * depth,
                                      depth, rows.end - rows.begin, weights, step == 0 ? 0 : depth,
                                      [&](int u, int64_t row, const V* product) HWY_ATTR {
                                        Element(step, k, rows.begin + row, first + u * W, *product);
                                      });
  }

  void End(int64_t, Range) {}

 private:
  HWY_INLINE void Element(int64_t step, int64_t k, int64_t n, int64_t j, V product) {
    const int64_t at = Row(k, n) + j;
    const int64_t count = H - j;
    V ds[kStates];
    for (int s = 0; s < kStates; ++s) ds[s] = Load(dstate_[s] + at);
    ds[0] = ds[0] + this->Scaled(product, at);
    if (step == T_) {
      for (int s = 0; s < kStates; ++s) {
        T* to = static_cast<T*>(args_.ds0[s]);
        if (to != nullptr) StorePart(ds[s], to + (n * K + k) * H + j, count);
      }
      return;
    }
    const int64_t forward_step = T_ - 1 - step;
    const int64_t t = this->Time(k, forward_step);
    const int64_t step_row = (n * T_ + t) * K + k;
    const bool live = this->Live(n, t);
    const int64_t ahead = this->RowAhead(k, n, t, /*backward=*/true);
    Base::template Ahead<T>(args_.gates, ahead * kGates * H + j, kGates, H);
    if (args_.dwx != args_.gates) {
      Base::template Ahead<T>(args_.dwx, ahead * kGates * H + j, kGates, H);
    }
    for (int s = 0; s < kStates; ++s) {
      Base::template Ahead<T>(args_.states[s], ahead * H + j, 1, 0);
    }
    if (args_.dy != nullptr) Base::template Ahead<T>(args_.dy, ahead * H + j, 1, 0);
    if (args_.dy != nullptr && (live || this->Repeats(k, n, forward_step))) {
      ds[0] = ds[0] + LoadPart(static_cast<const T*>(args_.dy) + step_row * H + j, count);
    }
    V dpre[kGates];
    if (live) LiveElement(t, n, k, j, count, step_row, ds, dpre);
    for (int s = 0; s < kStates; ++s) Store(ds[s], dstate_[s] + at);
    C* operand = dpre_[step & 1] + (k * N + n) * kGates * H + j;
    T* dwx = static_cast<T*>(args_.dwx) + step_row * kGates * H + j;
    for (int g = 0; g < kGates; ++g) {
      StorePart(dpre[g], operand + g * H, count);
      StorePart(dpre[g], dwx + g * H, count);
    }
  }

  // ds: gradients of the states, leaving the step on entry and entering it on return.
  HWY_INLINE void LiveElement(int64_t t, int64_t n, int64_t k, int64_t j, int64_t count,
                              int64_t step_row, V* ds, V* dpre) {
    V gate[kGates], prev[kStates], kept[kStates], before[kStates];
    const T* gates = static_cast<const T*>(args_.gates) + step_row * kGates * H + j;
    for (int g = 0; g < kGates; ++g) gate[g] = LoadPart(gates + g * H, count);
    for (int s = 0; s < kStates; ++s) {
      prev[s] = LoadPart(static_cast<const T*>(args_.states[s]) + step_row * H + j, count);
    }
    if (this->zoneout_) {
      // What went past the cell comes back past it.
      V keep[kStates];
      if (config_.training) this->DrawZoneout(t, n, k * H + j, keep);
      for (int s = 0; s < kStates; ++s) {
        kept[s] =
            config_.training ? IfPositive(keep[s], ds[s], V()) : ds[s] * V(config_.zoneout[s]);
        ds[s] = ds[s] - kept[s];
      }
    }
    Cell::Backward(act_, gate, prev, ds, dpre, before);
    for (int s = 0; s < kStates; ++s) ds[s] = before[s] + kept[s];
  }

  const HasteRnnBackwardArgs& args_;
  C* packed_;           // [K, panel, G·H, unit]
  C* dpre_[2];          // [K, N, G·H] by parity of the step
  C* dstate_[kStates];  // [K, N, Hp]
};

HASTE_TARGET_END

#endif
