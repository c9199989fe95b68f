// Products by the kernels of lib/cpu/narrow: converts rows, multiplies them with packed panels.
// Per-target header.
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

#include "lib/cpu/narrow/narrow.h"
#include "lib/cpu/product/narrow_panel-inl.h"
#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

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
    row_bytes_ = ((kernel.OperandBytes(groups_) + 63) / 64 | 1) * 64;
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
    const int64_t bytes = kernel_.OperandBytes(groups_);
    if (used < bytes) memset(to + used, 0, bytes - used);
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
    if (kernel_.takes_floats) {
      float* const floats = reinterpret_cast<float*>(to);
      for (; j < depth_; j += width) Store(Storage<Bfloat16>::Rounded(at(j)), floats + j);
      return 4 * j;
    }
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
