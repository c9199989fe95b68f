// Forward through time. Per-target header; lib/cpu/walk-inl.h says how R lies.
#if defined(HASTE_LIB_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_FORWARD_INL_H_
#else
#define HASTE_LIB_CPU_FORWARD_INL_H_
#endif

#include "lib/cpu/walk-inl.h"

HASTE_TARGET_BEGIN

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
    const int64_t ahead = this->RowAhead(k, n, t);
    Base::template Ahead<T>(args_.wx, ahead * kGates * H + j, kGates, H);
    Base::template Ahead<T>(args_.y, ahead * H + j, 1, 0);
    // The states that the step before left, and as the cell sees them: h with dropout.
    V prev[kStates], entering[kStates], next[kStates], gate[kGates];
    prev[0] = Load(h_[step & 1] + at);
    for (int s = 1; s < kStates; ++s) prev[s] = entering[s] = Load(state_[s] + at);
    entering[0] = this->dropout_ ? Load(operand_[step & 1] + at) : prev[0];
    V y;
    if (this->Live(n, t)) {
      V x[kGates];
      const T* wx = static_cast<const T*>(args_.wx) + step_row * kGates * H + j;
      for (int g = 0; g < kGates; ++g) x[g] = LoadPart(wx + g * H, count);
      Cell::Forward(act_, x, q, entering, gate, next);
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
        StorePart(entering[s], static_cast<T*>(args_.states[s]) + step_row * H + j, count);
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
        const double rate = config_.zoneout[s];
        if (rate > 0) next[s] = MulAdd(V(rate), prev[s], V(1 - rate) * next[s]);
      }
    }
  }

  const HasteRnnForwardArgs& args_;
  C* packed_;               // [K, panel, H, unit vector, gate, W]
  C* h_[2];                 // [K, N, Hp] by parity of the step
  C* operand_[2];           // the same, as it enters the product
  C* state_[kStates] = {};  // [K, N, Hp] the other states
};

HASTE_TARGET_END

#endif
