// x·W + b, computed by the walk for the next few steps, or for a tile. They find it in the cache,
// or in registers, and no tensor [N, T, K, G, H] is written and read again. Per-target header.
//
// W is packed once a call into panels like those of R: some gates of the same hidden units side by
// side, after a row of b, from which the sums start. The order of a sum does not depend on what is
// multiplied together, so the bits do not depend on the number of threads.
#if defined(HASTE_LIB_CPU_PRODUCT_PROJECTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_PRODUCT_PROJECTION_INL_H_
#else
#define HASTE_LIB_CPU_PRODUCT_PROJECTION_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "haste/c_api.h"
#include "lib/base/workspace.h"
#include "lib/cpu/product/pack-inl.h"
#include "lib/cpu/product/product-inl.h"

HASTE_TARGET_BEGIN

// Prefetches the x of the next row of the batch, which is too far away for the hardware's
// prefetcher.
struct NextRow {
  template <int kRows>
  struct TileLines {
    int64_t count() const { return lines; }
    HWY_INLINE void Ask(int64_t i) const { __builtin_prefetch(from + i * 64); }
    const char* from = nullptr;
    int64_t lines = 0;
  };
  template <class Lines>
  HWY_INLINE void operator()(int64_t row, Lines* lines) const {
    if (row != 0) return;
    lines->from = from;
    lines->lines = count;
  }

  const char* from;
  int64_t count;
};

// The gates [kFirst, kFirst + kCount) of kGates, in panels of kUnits vectors of hidden units.
template <class T, int kGates, int kFirst, int kCount, int kUnits>
class Projection {
  using C = Compute<T>;
  using V = Vec<C>;

 public:
  // x is multiplied in place.
  static constexpr bool kPossible = std::is_same_v<T, C>;
  static constexpr int kVectors = kCount * kUnits;  // of a row of a panel

  // layer: nullptr if wx is given; then this object is unused.
  Projection(const HasteRnnConfig& config, const HasteLayerForwardArgs* layer,
             const PackPlace& place)
      : config_(config), layer_(layer) {
    if (!*this) return;
    panels_ = (config.hidden + kUnits * Width<C>() - 1) / (kUnits * Width<C>());
    const bool in_place = config.batch == 1 && config.time <= kStepsInPlace &&
                          config.hidden % Width<C>() == 0 && !place.kept;
    if (in_place) return;
    packed_ = place.memory->Take<C>(config.lanes * panels_ * PanelSize());
    before_ = true;
    packs_ = !place.filled;
  }

  explicit operator bool() const { return kPossible && layer_ != nullptr; }
  int64_t panels() const { return panels_; }
  int64_t features() const { return layer_->features; }
  // Whether W is read from panels.
  bool packed() const { return before_; }
  // Whether Pack is to be called, for each lane and panel.
  bool packs() const { return packs_; }

  void Pack(int64_t k, int64_t panel) {
    if (!packs_) return;
    const int64_t H = config_.hidden, units = kUnits * Width<C>();
    const int64_t first = panel * units, end = first + units;
    const T* b = static_cast<const T*>(layer_->b);
    C* to = Panel(k, panel);
    if (b == nullptr) {
      std::fill(to, to + kVectors * Width<C>(), C(0));
      to += kVectors * Width<C>();
    } else {
      to = PackGates(b + Column(k, 0), H, kCount, first, end, to);
    }
    const T* row = Weights() + Column(k, 0);
    for (int64_t c = 0; c < layer_->features; ++c, row += RowOfW()) {
      to = PackGates(row, H, kCount, first, end, to);
    }
  }

  // to[s · stride …] = the sums of a panel, [unit vector, gate, W], for row n of the
  // batch and step first + s of the walk over lane k. follows: row n + 1 comes next.
  HWY_INLINE void Multiply(int64_t k, int64_t panel, int64_t n, int64_t first, int64_t steps,
                           bool follows, C* to, int64_t stride) const {
    if constexpr (kPossible) {
      if (!packed()) {
        for (int64_t s = 0; s < steps; ++s) {
          const auto at = [&](int64_t) { return to + s * stride; };
          MultiplyInPlace(k, panel, panel + 1, first + s, at);
        }
        return;
      }
      const int64_t features = layer_->features;
      const T* x = X(k, n, first);
      const int64_t next = Reverse(k) ? -features : features;
      const T* there = x + config_.time * features + (Reverse(k) ? (steps - 1) * next : 0);
      const int64_t bytes = steps * features * static_cast<int64_t>(sizeof(T));
      PanelProduct<kVectors, true>(
          x, next, steps, Panel(k, panel), features,
          [&](int64_t s, V(&sums)[kVectors]) HWY_ATTR {
            C* row = to + s * stride;
            for (int v = 0; v < kVectors; ++v, row += Width<C>()) Store(sums[v], row);
          },
          NextRow{reinterpret_cast<const char*>(there), follows ? (bytes + 63) / 64 : 0});
    }
  }

  // The same of the panels [begin, end) of a single row that is not packed, for one step.
  // to(panel): where its sums go.
  template <class To>
  HWY_INLINE void MultiplyInPlace(int64_t k, int64_t begin, int64_t end, int64_t step,
                                  const To& to) const {
    if constexpr (kPossible) {
      const int64_t last = std::min(config_.hidden / Width<C>(), end * kUnits);
      InPlace<kMostSums / kCount>(k, begin * kUnits, last, X(k, 0, step), to);
    }
  }

  // The sums of a tile, of one or several panels and the rows of the batch from n on, in a step of
  // the walk over lane k. Lines that a tile asks for here would put the sums into memory (GCC 12).
  template <int kRows, int kVecs>
  HWY_INLINE void StartTile(int64_t k, int64_t panel, int64_t n, int64_t step,
                            V (&sums)[kRows][kVecs]) const {
    if constexpr (kPossible) {
      const int64_t features = layer_->features;
      Panels<C, kVecs, kVecs / kVectors> weights{Panel(k, panel), PanelSize()};
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) {
        const V b = weights.At(0, v);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sums[r][v] = b;
      }
      weights.first += kVectors * Width<C>();
      TileProduct(X(k, n, step), config_.time * features, weights, features, NoLines(), sums);
    }
  }

  // Steps to compute together, in scratch of `rows` rows: enough to read a panel of W rarely.
  static int64_t Steps(int64_t rows, int64_t time) {
    constexpr int64_t kRows = 96, kTile = 6;
    return std::min(std::max(kRows / rows / kTile, int64_t{1}) * kTile, time);
  }

 private:
  // Up to this many steps of a single row W is read in place: packing costs as much as two steps.
  static constexpr int64_t kStepsInPlace = 4;

  bool Reverse(int64_t k) const { return config_.reverse != nullptr && config_.reverse[k]; }
  // The row of x that a step of the walk over lane k reads.
  const T* X(int64_t k, int64_t n, int64_t step) const {
    const int64_t t = Reverse(k) ? config_.time - 1 - step : step;
    return static_cast<const T*>(layer_->x) + (n * config_.time + t) * layer_->features;
  }
  const T* Weights() const { return static_cast<const T*>(layer_->W); }
  int64_t RowOfW() const { return config_.lanes * kGates * config_.hidden; }
  // Offset of gate kFirst + g in a row of W and in b.
  int64_t Column(int64_t k, int g) const { return (k * kGates + kFirst + g) * config_.hidden; }
  int64_t PanelSize() const { return (layer_->features + 1) * kVectors * Width<C>(); }
  C* Panel(int64_t k, int64_t panel) const { return packed_ + (k * panels_ + panel) * PanelSize(); }

  // The vectors of hidden units [unit, end), kTogether at a time.
  template <int kTogether, class To>
  HWY_INLINE void InPlace(int64_t k, int64_t unit, int64_t end, const T* x, const To& to) const {
    for (; unit + kTogether <= end; unit += kTogether) {
      const int64_t j = unit * Width<C>();
      V sums[kTogether][kCount];
      if (layer_->b != nullptr) {
        const T* b = static_cast<const T*>(layer_->b) + j;
        for (int u = 0; u < kTogether; ++u) {
          for (int g = 0; g < kCount; ++g) sums[u][g] = Load(b + Column(k, g) + u * Width<C>());
        }
      }
      RowProduct(x, layer_->features, Weights() + Column(k, 0) + j, RowOfW(), config_.hidden, sums);
      for (int u = 0; u < kTogether; ++u) {
        C* of_unit = to((unit + u) / kUnits) + (unit + u) % kUnits * kCount * Width<C>();
        for (int g = 0; g < kCount; ++g) Store(sums[u][g], of_unit + g * Width<C>());
      }
    }
    if constexpr (kTogether > 1) InPlace<kTogether / 2>(k, unit, end, x, to);
  }

  const HasteRnnConfig& config_;
  const HasteLayerForwardArgs* const layer_;
  int64_t panels_ = 0;  // of a lane
  bool before_ = false, packs_ = false;
  C* packed_ = nullptr;  // [K, panel, b and features, unit vector, gate, W]
};

HASTE_TARGET_END

#endif
