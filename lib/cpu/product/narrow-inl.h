// Products by the kernels of lib/cpu/narrow: packs a matrix, converts rows, multiplies. Per-target
// header.
//
// What is rounded: a bfloat16 operand is the nearest bfloat16, as the reserve stores it. An int8
// operand is quantised by rows: with m the largest |a| of the row, a·(127/m), rounded to the
// nearest even, and the sum counts m/127. A row with an infinity or a NaN counts NaN, so all its
// products are NaN; one whose m is below 2^-120 counts as 0.
#if defined(HASTE_LIB_CPU_PRODUCT_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_PRODUCT_NARROW_INL_H_
#else
#define HASTE_LIB_CPU_PRODUCT_NARROW_INL_H_
#endif

#include <string.h>

#include <algorithm>
#include <cmath>

#include "lib/base/workspace.h"
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
  // Whether the columns that lie `elements` behind these are all there.
  bool Whole(int64_t elements) const {
    for (int v = 0; v < vectors; ++v) {
      if (vector[v].count - elements < Width<float>()) return false;
    }
    return true;
  }
  NarrowColumns Behind(int64_t elements) const {
    NarrowColumns behind;
    for (int v = 0; v < vectors; ++v) {
      behind.Add(vector[v].at + elements, vector[v].count - elements);
    }
    return behind;
  }
};

// E: uint8_t or uint16_t, which has the bits of a weight. Rows of the matrix are `row` elements
// apart.
template <class E>
void PackNarrow(const NarrowKernel& kernel, const E* from, int64_t row, int64_t depth,
                const NarrowColumns& columns, void* panel) {
  constexpr int kGroup = 4 / sizeof(E);
  const int64_t width = Width<float>(), groups = kernel.Groups(depth);
  E* to = static_cast<E*>(panel);
  for (int64_t i = 0; i < groups * kGroup; i += kGroup) {
    for (int v = 0; v < columns.vectors; ++v, to += kGroup * width) {
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
  // behind those of the one before.
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
      const NarrowColumns of_panel = columns.Behind(p * next);
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

// What the sums of a product are, if that is known where it is compiled.
enum { kAnySums, kFloatSums, kInt8Sums };

// Rows converted for a kernel, and their products. Its memory is the thread's: one object at a
// time.
class NarrowRows {
  using V = Vec<float>;
  static constexpr int64_t kTile = 16;  // AMX reads whole tiles of rows

 public:
  // Panels that a single row can be multiplied with before their sums are used.
  static constexpr int64_t kPanels = 4;

  // spare: bytes for a panel that is packed just before it is multiplied. Convert each row, and
  // then multiply.
  NarrowRows(const NarrowKernel& kernel, int64_t rows, int64_t depth, int64_t spare = 0)
      : kernel_(kernel), rows_(rows), depth_(depth), groups_(kernel.Groups(depth)) {
    // An odd number of cache lines, so that the rows of a tile do not meet in one set of the cache.
    row_bytes_ = ((groups_ * 4 + 63) / 64 | 1) * 64;
    const int64_t operand = (rows + kTile - 1) / kTile * kTile * row_bytes_;
    const int64_t scales = (rows * 4 + 63) / 64 * 64;
    const int64_t sums = (kNarrowRows + kPanels - 1) * kMaxVectors * kernel.width * 4;
    operand_ = static_cast<char*>(NarrowScratch(operand + scales + sums + spare));
    scales_ = reinterpret_cast<float*>(operand_ + operand);
    sums_ = operand_ + operand + scales;
    spare_ = sums_ + sums;
    if (kernel.enter != nullptr && rows > 0) kernel.enter(rows);
  }
  // Of rows of floats, `stride` elements apart, which it converts.
  NarrowRows(const NarrowKernel& kernel, int64_t rows, int64_t depth, int64_t spare,
             const float* from, int64_t stride)
      : NarrowRows(kernel, rows, depth, spare) {
    for (int64_t row = 0; row < rows_; ++row, from += stride) {
      Convert(row, [&](int64_t j) HWY_ATTR { return LoadPart(from + j, depth_ - j); });
    }
  }
  ~NarrowRows() {
    if (kernel_.leave != nullptr) kernel_.leave();
  }
  NarrowRows(const NarrowRows&) = delete;
  NarrowRows& operator=(const NarrowRows&) = delete;

  int64_t count() const { return rows_; }
  char* spare() const { return spare_; }

  // at(j): elements j, j + 1, … of the row, and 0 from the depth on.
  template <class At>
  HWY_INLINE void Convert(int64_t row, const At& at) {
    char* to = operand_ + row * row_bytes_;
    const int64_t used = kernel_.type == Narrow::kInt8 ? Quantize(row, at, to) : Round(at, to);
    if (used < groups_ * 4) memset(to + used, 0, groups_ * 4 - used);
  }
  // The products of a row with the panel's columns, a vector at a time.
  template <int kType>
  class SumsOf {
   public:
    HWY_INLINE V operator[](int v) const {
      const hn::ScalableTag<float> d;
      const int64_t at = v * Width<float>();
      if (kType == kFloatSums || (kType == kAnySums && scale_ == nullptr)) {
        return Load(static_cast<const float*>(sums_) + at);
      }
      const hn::RebindToSigned<decltype(d)> di;
      const V sum(hn::ConvertTo(d, hn::LoadU(di, static_cast<const int32_t*>(sums_) + at)));
      return sum * V(hn::Set(d, row_scale_)) * Load(scale_ + at);
    }

   private:
    friend class NarrowRows;
    const void* sums_;
    float row_scale_;
    const float* scale_;  // nullptr: the sums are floats
  };
  using Sums = SumsOf<kAnySums>;

  // Whether a single row can be multiplied with a matrix as it is.
  bool TakesRow() const { return rows_ == 1 && kernel_.multiply_row != nullptr; }
  // Calls use(v, sums) for the vectors of kRowColumns columns of an int8 matrix, whose rows are
  // `row` elements apart.
  template <class Use>
  HWY_INLINE void MultiplyRow(const void* from, int64_t row, const float* scales,
                              const Use& use) const {
    alignas(64) int32_t products[kRowColumns];
    kernel_.multiply_row({operand_, from, row, depth_, products});
    Sums sums;
    sums.sums_ = products;
    sums.row_scale_ = scales_[0];
    sums.scale_ = scales;
    for (int v = 0; v < kRowColumns / kernel_.width; ++v) use(v, sums);
  }

  // Calls use(row, sums) for each row.
  template <int kType = kAnySums, class Use>
  HWY_INLINE void Multiply(const NarrowPanel& panel, const Use& use) const {
    const bool int8 = kernel_.type == Narrow::kInt8;
    const int64_t of_row = int64_t{panel.vectors} * kernel_.width * 4;
    SumsOf<kType> sums;
    sums.scale_ = int8 ? panel.scale() : nullptr;
    for (int64_t row = 0; row < rows_; row += kNarrowRows) {
      const int64_t some = std::min(kNarrowRows, rows_ - row);
      Product(panel, row, some, sums_);
      for (int64_t r = 0; r < some; ++r) {
        sums.sums_ = sums_ + r * of_row;
        sums.row_scale_ = int8 ? scales_[row + r] : 0;
        use(row + r, sums);
      }
    }
  }

  // The products of `count` rows from `row` on with the panel, and its bias if `biased`, go to
  // `to`: [count, vectors, W]. Only if the kernel adds_bias.
  void MultiplyTo(const NarrowPanel& panel, int64_t row, int64_t count, bool biased,
                  float* to) const {
    const float* const bias = biased ? panel.bias() : nullptr;
    for (const int64_t end = row + count; row < end; row += kNarrowRows) {
      const int64_t some = std::min(kNarrowRows, end - row);
      kernel_.multiply({operand_ + row * row_bytes_, row_bytes_, some, groups_, panel.memory,
                        panel.vectors, nullptr, to, bias});
      to += some * panel.vectors * kernel_.width;
    }
  }

  // The products of a single row, in two parts. The sums of panel i of kPanels are there until
  // those of one up to i are made anew.
  HWY_INLINE void MultiplyRow(const NarrowPanel& panel, int64_t i) const {
    Product(panel, 0, 1, SumsOfPanel(i));
  }
  template <int kType>
  HWY_INLINE SumsOf<kType> SumsOfRow(const NarrowPanel& panel, int64_t i) const {
    const bool int8 = kernel_.type == Narrow::kInt8;
    SumsOf<kType> sums;
    sums.sums_ = SumsOfPanel(i);
    sums.row_scale_ = int8 ? scales_[0] : 0;
    sums.scale_ = int8 ? panel.scale() : nullptr;
    return sums;
  }

 private:
  char* SumsOfPanel(int64_t i) const { return sums_ + i * kMaxVectors * kernel_.width * 4; }
  HWY_INLINE void Product(const NarrowPanel& panel, int64_t row, int64_t rows, char* to) const {
    const bool int8 = kernel_.type == Narrow::kInt8;
    kernel_.multiply({operand_ + row * row_bytes_, row_bytes_, rows, groups_, panel.memory,
                      panel.vectors, int8 ? panel.start() : nullptr, to});
  }

  // These return how many bytes of the row they have written.
  template <class At>
  HWY_INLINE int64_t Round(const At& at, char* to) const {
    const int64_t width = Width<float>();
    int64_t j = 0;
    for (; j < depth_; j += width) {
      Storage<Bfloat16>::Store(at(j), reinterpret_cast<Bfloat16*>(to) + j);
    }
    return 2 * j;
  }

  template <class At>
  HWY_INLINE int64_t Quantize(int64_t row, const At& at, char* to) {
    const hn::ScalableTag<float> d;
    const hn::RebindToSigned<decltype(d)> di;
    const int64_t width = Width<float>();
    // As integers, so that an infinity is above all numbers and a NaN above that.
    auto most = hn::Zero(di);
    for (int64_t j = 0; j < depth_; j += width) {
      most = hn::Max(most, hn::BitCast(di, Abs(at(j)).v));
    }
    const int32_t bits = hn::GetLane(hn::MaxOfLanes(di, most));
    float m;
    memcpy(&m, &bits, sizeof m);
    constexpr float kLeast = 0x1p-120f;
    if (!(m >= kLeast) || !std::isfinite(m)) {
      scales_[row] = std::isfinite(m) ? 0.0f : NAN;
      memset(to, 128, depth_);
      return depth_;
    }
    scales_[row] = m / 127;
    const V inverse(hn::Set(d, 127 / m));
    const hn::Rebind<uint8_t, decltype(d)> du8;
    int64_t j = 0;
    for (; j < depth_; j += width) {
      const auto q = hn::NearestInt((at(j) * inverse).v);
      hn::StoreU(hn::DemoteTo(du8, hn::Add(q, hn::Set(di, 128))), du8,
                 reinterpret_cast<uint8_t*>(to) + j);
    }
    return std::min(j, depth_);
  }

  const NarrowKernel& kernel_;
  const int64_t rows_, depth_, groups_;
  int64_t row_bytes_;
  char* operand_;  // [rows, row_bytes]
  float* scales_;  // [rows] m / 127
  char* sums_;     // [kNarrowRows, vectors, W], from each of kPanels on
  char* spare_;
};

HASTE_TARGET_END

#endif
