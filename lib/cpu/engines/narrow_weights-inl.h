// R and W as the kernels of lib/cpu/narrow multiply them: bfloat16 where there is one for it, or
// int8. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "haste/c_api.h"
#include "lib/base/workspace.h"
#include "lib/cpu/product/narrow-inl.h"

HASTE_TARGET_BEGIN

// The kernel of a walk over states of T; nullptr: it multiplies floats.
template <class T>
const NarrowKernel* NarrowOf(const HasteRnnConfig& config) {
  if constexpr (std::is_same_v<T, double>) return nullptr;
  const int64_t width = Width<float>();
  if (config.weights_dtype == HASTE_INT8) return FindNarrow(Narrow::kInt8, width);
  return std::is_same_v<T, Bfloat16> ? FindNarrow(Narrow::kBfloat16, width) : nullptr;
}

// Some gates of one lane, H columns each, side by side in a matrix.
template <class T>
struct NarrowGates {
  const void* from;  // the first column
  int64_t row;       // elements from one row of the matrix to the next
  int gates;
  int units;  // vectors of hidden units of a panel
  int64_t H;
  const float* scales;  // of int8; these and biases as the columns lie
  const T* biases;      // nullptr: zeros
};

// The panels of one product of a step, of all lanes. A panel has all gates of some hidden units:
// [unit vector, gate, W].
class NarrowWeights {
 public:
  // Panels to pack with one call: side by side, they share the cache lines of a row.
  static constexpr int64_t kTogether = 4;

  NarrowWeights() = default;
  // vectors: of a whole panel. before: all are packed into `memory`, before the walk; else a panel
  // is packed where it is multiplied.
  NarrowWeights(const NarrowKernel* kernel, int64_t depth, int64_t panels, int vectors, bool before,
                Workspace* memory)
      : kernel_(kernel),
        depth_(depth),
        bytes_(NarrowPanel::Bytes(*kernel, depth, vectors)),
        before_(before) {
    if (before) packed_ = memory->Take<char>(panels * bytes_);
  }
  // Whether that pays off for a walk over so many rows and steps, after which the pack is dropped.
  static bool PackBefore(int64_t rows, int64_t steps) { return steps > 1 || rows >= 16; }
  bool before() const { return before_; }

  // Rows for its products, which are still to be converted.
  NarrowRows Rows(int64_t rows) const { return NarrowRows(*kernel_, rows, depth_, Spare()); }
  // Converted ones.
  NarrowRows Rows(int64_t rows, const float* from, int64_t stride) const {
    return NarrowRows(*kernel_, rows, depth_, Spare(), from, stride);
  }
  // Packs `count` panels of a lane from `panel` on. at: the lane's first panel among all. spare:
  // memory for them, unless they are packed before.
  template <class T>
  void Pack(const NarrowGates<T>& of, int64_t at, int64_t panel, int64_t count,
            char* spare = nullptr) const {
    const int64_t W = Width<float>(), units = of.units * W, first = panel * units;
    const int64_t end = (of.H + W - 1) / W * W;
    if (count > 1 && first + count * units > end) {  // the last one has fewer vectors
      Pack(of, at, panel, count - 1, spare);
      if (spare != nullptr) spare += (count - 1) * bytes_;
      return Pack(of, at, panel + count - 1, 1, spare);
    }
    NarrowColumns columns;
    for (int64_t j = first; j < std::min(end, first + units); j += W) {
      for (int g = 0; g < of.gates; ++g) columns.Add(g * of.H + j, of.H - j);
    }
    NarrowPanel::PackPanels(Panel(at + panel, columns.vectors, spare), count, units, bytes_,
                            of.from, of.row, columns, of.scales, of.biases);
  }
  // Panel `index` of all, if it was packed; else one in `spare` that is to be packed.
  NarrowPanel Panel(int64_t index, int vectors, char* spare = nullptr) const {
    return {kernel_, depth_, vectors, before_ ? packed_ + index * bytes_ : spare};
  }

  // Calls use(row, j, sums) for each row of `rows` and each vector of units from j on, of the
  // panels [begin, end) of a lane: the products with all its gates, and their biases. at: as in
  // Pack. kGates, kUnits: those of `of`. kType: what the sums are. backwards: from the last panel
  // on, if all were packed before. kOneRow: then there is a single row.
  template <int kGates, int kUnits, int kType = kAnySums, bool kOneRow = false, class T, class Use>
  HWY_INLINE void Multiply(const NarrowGates<T>& of, int64_t at, int64_t begin, int64_t end,
                           const NarrowRows& rows, const Use& use, bool backwards = false) const {
    if constexpr (kOneRow) {
      return MultiplyRow<kGates, kUnits, kType>(of, at, begin, end, rows, use, backwards);
    }
    const int64_t W = Width<float>();
    int64_t first = begin;
    if (!before_ && rows.TakesRow()) {
      constexpr int64_t kPanels = kMaxVectors / kUnits;
      for (; first + kPanels <= end && (first + kPanels) * kUnits * W <= of.H; first += kPanels) {
        MultiplyInPlace<kGates>(of, first * kUnits * W, rows, use);
      }
    }
    for (int64_t i = first; i < end; ++i) {
      const int64_t panel = backwards && before_ ? first + end - 1 - i : i;
      const int64_t j = panel * kUnits * W, spared = (panel - first) % kTogether;
      const int units = static_cast<int>(std::min<int64_t>(kUnits, (of.H - j + W - 1) / W));
      if (!before_ && spared == 0) {
        Pack(of, 0, panel, std::min(kTogether, end - panel), rows.spare());
      }
      const NarrowPanel weights = Panel(at + panel, units * kGates, rows.spare() + spared * bytes_);
      // What a row's stores may change, as the compiler has to assume, is found before them.
      const float* const bias = of.biases == nullptr ? nullptr : weights.bias();
      rows.template Multiply<kType>(
          weights, [&, units, bias](int64_t row, const NarrowRows::SumsOf<kType>& sums)
                       HASTE_INLINED { UseUnits<kGates, kUnits>(units, bias, sums, row, j, use); });
    }
  }

  // The sums and biases of panels [begin, end) of a lane, of each `run` of rows one after the
  // other, go to to(panel, run): [row, unit vector, gate, W]. Returns the first panel that is still
  // to be multiplied otherwise.
  template <int kGates, int kUnits, class T, class To>
  int64_t MultiplyTo(const NarrowGates<T>& of, int64_t at, int64_t begin, int64_t end,
                     const NarrowRows& rows, int64_t run, const To& to) const {
    const int64_t units = kUnits * Width<float>();
    int64_t panel = begin;
    if (!before_ || !kernel_->adds_bias) return panel;
    for (; panel < end; ++panel) {
      if (kUnits > 1 && (panel + 1) * units > of.H) break;  // it may have fewer vectors
      const NarrowPanel weights = Panel(at + panel, kUnits * kGates);
      for (int64_t row = 0; row < rows.count(); row += run) {
        rows.MultiplyTo(weights, row, run, of.biases != nullptr, to(panel, row / run));
      }
    }
    return panel;
  }

 private:
  int64_t Spare() const { return before_ ? 0 : kTogether * bytes_; }

  // Calls use(row, j, sums with bias) for the vectors of units of a panel, of which j is the first.
  template <int kGates, int kUnits, class Sums, class Use>
  static HWY_INLINE void UseUnits(int units, const float* bias, const Sums& sums, int64_t row,
                                  int64_t j, const Use& use) {
    const int64_t W = Width<float>();
    for (int u = 0; u < (kUnits == 1 ? 1 : units); ++u) {
      Vec<float> q[kGates];
      for (int g = 0; g < kGates; ++g) {
        const int v = u * kGates + g;
        q[g] = sums[v];
        if (bias != nullptr) q[g] = q[g] + Load(bias + v * W);
      }
      use(row, j + u * W, q);
    }
  }

  // Multiply of a single row, if all panels were packed before: several panels, then what is done
  // with their sums, so that the chains of operations of these overlap.
  template <int kGates, int kUnits, int kType, class T, class Use>
  HWY_INLINE void MultiplyRow(const NarrowGates<T>& of, int64_t at, int64_t begin, int64_t end,
                              const NarrowRows& row, const Use& use, bool backwards) const {
    constexpr int64_t kPanels = NarrowRows::kPanels;
    const int64_t W = Width<float>();
    for (int64_t i = begin; i < end; i += kPanels) {
      const int64_t some = std::min(kPanels, end - i);
      const auto panel_of = [&](int64_t p) { return backwards ? begin + end - 1 - i - p : i + p; };
      const auto units_of = [&](int64_t p) {
        const int64_t left = of.H - panel_of(p) * kUnits * W;
        return static_cast<int>(std::min<int64_t>(kUnits, (left + W - 1) / W));
      };
      NarrowPanel weights[kPanels];
      for (int64_t p = 0; p < some; ++p) {
        weights[p] = Panel(at + panel_of(p), units_of(p) * kGates);
        row.MultiplyRow(weights[p], p);
      }
      for (int64_t p = 0; p < some; ++p) {
        const float* const bias = of.biases == nullptr ? nullptr : weights[p].bias();
        UseUnits<kGates, kUnits>(units_of(p), bias, row.template SumsOfRow<kType>(weights[p], p), 0,
                                 panel_of(p) * kUnits * W, use);
      }
    }
  }

  // Multiply of a single row, for kRowColumns units from `first` on, with the matrix as it lies.
  template <int kGates, class T, class Use>
  HWY_INLINE void MultiplyInPlace(const NarrowGates<T>& of, int64_t first, const NarrowRows& row,
                                  const Use& use) const {
    const int64_t W = Width<float>();
    Vec<float> q[kMaxVectors][kGates];
    for (int g = 0; g < kGates; ++g) {
      const int64_t at = g * of.H + first;
      // A layer without features may have no scales.
      const float* const scales = of.scales == nullptr ? nullptr : of.scales + at;
      row.MultiplyRow(static_cast<const char*>(of.from) + at, of.row, scales,
                      [&](int v, const NarrowRows::Sums& sums) HWY_ATTR {
                        q[v][g] = sums[v];
                        if (of.biases == nullptr) return;
                        q[v][g] = q[v][g] + Storage<T>::Load(of.biases + at + v * W);
                      });
    }
    for (int v = 0; v < kMaxVectors; ++v) use(0, first + v * W, q[v]);
  }

  const NarrowKernel* kernel_ = nullptr;
  int64_t depth_ = 0, bytes_ = 0;
  bool before_ = false;
  char* packed_ = nullptr;
};

HASTE_TARGET_END

#endif
