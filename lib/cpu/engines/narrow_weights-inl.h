// R as the kernels of lib/cpu/narrow multiply it: bfloat16 on a machine that has instructions for
// it, or int8. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_NARROW_WEIGHTS_INL_H_
#endif

#include <string.h>

#include <algorithm>
#include <type_traits>

#include "haste/c_api.h"
#include "lib/cpu/product/narrow-inl.h"
#include "lib/cpu/product/pack-inl.h"

HASTE_TARGET_BEGIN

// The kernel of a walk over states of T; nullptr: it multiplies floats.
template <class T>
const NarrowKernel* NarrowOf(const HasteRnnConfig& config) {
  if constexpr (std::is_same_v<T, double>) return nullptr;
  const int64_t width = Width<float>();
  if (config.weights_dtype == HASTE_INT8) return FindNarrow(Narrow::kInt8, width);
  return std::is_same_v<T, Bfloat16> ? FindNarrow(Narrow::kBfloat16, width) : nullptr;
}

// A panel of bfloat16 Rᵀ: rows first, first + 1, … of a matrix of `rows` rows, `stride` elements
// apart, as columns. Two elements of a row are one of a group.
inline void PackNarrowTransposed(const uint16_t* from, int64_t rows, int64_t stride, int64_t first,
                                 int64_t depth, const NarrowPanel& panel) {
  const int64_t columns = int64_t{panel.vectors} * Width<float>();
  const int64_t pairs = depth / 2, groups = panel.kernel->Groups(depth);
  float* to = reinterpret_cast<float*>(panel.memory);
  int64_t done = 0;
  if (stride % 2 == 0 && reinterpret_cast<uintptr_t>(from) % sizeof(float) == 0) {
    PackTransposed(reinterpret_cast<const float*>(from), rows, stride / 2, first, pairs, columns,
                   to);
    done = pairs;
  }
  for (int64_t i = done; i < groups; ++i) {
    for (int64_t u = 0; u < columns; ++u) {
      uint16_t pair[2] = {};
      for (int64_t e = 0; e < 2 && first + u < rows && 2 * i + e < depth; ++e) {
        pair[e] = from[(first + u) * stride + 2 * i + e];
      }
      memcpy(to + i * columns + u, pair, sizeof pair);
    }
  }
  std::fill_n(panel.bias(), columns, 0.0f);
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

  // Rows for its products.
  NarrowRows Rows(int64_t rows, const float* from, int64_t stride) const {
    return NarrowRows(*kernel_, rows, depth_, bytes_, from, stride);
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
