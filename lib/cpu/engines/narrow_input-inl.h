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
              const NarrowKernel* kernel, const PackPlace& place)
      : config_(config), layer_(kernel == nullptr ? nullptr : layer), kernel_(kernel) {
    if (!*this) return;
    const int64_t W = Width<float>();
    panels_ = (config.hidden + kUnits * W - 1) / (kUnits * W);
    weights_ = NarrowWeights(kernel, layer->features, config.lanes * panels_, kCount * kUnits,
                             place.kept || NarrowWeights::PackBefore(config.batch, config.time),
                             place.memory);
    packs_ = weights_.before() && !place.filled;
  }

  explicit operator bool() const { return layer_ != nullptr; }
  int64_t panels() const { return panels_; }  // of a lane

  // Whether Pack is to be called, for each lane and panel.
  bool packs() const { return packs_; }
  void Pack(int64_t k, int64_t panel) const {
    if (!packs_ || panel % NarrowWeights::kTogether != 0) return;
    const int64_t some = std::min(NarrowWeights::kTogether, panels_ - panel);
    weights_.Pack(Gates(k), k * panels_, panel, some);
  }

  // Steps to compute together, in scratch of `rows` rows: enough to read a panel of W rarely, and
  // few enough that the scratch stays in the cache beside R.
  static int64_t Steps(int64_t rows, int64_t time) {
    constexpr int64_t kRows = 96;
    return std::min(std::max(kRows / rows, int64_t{1}), time);
  }

  // The sums of `panels` for `steps` steps of the walk over lane k from `first` on go to
  // to(panel, step - first, n): [unit vector, gate, W]. rows_of_step: that a
  // step's sums have room for.
  template <class To>
  void Multiply(int64_t k, Range panels, Range rows, int64_t rows_of_step, int64_t first,
                int64_t steps, const To& to) const {
    const bool reverse = config_.reverse != nullptr && config_.reverse[k];
    const int64_t C = layer_->features, next = reverse ? -C : C, W = Width<float>();
    const int64_t t = reverse ? config_.time - 1 - first : first;
    const int64_t of_step = rows.end - rows.begin;
    NarrowRows operand = weights_.Rows(of_step * steps);
    for (int64_t s = 0, row = 0; s < steps; ++s) {
      const T* x =
          static_cast<const T*>(layer_->x) + (rows.begin * config_.time + t) * C + s * next;
      for (int64_t n = 0; n < of_step; ++n, ++row, x += config_.time * C) {
        operand.Convert(row, [&](int64_t j) HWY_ATTR { return LoadPart(x + j, C - j); });
      }
    }
    // The kernel stores sums in place, if it can. Its stores are to the second-level cache, and go
    // on while it multiplies. Rows of all steps lie together if there is no room between them.
    const int64_t run = of_step == rows_of_step ? of_step * steps : of_step;
    if (run >= kRun) {
      panels.begin = weights_.template MultiplyTo<kCount, kUnits>(
          Gates(k), k * panels_, panels.begin, panels.end, operand, run,
          [&](int64_t panel, int64_t i) { return to(panel, i, rows.begin); });
    }
    // A panel's rows come in their order, so that each is found from the one before.
    const int64_t of_row = kCount * kUnits * W;
    float *step = nullptr, *at = nullptr;
    int64_t left = 0, apart = 0;
    weights_.template Multiply<kCount, kUnits>(
        Gates(k), k * panels_, panels.begin, panels.end, operand,
        [&](int64_t row, int64_t j, const Vec<float>* sums) HWY_ATTR {
          const int64_t unit = static_cast<uint64_t>(j) / W;
          if (row == 0) {
            step = at = to(unit / kUnits, 0, rows.begin);
            apart = steps > 1 ? to(unit / kUnits, 1, rows.begin) - step : 0;
            left = of_step;
          } else if (unit % kUnits == 0) {
            if (--left > 0) {
              at += of_row;
            } else {
              at = step += apart;
              left = of_step;
            }
          }
          float* const of_unit = at + unit % kUnits * kCount * W;
          for (int g = 0; g < kCount; ++g) Store(sums[g], of_unit + g * W);
        });
  }

 private:
  // Rows from which on a call of the kernel of their own pays off.
  static constexpr int64_t kRun = 4;

  NarrowGates<T> Gates(int64_t k) const {
    const int64_t H = config_.hidden, at = (k * kGates + kFirst) * H;
    const int64_t bytes = kernel_->type == Narrow::kInt8 ? 1 : sizeof(T);
    const T* b = static_cast<const T*>(layer_->b);
    return {static_cast<const char*>(layer_->W) + at * bytes,
            config_.lanes * kGates * H,
            kCount,
            kUnits,
            H,
            layer_->W_scale == nullptr ? nullptr : layer_->W_scale + at,
            b == nullptr ? nullptr : b + at};
  }

  const HasteRnnConfig& config_;
  const HasteLayerForwardArgs* const layer_;
  const NarrowKernel* const kernel_;
  bool packs_ = false;
  int64_t panels_ = 0;
  NarrowWeights weights_;
};

HASTE_TARGET_END

#endif
