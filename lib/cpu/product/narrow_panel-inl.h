// Weights for the kernels of lib/cpu/narrow: a matrix is packed into panels. Per-target header.
#if defined(HASTE_LIB_CPU_PRODUCT_NARROW_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_PRODUCT_NARROW_PANEL_INL_H_
#else
#define HASTE_LIB_CPU_PRODUCT_NARROW_PANEL_INL_H_
#endif

#include <string.h>

#include <algorithm>

#include "lib/cpu/narrow/narrow.h"
#include "lib/cpu/product/pack-inl.h"
#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// to[u][r] = rows[r][u] for the columns u of a vector.
template <class E>
HWY_INLINE void InterleaveRows(const E* const* rows, E* to) {
  constexpr int kGroup = 4 / sizeof(E);
  const int64_t width = Width<float>();
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kLanes = 16 / sizeof(E);
  if (width >= kLanes) {
    const hn::FixedTag<E, kLanes> d;
    for (int64_t u = 0; u < width; u += kLanes, to += kGroup * kLanes) {
      const auto load = [&](int r) HWY_ATTR { return hn::LoadU(d, rows[r] + u); };
      if constexpr (kGroup == 2) {
        hn::StoreU(hn::InterleaveLower(d, load(0), load(1)), d, to);
        hn::StoreU(hn::InterleaveUpper(d, load(0), load(1)), d, to + kLanes);
      } else {
        const hn::Repartition<uint16_t, decltype(d)> d16;
        const auto store = [&](auto first, auto second, int half) HWY_ATTR {
          const auto a = hn::BitCast(d16, first), b = hn::BitCast(d16, second);
          hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d16, a, b)), d, to + 2 * half * kLanes);
          hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d16, a, b)), d,
                     to + (2 * half + 1) * kLanes);
        };
        store(hn::InterleaveLower(d, load(0), load(1)), hn::InterleaveLower(d, load(2), load(3)),
              0);
        store(hn::InterleaveUpper(d, load(0), load(1)), hn::InterleaveUpper(d, load(2), load(3)),
              1);
      }
    }
    return;
  }
#endif
  for (int64_t u = 0; u < width; ++u) {
    for (int r = 0; r < kGroup; ++r) to[u * kGroup + r] = rows[r][u];
  }
}

// The columns of a panel's vectors: `count` of a row of the matrix from element `at` on. Those
// beyond the count are 0.
struct NarrowColumns {
  int vectors = 0;
  struct {
    int64_t at, count;
  } vector[kMaxVectors];
  void Add(int64_t at, int64_t count) { vector[vectors++] = {at, count}; }
  // Whether the columns that lie `elements` after these are all there.
  bool Whole(int64_t elements) const {
    for (int v = 0; v < vectors; ++v) {
      if (vector[v].count - elements < Width<float>()) return false;
    }
    return true;
  }
  NarrowColumns After(int64_t elements) const {
    NarrowColumns after;
    for (int v = 0; v < vectors; ++v) {
      after.Add(vector[v].at + elements, vector[v].count - elements);
    }
    return after;
  }
};

// E: uint8_t or uint16_t, which has the bits of a weight. Rows of the matrix are `row` elements
// apart.
template <class E>
void PackNarrow(const NarrowKernel& kernel, const E* from, int64_t row, int64_t depth,
                const NarrowColumns& columns, void* panel) {
  constexpr int kGroup = 4 / sizeof(E);
  const int64_t width = Width<float>(), groups = kernel.Groups(depth);
  const int64_t next = kernel.At(0, 1, columns.vectors) / sizeof(E);
  for (int64_t i = 0; i < groups * kGroup; i += kGroup) {
    E* to = static_cast<E*>(panel) + kernel.At(i / kGroup, 0, columns.vectors) / sizeof(E);
    for (int v = 0; v < columns.vectors; ++v, to += next) {
      const int64_t at = columns.vector[v].at;
      const int64_t count = std::clamp<int64_t>(columns.vector[v].count, 0, width);
      const E* rows[kGroup];
      if (HWY_LIKELY(count == width && i + kGroup <= depth)) {
        for (int r = 0; r < kGroup; ++r) rows[r] = from + (i + r) * row + at;
        InterleaveRows(rows, to);
      } else {
        E part[kGroup][HWY_MAX_BYTES / sizeof(float)] = {};
        for (int r = 0; r < kGroup; ++r) {
          if (i + r < depth) std::copy_n(from + (i + r) * row + at, count, part[r]);
          rows[r] = part[r];
        }
        InterleaveRows(rows, to);
      }
    }
  }
}

// One packed panel: weights, then rows of what belongs to its columns.
struct NarrowPanel {
  const NarrowKernel* kernel;
  int64_t depth;
  int vectors;
  char* memory;

  // Bytes with `vectors` vectors. rows: those after the weights.
  static int64_t Bytes(const NarrowKernel& kernel, int64_t depth, int64_t vectors) {
    return kernel.PanelBytes(depth, vectors) + kRows * vectors * kernel.width * 4;
  }
  int32_t* start() const { return reinterpret_cast<int32_t*>(Row(0)); }
  float* scale() const { return reinterpret_cast<float*>(Row(1)); }
  float* bias() const { return reinterpret_cast<float*>(Row(2)); }

  // T: of the bias, which may be nullptr: zeros. scale: of int8 weights. Elements of either stand
  // where those of a row of the matrix do.
  template <class T>
  void Pack(const void* from, int64_t row, const NarrowColumns& columns, const float* scales,
            const T* biases) {
    vectors = columns.vectors;
    PackPanels(*this, 1, 0, 0, from, row, columns, scales, biases);
  }
  // The same of `panels` panels, `apart` bytes apart, each with columns that lie `next` elements
  // after those of the one before.
  template <class T>
  static void PackPanels(const NarrowPanel& first, int64_t panels, int64_t next, int64_t apart,
                         const void* from, int64_t row, const NarrowColumns& columns,
                         const float* scales, const T* biases) {
    const NarrowKernel& kernel = *first.kernel;
    const bool int8 = kernel.type == Narrow::kInt8;
    const int64_t bytes = int8 ? 1 : 2, groups = kernel.Groups(first.depth);
    const bool together = kernel.pack != nullptr && columns.Whole((panels - 1) * next);
    if (together) {
      NarrowSource source{from, row * bytes, first.depth,  columns.vectors,
                          {},   panels,      next * bytes, apart};
      for (int v = 0; v < columns.vectors; ++v) source.at[v] = columns.vector[v].at * bytes;
      kernel.pack(source, groups, first.memory, first.start());
    }
    for (int64_t p = 0; p < panels; ++p) {
      const NarrowPanel to{&kernel, first.depth, columns.vectors, first.memory + p * apart};
      const NarrowColumns of_panel = columns.After(p * next);
      if (!together && int8) {
        PackNarrow(kernel, static_cast<const uint8_t*>(from), row, to.depth, of_panel, to.memory);
        NarrowStart(kernel, to.memory, groups, to.vectors, to.start());
      } else if (!together) {
        PackNarrow(kernel, static_cast<const uint16_t*>(from), row, to.depth, of_panel, to.memory);
      }
      if (int8) PackRow(scales, of_panel, to.scale());
      to.SetBias(biases, of_panel);
    }
  }
  template <class T>
  void SetBias(const T* biases, const NarrowColumns& columns) const {
    PackRow(biases, columns, bias());
  }

 private:
  static constexpr int kRows = 3;
  char* Row(int i) const {
    return memory + kernel->PanelBytes(depth, vectors) + i * int64_t{vectors} * kernel->width * 4;
  }
  template <class T>
  static void PackRow(const T* from, const NarrowColumns& columns, float* to) {
    for (int v = 0; v < columns.vectors; ++v, to += Width<float>()) {
      const auto& part = columns.vector[v];
      Store(
          from == nullptr || part.count <= 0 ? Vec<float>() : LoadPart(from + part.at, part.count),
          to);
    }
  }
};

// A panel of a bfloat16 matrix transposed: rows first, first + 1, … of a matrix of `rows` rows,
// `stride` elements apart, as columns. Two elements of a row are one of a group.
inline void PackNarrowTransposed(const uint16_t* from, int64_t rows, int64_t stride, int64_t first,
                                 int64_t depth, const NarrowPanel& panel) {
  const NarrowKernel& kernel = *panel.kernel;
  const int64_t width = Width<float>(), columns = panel.vectors * width;
  const int64_t pairs = depth / 2, groups = kernel.Groups(depth);
  const auto at = [&](int64_t group, int64_t v) {
    return reinterpret_cast<float*>(panel.memory + kernel.At(group, v, panel.vectors));
  };
  int64_t done = 0;
  if (stride % 2 == 0 && reinterpret_cast<uintptr_t>(from) % sizeof(float) == 0) {
    const float* const of_pairs = reinterpret_cast<const float*>(from);
    // Columns and groups that lie as in a matrix.
    const int64_t across = kernel.block == 1 ? columns : width;
    const int64_t down = kernel.block == 1 ? pairs : kernel.block;
    for (; done < pairs; done += down) {
      for (int64_t u = 0; u < columns; u += across) {
        PackTransposed(of_pairs + done, rows, stride / 2, first + u, std::min(down, pairs - done),
                       across, at(done, u / width));
      }
    }
    done = pairs;
  }
  for (int64_t i = done; i < groups; ++i) {
    int64_t row = first;
    for (int v = 0; v < panel.vectors; ++v) {
      float* const to = at(i, v);
      for (int64_t u = 0; u < width; ++u, ++row) {
        uint16_t pair[2] = {};
        for (int64_t e = 0; e < 2 && row < rows && 2 * i + e < depth; ++e) {
          pair[e] = from[row * stride + 2 * i + e];
        }
        memcpy(to + u, pair, sizeof pair);
      }
    }
  }
  std::fill_n(panel.bias(), columns, 0.0f);
}

HASTE_TARGET_END

#endif
