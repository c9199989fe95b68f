// R as the kernels of lib/cpu/narrow multiply it: bfloat16 on a machine that has instructions for
// it, or int8. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_
#endif

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

// The panels of one product of a step, of all lanes.
class NarrowWeights {
 public:
  NarrowWeights() = default;
  // vectors: of a whole panel. packs: into the workspace, before the walk; else a panel is packed
  // where it is multiplied.
  NarrowWeights(const NarrowKernel* kernel, int64_t depth, int64_t panels, int vectors, bool packs,
                Workspace* workspace)
      : kernel_(kernel), depth_(depth), bytes_(NarrowPanel::Bytes(*kernel, depth, vectors)) {
    if (packs) packed_ = workspace->Take<char>(panels * bytes_);
  }

  // Rows for its products, with memory for `spare` panels.
  NarrowRows Rows(int64_t rows, const float* from, int64_t stride, int64_t spare = 0) const {
    return NarrowRows(*kernel_, rows, depth_, spare * bytes_, from, stride);
  }
  // From one panel to the next.
  int64_t bytes() const { return bytes_; }
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
