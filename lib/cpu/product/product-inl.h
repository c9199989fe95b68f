// The micro-kernel under every matrix product of the CPU: a few rows times one packed panel,
// with all accumulators in registers. Per-target header.
//
// A panel holds `depth` rows of kVecs vectors, so that one step of the contraction is kVecs
// loads and rows × kVecs multiply-adds. A first row may come before them: the sums start from it.
//
// A single row is multiplied with a matrix that is not packed.
#if defined(HASTE_LIB_CPU_PRODUCT_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_PRODUCT_PRODUCT_INL_H_
#else
#define HASTE_LIB_CPU_PRODUCT_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// Whether tiles are made for the 32 registers of AVX-512, or for the 16 of AVX2.
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
// Rows of a tile of kVecs vectors. With four vectors (of 16 registers also with three or two), its
// sums and what one step of the contraction multiplies fill the registers.
template <int kVecs>
inline constexpr int kTileRows = kManyRegisters ? 6 : std::min(12 / kVecs, 6);
// AVX-512: a panel that exceeds the first-level cache comes from the second for each tile of rows,
// faster if its rows are asked for so many steps before. A tile of fewer rows has no load ports to
// spare.
inline constexpr int kRowsAhead = 16, kLeastRowsAhead = 4;
inline constexpr int64_t kVectorsInCache = 256;
// AVX2 alone: steps of the contraction in one iteration of the loop, and whether a use gets the
// sums of a tile's rows together. Both gain a tenth or so on a Zen 3.
inline constexpr int kStepsUnrolled = HWY_TARGET == HWY_AVX2 ? 4 : 1;
inline constexpr bool kRowsTogether = HWY_TARGET == HWY_AVX2;
// Sums that one sweep over a matrix that is not packed keeps in registers.
inline constexpr int kMostSums = kManyRegisters ? 16 : 8;

// Cache lines of E that the code after a tile's product reads or writes, in runs of kRun vectors,
// at most kRowRuns a row. The product prefetches them one by one while the memory is idle; all
// together they would wait for each other. Rows of one step are too far apart for the hardware's
// prefetcher. The few lines of a single row are prefetched immediately.
template <class E, int kRun, int kRowRuns, int kRows>
class Lines {
 public:
  // `count` runs, `stride` elements apart, the first at tensor[at].
  HWY_INLINE void Add(const void* tensor, int64_t at, int count = 1, int64_t stride = 0) {
    const E* run = static_cast<const E*>(tensor) + at;
    for (int i = 0; i < count; ++i, run += stride) {
      if constexpr (kRows > 1) {
        run_[runs_++] = run;
      } else {
        for (int v = 0; v < kRun; ++v) Ask(run, v);
      }
    }
  }
  int64_t count() const { return runs_ * kRun; }
  HWY_INLINE void Ask(int64_t i) const { Ask(run_[i / kRun], i % kRun); }

 private:
  static HWY_INLINE void Ask(const E* run, int64_t vector) {
    __builtin_prefetch(run + vector * Width<Compute<E>>(), 1);
  }

  int64_t runs_ = 0;
  const E* run_[kRows * kRowRuns];
};
struct NoLines {};

// One or several panels, `apart` elements apart, of kVecs vectors a row together.
template <class C, int kVecs, int kPanels>
struct Panels {
  static constexpr int kEach = kVecs / kPanels;
  // Vector v of row i of all of them.
  HWY_INLINE const C* Place(int64_t i, int v) const {
    return first + v / kEach * apart + (i * kEach + v % kEach) * Width<C>();
  }
  HWY_INLINE Vec<C> At(int64_t i, int v) const { return Load(Place(i, v)); }
  const C* HWY_RESTRICT first;
  int64_t apart;
};

// The vector, in a register if kKept. Else the compiler may load it again for each multiply-add. It
// is a local copy: an element of an array would be on the stack, where each step would store it.
template <bool kKept, class C>
HWY_INLINE Vec<C> InRegister(Vec<C> from) {
  auto v = from.v;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (kKept) __asm__("" : "+v"(v.raw));
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  if constexpr (kKept) __asm__("" : "+x"(v.raw));
#endif
  return Vec<C>(v);
}

// acc[r][v] += x(r) · b[v].
template <int kRows, int kVecs, class C, class Operand>
HWY_INLINE void AddOuterProduct(const Operand& x, const Vec<C> (&b)[kVecs],
                                Vec<C> (&acc)[kRows][kVecs]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Vec<C> left = x(r);
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) acc[r][v] = MulAdd(left, b[v], acc[r][v]);
  }
}

// kAhead: prefetches a row of the panels that comes later. kAcross: the elements of a column of a
// lie side by side, a_stride is from one column to the next. With 16 registers, the operands of all
// rows stay in registers, or a row of the panels, whichever are fewer.
template <bool kAhead, bool kAcross, int kRows, int kVecs, int kPanels, class C>
HWY_INLINE void TileStep(const C* HWY_RESTRICT a, int64_t a_stride,
                         const Panels<C, kVecs, kPanels>& panels, int64_t i,
                         Vec<C> (&acc)[kRows][kVecs]) {
  if constexpr (kAhead) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) __builtin_prefetch(panels.Place(i + kRowsAhead, v));
  }
  const auto operand = [&](int r) HWY_ATTR {
    const C* from = a + (kAcross ? i * a_stride + r : r * a_stride + i);
    // GCC 12 would load two steps together, and also what lies after the last one.
    if constexpr (kAcross && HWY_TARGET == HWY_SCALAR) __asm__("" : "+r"(from));
    return InRegister<!kManyRegisters>(Vec<C>(hn::Set(hn::ScalableTag<C>(), *from)));
  };
  const auto weights = [&](int v) HWY_ATTR { return InRegister<(kRows > 1)>(panels.At(i, v)); };
  if constexpr (!kManyRegisters && kRows > 1 && kRows <= kVecs) {
    Vec<C> x[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) x[r] = operand(r);
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      const Vec<C> b = weights(v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) acc[r][v] = MulAdd(x[r], b, acc[r][v]);
    }
  } else {
    Vec<C> b[kVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) b[v] = weights(v);
    AddOuterProduct(operand, b, acc);
  }
}

// acc[r][v] += Σ_i a[r][i] · panel[i][v], in the order of i for every kRows. So the grouping of
// rows and panels, and with it the number of threads, does not change a bit of the result.
template <bool kAcross = false, int kRows, int kVecs, int kPanels, class C, class AnyLines>
HWY_INLINE void TileProduct(const C* HWY_RESTRICT a, int64_t a_stride,
                            const Panels<C, kVecs, kPanels>& panels, int64_t depth,
                            const AnyLines& lines, Vec<C> (&acc)[kRows][kVecs]) {
  constexpr bool kMayAhead = kManyRegisters && kRows >= kLeastRowsAhead;
  int64_t i = 0;
  if constexpr (!std::is_same_v<AnyLines, NoLines>) {
    for (const int64_t end = std::min(depth, lines.count()); i < end; ++i) {
      lines.Ask(i);
      TileStep<kMayAhead, kAcross>(a, a_stride, panels, i, acc);
    }
    for (int64_t late = i; late < lines.count(); ++late) lines.Ask(late);
  }
  if constexpr (kMayAhead) {
    const int64_t end = depth * kVecs > kVectorsInCache ? depth : i;
    for (; i < end; ++i) TileStep<true, kAcross>(a, a_stride, panels, i, acc);
  }
#pragma GCC unroll kStepsUnrolled
  for (; i < depth; ++i) TileStep<false, kAcross>(a, a_stride, panels, i, acc);
}

// Rows of the next tile. Tiles are as even as possible, eight rows are four and four, not six and
// two: a tile of two rows spends most of its time loading the panel.
template <int kMost>
HWY_INLINE int64_t NextTile(int64_t rows) {
  const int64_t tiles = (rows + kMost - 1) / kMost;
  return (rows + tiles - 1) / tiles;
}

// Calls run with `rows`, of 1 to kMost, as a constant.
template <int kMost, class Run>
HWY_INLINE void WithRows(int64_t rows, const Run& run) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return WithRows<kMost - 1>(rows, run);
  }
  run(std::integral_constant<int, kMost>());
}

// Sums start from the panel's first row if kHasStart, else from 0.
struct FromPanel {};

struct NoPrefetch {
  template <int kRows>
  using TileLines = NoLines;
  HWY_INLINE void operator()(int64_t, NoLines*) const {}
};

// Most panels of kVecs vectors that a single row is multiplied with together.
template <int kVecs>
inline constexpr int kMostPanels = kManyRegisters || kVecs <= 3 ? 4 : 2;

// Panels to multiply together, of `left`. A tile of few rows needs more than one, or it waits for
// its own sums: a multiply-add takes four cycles, and two of them begin in each. Of 16 registers up
// to 12 are sums: four panels of three vectors for one row, two for two, two of four vectors for
// one.
template <int kVecs>
HWY_INLINE int64_t NextPanels(int64_t rows, int64_t left) {
  if (left >= 4 && (kManyRegisters ? rows == 1 : rows * kVecs <= 3)) return 4;
  return left >= 2 && (kManyRegisters ? rows <= 3 : rows * kVecs <= 6) ? 2 : 1;
}

// The sums of kRows rows, kNext vectors from those of one row to those of the next.
template <class C, int kRows, int kNext>
struct RowSums {
  HWY_INLINE const Vec<C>* operator[](int r) const { return first + r * kNext; }
  HWY_INLINE RowSums operator+(int v) const { return {first + v}; }
  const Vec<C>* first;
};

// Calls use(row, acc[row]) for `rows` rows, after the products with kPanels panels, which are
// `apart` elements apart and have kVecs vectors a row together. depth = 0 gives 0. A tile's
// sums start from what start(row, acc) sets. Before its product, meet(row, lines) adds the lines
// that use(row, …) reads and writes. If kRowsTogether, a use that takes RowSums gets those of
// a tile's rows in one call.
template <int kVecs, bool kHasStart = false, int kPanels = 1, bool kAcross = false, class C,
          class Use, class Prefetch = NoPrefetch, class Start = FromPanel>
HWY_INLINE void PanelProduct(const C* a, int64_t a_stride, int64_t rows, const C* panel,
                             int64_t depth, const Use& use, const Prefetch& meet = {},
                             int64_t apart = 0, const Start& start = {}) {
  constexpr int kMost = !kManyRegisters || kPanels == 1 ? kTileRows<kVecs> : kPanels == 2 ? 3 : 1;
  static_assert(kMost >= 1, "more vectors than sums");
  Panels<C, kVecs, kPanels> panels{panel, apart};
  Vec<C> from_panel[kVecs];
  if constexpr (kHasStart) {
    for (int v = 0; v < kVecs; ++v) from_panel[v] = panels.At(0, v);
    panels.first += panels.kEach * Width<C>();
  }
  int64_t row = 0;
  const auto tile = [&](auto count) HWY_ATTR {
    constexpr int kRows = decltype(count)::value;
    Vec<C> acc[kRows][kVecs];
    if constexpr (std::is_same_v<Start, FromPanel>) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < kVecs; ++v) acc[r][v] = from_panel[v];
      }
    } else {
      start(row, acc);
    }
    typename Prefetch::template TileLines<kRows> lines;
    for (int r = 0; r < kRows; ++r) meet(row + r, &lines);
    const C* const first = a + row * (kAcross ? 1 : a_stride);
    TileProduct<kAcross>(first, a_stride, panels, depth, lines, acc);
    using Sums = RowSums<C, kRows, kVecs>;
    constexpr bool kTogether = [] {
      if constexpr (kRowsTogether && kRows > 1) {
        return std::is_invocable_v<const Use&, int64_t, Sums>;
      }
      return false;
    }();
    if constexpr (kTogether) {
      // A copy, as the compiler would keep sums that are passed on in memory during the product.
      Vec<C> sums[kRows][kVecs];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < kVecs; ++v) sums[r][v] = acc[r][v];
      }
      use(row, Sums{sums[0]});
    } else {
      for (int r = 0; r < kRows; ++r) use(row + r, acc[r]);
    }
    row += kRows;
  };
  while (row < rows) WithRows<kMost>(NextTile<kMost>(rows - row), tile);
}

// One row times a matrix that is not packed.
//
// sums[v][r] += Σ_i a[i] · b[i·row + r·run + v·W …], in the order of i. So the bits are those of
// the product with a packed panel. Reads whole vectors.
template <int kVectors, int kRuns, class T, class C = Compute<T>>
HWY_INLINE void RowProduct(const C* HWY_RESTRICT a, int64_t depth, const T* HWY_RESTRICT b,
                           int64_t row, int64_t run, Vec<C> (&sums)[kVectors][kRuns]) {
  for (int64_t i = 0; i < depth; ++i, b += row) {
    const Vec<C> x(hn::Set(hn::ScalableTag<C>(), a[i]));
    // Run by run, as the vectors of one lie side by side.
#pragma GCC unroll 8
    for (int r = 0; r < kRuns; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums[v][r] = MulAdd(x, Storage<T>::Load(b + r * run + v * Width<C>()), sums[v][r]);
      }
    }
  }
}

HASTE_TARGET_END

#endif
