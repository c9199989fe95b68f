// A step's elements in a walk that nothing interrupts: no mask, Zoneout, dropout or reserve, whole
// vectors only, one product a step, and the activations that the cell's layer has by default. All
// that does not depend on the row or the units is found once for a phase. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_PLAIN_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_PLAIN_STEP_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_PLAIN_STEP_INL_H_
#endif

#include <type_traits>

#include "lib/cells/cell.h"
#include "lib/cpu/engines/input-inl.h"
#include "lib/cpu/product/product-inl.h"
#include "lib/cpu/simd/rows-inl.h"
#include "lib/cpu/simd/simd-inl.h"

HASTE_TARGET_BEGIN

// E: the vector in which the cell is computed. What Form gave lies in panels of kUnits vectors of
// units.
template <class Cell, class T, class E, InputFrom kFrom, int kUnits>
struct PlainStep {
  using C = Compute<T>;
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;

  // Of a lane, at row 0 of the batch and unit 0. Those to scratch are valid for the rows of one
  // task (task_rows.h).
  const C* before;  // h, [N, Hp]
  C* after;
  C* state[kStates];  // the others
  T* y;
  const T* wx;      // of kWx
  const C* formed;  // of kFormed, [panel, …, N, unit vector, gate, W]
  int64_t H, Hp;
  int64_t row;    // from one row of the batch to the next, in rows of H elements
  int64_t ahead;  // to the next step, likewise
  int64_t formed_panel, formed_step;  // elements from one panel, or step, to the next

  // For products of floats, whose tiles have no registers left and call it from many places.
  HWY_NOINLINE void Apart(int64_t n, int64_t j, const Vec<C>* product) const {
    (*this)(n, j, product);
  }
  // The same of the rows of a tile, from row n on.
  template <int kRows, int kNext>
  HWY_NOINLINE void Apart(int64_t n, int64_t j, RowSums<C, kRows, kNext> products) const {
    Rows<kRows>(n, j, products);
  }

  HWY_INLINE void operator()(int64_t n, int64_t j, const Vec<C>* product) const {
    Rows<1>(n, j, RowSums<C, 1, 0>{product});
  }

 private:
  template <int kRows, class Sums>
  HWY_INLINE void Rows(int64_t n, int64_t j, Sums products) const {
    const int64_t width = Width<C>();
    OfRows<kRows> x[kGates], q[kGates], prev[kStates], kept[Cell::kKept], next[kStates];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r, ++n) {
      __builtin_prefetch(y + (n * row + ahead) * H + j, 1);
      if constexpr (kFrom == InputFrom::kFormed) {
        const int64_t unit = static_cast<uint64_t>(j) / width;
        const C* const from =
            formed + unit / kUnits * formed_panel + (n * kUnits + unit % kUnits) * kGates * width;
        for (int g = 0; g < kGates; ++g) __builtin_prefetch(from + formed_step + g * width);
        for (int g = 0; g < kGates; ++g) Row(x[g], r) = Load(from + g * width);
      } else if constexpr (kFrom == InputFrom::kWx) {
        const T* const from = wx + n * row * kGates * H + j;
        for (int g = 0; g < kGates; ++g) __builtin_prefetch(from + (ahead * kGates + g) * H);
        for (int g = 0; g < kGates; ++g) Row(x[g], r) = Storage<T>::Load(from + g * H);
      }
      // Unrolled early: of a loop that copies GCC 12 makes a memcpy of half vectors of AVX2, and a
      // load of a vector waits until both halves are stored.
#pragma GCC unroll 8
      for (int g = 0; g < kGates; ++g) {
        Row(kFrom == InputFrom::kSums ? x[g] : q[g], r) = products[r][g];
        if constexpr (kFrom == InputFrom::kSums) Row(q[g], r) = E(-0.0);
      }
      const int64_t at = n * Hp + j;
      Row(prev[0], r) = Load(before + at);
      for (int s = 1; s < kStates; ++s) Row(prev[s], r) = Load(state[s] + at);
    }
    Cell::Forward(Activations{Cell::kActivation, Cell::kRecurrentActivation}, x, q, prev, kept,
                  next);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const int64_t of = n - kRows + r, at = of * Hp + j;
      Storage<T>::Store(Row(next[0], r), y + of * row * H + j);
      Store(Row(next[0], r), after + at);
      for (int s = 1; s < kStates; ++s) Store(Row(next[s], r), state[s] + at);
    }
  }

  template <int kRows>
  using OfRows = std::conditional_t<kRows == 1, E, RowsOf<E, kRows>>;
  static HWY_INLINE E& Row(E& one, int) { return one; }
  template <int kRows>
  static HWY_INLINE E& Row(RowsOf<E, kRows>& rows, int r) {
    return rows.row[r];
  }
};

HASTE_TARGET_END

#endif
