// x·W + b of narrow weights, computed by the walk for the next few steps. They find it in the
// cache, in float32, and no tensor [N, T, K, G, H] is written and read again. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_NARROW_INPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_NARROW_INPUT_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_NARROW_INPUT_INL_H_
#endif

#include <algorithm>

#include "haste/c_api.h"
#include "lib/base/workspace.h"
#include "lib/cpu/engines/narrow_weights-inl.h"
#include "lib/cpu/engines/walk-inl.h"

HASTE_TARGET_BEGIN

// The gates [kFirst, kFirst + kCount) of kGates, in panels of kUnits vectors of hidden units.
template <class T, int kGates, int kFirst, int kCount, int kUnits>
class NarrowInput {
 public:
  // layer: nullptr if wx is given, kernel: nullptr if weights are floats; then this is unused.
  NarrowInput(const HasteRnnConfig& config, const HasteLayerForwardArgs* layer,
              const NarrowKernel* kernel, Workspace* workspace)
      : config_(config), layer_(kernel == nullptr ? nullptr : layer), kernel_(kernel) {
    if (!*this) return;
    const int64_t W = Width<float>();
    panels_ = (config.hidden + kUnits * W - 1) / (kUnits * W);
    weights_ = NarrowWeights(kernel, layer->features, config.lanes * panels_, kCount * kUnits,
                             /*packs=*/true, workspace);
  }

  explicit operator bool() const { return layer_ != nullptr; }
  int64_t panels() const { return panels_; }  // of a lane

  // Call it for each panel of each lane.
  void Pack(int64_t k, int64_t panel) const {
    if (panel % NarrowWeights::kTogether != 0) return;
    const bool int8 = kernel_->type == Narrow::kInt8;
    const int64_t H = config_.hidden, at = (k * kGates + kFirst) * H;
    const int64_t bytes = int8 ? 1 : sizeof(T);
    const T* b = static_cast<const T*>(layer_->b);
    const NarrowGates<T> gates = {static_cast<const char*>(layer_->W) + at * bytes,
                                  config_.lanes * kGates * H,
                                  kCount,
                                  kUnits,
                                  H,
                                  layer_->W_scale == nullptr ? nullptr : layer_->W_scale + at,
                                  b == nullptr ? nullptr : b + at};
    weights_.Pack(gates, k * panels_, panel, std::min(NarrowWeights::kTogether, panels_ - panel));
  }

  // Steps to compute together, in scratch of `rows` rows: enough to read a panel of W rarely, and
  // few enough that the scratch stays in the cache beside R.
  static int64_t Steps(int64_t rows, int64_t time) {
    constexpr int64_t kRows = 96;
    return std::min(std::max(kRows / rows, int64_t{1}), time);
  }

  // The sums of `panels` for `steps` steps of the walk over lane k from `first` on go to
  // to(panel, step - first, n): [unit vector, gate, W].
  template <class To>
  void Multiply(int64_t k, Range panels, Range rows, int64_t first, int64_t steps,
                const To& to) const {
    const bool reverse = config_.reverse != nullptr && config_.reverse[k];
    const int64_t C = layer_->features, next = reverse ? -C : C, W = Width<float>();
    const int64_t t = reverse ? config_.time - 1 - first : first;
    NarrowRows operand = weights_.Rows((rows.end - rows.begin) * steps);
    for (int64_t n = rows.begin, row = 0; n < rows.end; ++n) {
      const T* x = static_cast<const T*>(layer_->x) + (n * config_.time + t) * C;
      for (int64_t s = 0; s < steps; ++s, ++row, x += next) {
        operand.Convert(row, [&](int64_t j) HWY_ATTR { return LoadPart(x + j, C - j); });
      }
    }
    const int64_t vectors = (config_.hidden + W - 1) / W;  // of hidden units
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t units = std::min<int64_t>(kUnits, vectors - panel * kUnits);
      const NarrowPanel weights =
          weights_.Panel(k * panels_ + panel, static_cast<int>(units * kCount));
      int64_t n = rows.begin, s = 0;
      operand.Multiply(weights, [&](int64_t, const NarrowRows::Sums& sums) HWY_ATTR {
        float* const row = to(panel, s, n);
        for (int v = 0; v < weights.vectors; ++v) {
          Store(sums[v] + Load(weights.bias() + v * W), row + v * W);
        }
        if (++s == steps) {
          s = 0;
          ++n;
        }
      });
    }
  }

 private:
  const HasteRnnConfig& config_;
  const HasteLayerForwardArgs* const layer_;
  const NarrowKernel* const kernel_;
  int64_t panels_ = 0;
  NarrowWeights weights_;
};

HASTE_TARGET_END

#endif
