// The vector in which a cell's equations are computed, where that is another than the engine's:
// approximate activations for 16-bit tensors, as on a GPU, and for int8 weights. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_CELL_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_CELL_VECTOR_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_CELL_VECTOR_INL_H_
#endif

#include <type_traits>

#include "lib/cells/cell.h"
#include "lib/cpu/simd/approximate-inl.h"

HASTE_TARGET_BEGIN

// That of a storage type, if the weights are stored in it too.
template <class T>
using CellVec = std::conditional_t<sizeof(T) == 2, ApproximateVec, Vec<Compute<T>>>;

// Some vectors as vectors of E.
template <class E, int kCount>
struct VectorsAs {
  E v[kCount > 0 ? kCount : 1];

  template <class V>
  explicit HWY_INLINE VectorsAs(const V* from) {
#pragma GCC unroll 8  // see plain_step-inl.h
    for (int i = 0; i < kCount; ++i) v[i] = E(from[i]);
  }
  template <class V>
  HWY_INLINE void To(V* to) const {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) to[i] = v[i];
  }
};

// The functions of a cell (lib/cells/cell.h) of these names, computed in E.
template <class E, class Cell, class V>
HWY_INLINE void ForwardIn(const Activations& act, const V* x, const V* q, const V* s_prev, V* kept,
                          V* s) {
  if constexpr (std::is_same_v<E, V>) {
    Cell::Forward(act, x, q, s_prev, kept, s);
  } else {
    const VectorsAs<E, Cell::kGates> of_x(x), of_q(q);
    const VectorsAs<E, Cell::kStates> of_prev(s_prev);
    VectorsAs<E, Cell::kKept> of_kept(kept);
    VectorsAs<E, Cell::kStates> of_s(s);
    Cell::Forward(act, of_x.v, of_q.v, of_prev.v, of_kept.v, of_s.v);
    of_kept.To(kept);
    of_s.To(s);
  }
}

template <class E, class Cell, class V>
HWY_INLINE void ForwardResetIn(const Activations& act, const V* x, const V* q, const V* s_prev,
                               V* kept) {
  if constexpr (std::is_same_v<E, V>) {
    Cell::ForwardReset(act, x, q, s_prev, kept);
  } else {
    const VectorsAs<E, Cell::kGates> of_x(x);
    const VectorsAs<E, Cell::kResetGates> of_q(q);
    const VectorsAs<E, Cell::kStates> of_prev(s_prev);
    VectorsAs<E, Cell::kKept> of_kept(kept);
    Cell::ForwardReset(act, of_x.v, of_q.v, of_prev.v, of_kept.v);
    of_kept.To(kept);
  }
}

// Forward of a pooling cell.
template <class E, class Cell, class V>
HWY_INLINE void PoolingForwardIn(const Activations& act, const V* share, const V* x, const V* q,
                                 const V* s_prev, V* kept, V* s, V* y) {
  if constexpr (std::is_same_v<E, V>) {
    Cell::Forward(act, share, x, q, s_prev, kept, s, y);
  } else {
    const VectorsAs<E, Cell::kStates> of_share(share), of_prev(s_prev);
    const VectorsAs<E, Cell::kGates> of_x(x), of_q(q);
    VectorsAs<E, Cell::kKept> of_kept(kept);
    VectorsAs<E, Cell::kStates> of_s(s);
    E of_y(*y);
    Cell::Forward(act, of_share.v, of_x.v, of_q.v, of_prev.v, of_kept.v, of_s.v, &of_y);
    of_kept.To(kept);
    of_s.To(s);
    *y = of_y;
  }
}

template <class E, class Cell, class V>
HWY_INLINE V OutputIn(const Activations& act, const V* kept, V normed) {
  if constexpr (std::is_same_v<E, V>) {
    return Cell::Output(act, kept, normed);
  } else {
    const VectorsAs<E, Cell::kKept> of_kept(kept);
    return Cell::Output(act, of_kept.v, E(normed));
  }
}

HASTE_TARGET_END

#endif
