// What the kernels of the `stepwise` engine ask of a cell (lib/cells/cell.h), as constants that
// device code may use: it has no static arrays of a struct.
#ifndef HASTE_LIB_CUDA_STEPWISE_CELL_CUH_
#define HASTE_LIB_CUDA_STEPWISE_CELL_CUH_

#include "lib/cells/cells.h"
#include "lib/cuda/stepwise_params.cuh"

namespace haste {

// Columns of the product of a thread: in forward the gates of as many units as make four.
constexpr int ForwardColumns(int gates) { return gates >= 3 ? gates : 4; }
constexpr int kBackwardColumns = 4;

template <class Cell>
constexpr uint32_t ReadStates() {
  uint32_t bits = 0;
  for (int s = 0; s < Cell::kStates; ++s) bits |= Cell::kReadsState[s] ? 1u << s : 0u;
  return bits;
}
// Bit s: the reserve has state s as it enters a step.
template <class Cell>
constexpr uint32_t kReadStates = ReadStates<Cell>();
template <class Cell>
constexpr int kSavedStates = SavedStates<Cell>();

template <class Cell>
__device__ __forceinline__ bool ReadsState(int s) {
  return kReadStates<Cell> >> s & 1;
}
// Which of `saved` state s is.
template <class Cell>
__device__ __forceinline__ int SavedAt(int s) {
  return __popc(kReadStates<Cell> & ((1u << s) - 1));
}

// Which of `extra` the bias of h·R is: those of layer normalisation come before it.
template <class Cell>
constexpr int kRecurrentBiasAt = (Cell::kNormalizes ? 1 : 0) + (Cell::kNormalizesState > 0 ? 2 : 0);

// Calls run(act) with the kernel's activations, known at compile time if they are the defaults of
// the cell's layer: then nothing branches, and the gates of an element are computed side by side.
template <class Cell, class Run>
__device__ __forceinline__ void WithActivations(const Activations& act, const Run& run) {
  constexpr int32_t kRecurrent = Cell::kExponential ? HASTE_EXPONENTIAL : HASTE_SIGMOID;
  if (act.candidate == HASTE_TANH && act.recurrent == kRecurrent) {
    run(Activations{HASTE_TANH, kRecurrent});
  } else {
    run(act);
  }
}

// Gates [kFirst, kEnd) of a step to the reserve. row: of the step, in [N, T, K].
template <class Cell, int kFirst, int kEnd, class T>
__device__ __forceinline__ void KeepGates(const ForwardParams<T>& p, const Element& e, int64_t row,
                                          const Compute<T> (&kept)[Cell::kKept]) {
  T* gates = static_cast<T*>(p.args.gates) + row * Cell::kGates * p.H + e.j;
#pragma unroll
  for (int g = kFirst; g < kEnd; ++g) gates[g * p.H] = FromCompute<T>(kept[g]);
}

// The other tensors of the reserve: states as they enter the step, and what else the cell keeps.
template <class Cell, class T>
__device__ __forceinline__ void KeepSaved(const ForwardParams<T>& p, const Element& e, int64_t row,
                                          const Compute<T> (&before)[Cell::kStates],
                                          const Compute<T> (&kept)[Cell::kKept]) {
  const int64_t at = row * p.H + e.j;
#pragma unroll
  for (int s = 0; s < Cell::kStates; ++s) {
    if (ReadsState<Cell>(s)) {
      static_cast<T*>(p.args.saved[SavedAt<Cell>(s)])[at] = FromCompute<T>(before[s]);
    }
  }
#pragma unroll
  for (int i = Cell::kGates; i < Cell::kKept; ++i) {
    static_cast<T*>(p.args.saved[kSavedStates<Cell> + i - Cell::kGates])[at] =
        FromCompute<T>(kept[i]);
  }
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_STEPWISE_CELL_CUH_
