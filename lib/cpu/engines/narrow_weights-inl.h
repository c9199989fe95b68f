// R and W as the kernels of lib/cpu/narrow multiply them: bfloat16 on a machine that has
// instructions for it, or int8. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "haste/c_api.h"
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
  // vectors: of a whole panel. packs: into the workspace, before the walk; else a panel is packed
  // where it is multiplied.
  NarrowWeights(const NarrowKernel* kernel, int64_t depth, int64_t panels, int vectors, bool packs,
                Workspace* workspace)
      : kernel_(kernel), depth_(depth), bytes_(NarrowPanel::Bytes(*kernel, depth, vectors)) {
    if (packs) packed_ = workspace->Take<char>(panels * bytes_);
  }

  // Rows for its products, which are still to be converted.
  NarrowRows Rows(int64_t rows) const { return NarrowRows(*kernel_, rows, depth_); }
  // Converted ones, with memory for `spare` panels.
  NarrowRows Rows(int64_t rows, const float* from, int64_t stride, int64_t spare = 0) const {
    return NarrowRows(*kernel_, rows, depth_, spare * bytes_, from, stride);
  }
  // From one panel to the next.
  int64_t bytes() const { return bytes_; }
  // Packs `count` panels of a lane from `panel` on. at: the lane's first panel among all. spare:
  // memory for them, unless the workspace has all.
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
    return {kernel_, depth_, vectors, packed_ == nullptr ? spare : packed_ + index * bytes_};
  }

 private:
  const NarrowKernel* kernel_ = nullptr;
  int64_t depth_ = 0, bytes_ = 0;
  char* packed_ = nullptr;
};

HASTE_TARGET_END

#endif
