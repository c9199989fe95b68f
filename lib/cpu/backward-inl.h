// Backward through time. Per-target header; lib/cpu/walk-inl.h says how R lies.
#if defined(HASTE_LIB_CPU_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_BACKWARD_INL_H_
#else
#define HASTE_LIB_CPU_BACKWARD_INL_H_
#endif

#include "lib/cpu/walk-inl.h"

HASTE_TARGET_BEGIN

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
    if (this->zoneout_) SplitZoneout(t, n, k * H + j, ds, kept);
    Cell::Backward(act_, gate, prev, ds, dpre, before);
    before[0] = this->Scaled(before[0], Row(k, n) + j);  // the cell saw h with dropout
    for (int s = 0; s < kStates; ++s) ds[s] = before[s] + kept[s];
  }

  // What went past the cell comes back past it: ds becomes the cell's part, kept the rest.
  HWY_INLINE void SplitZoneout(int64_t t, int64_t n, int64_t unit, V* ds, V* kept) const {
    V keep[kStates];
    if (config_.training) this->DrawZoneout(t, n, unit, keep);
    for (int s = 0; s < kStates; ++s) {
      const double rate = config_.zoneout[s];
      if (rate == 0) continue;
      kept[s] = config_.training ? IfPositive(keep[s], ds[s], V()) : V(rate) * ds[s];
      ds[s] = config_.training ? IfPositive(keep[s], V(), ds[s]) : V(1 - rate) * ds[s];
    }
  }

  const HasteRnnBackwardArgs& args_;
  C* packed_;           // [K, panel, G·H, unit]
  C* dpre_[2];          // [K, N, G·H] by parity of the step
  C* dstate_[kStates];  // [K, N, Hp]
};

HASTE_TARGET_END

#endif
