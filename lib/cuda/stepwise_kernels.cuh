// One step of the walk in one kernel: the product with R, and behind it, in the block that has
// the sums, the cell. h is double-buffered, so that a launch is the only barrier between blocks.
//
// Before WaitForPreviousKernel a kernel reads only what no step writes; of a tensor that is
// overwritten in place (wx by the gates, the gates by dwx) it reads its own time step.
#ifndef HASTE_LIB_CUDA_STEPWISE_KERNELS_CUH_
#define HASTE_LIB_CUDA_STEPWISE_KERNELS_CUH_

#include "lib/cuda/async.cuh"
#include "lib/cuda/product.cuh"
#include "lib/cuda/stepwise_params.cuh"

namespace haste {

// Columns of the product of a thread: in forward all gates of as many units as make four.
template <class Cell>
constexpr int kForwardColumns = Cell::kGates >= 3 ? Cell::kGates : 4;
constexpr int kBackwardColumns = 4;

extern __shared__ __align__(16) unsigned char stepwise_shared[];

// Calls run(act) with the kernel's activations, known at compile time if they are Keras's defaults:
// then nothing branches, and the gates of an element are computed side by side.
template <class Run>
__device__ __forceinline__ void WithActivations(const Activations& act, const Run& run) {
  if (act.candidate == HASTE_TANH && act.recurrent == HASTE_SIGMOID) {
    run(Activations{HASTE_TANH, HASTE_SIGMOID});
  } else {
    run(act);
  }
}

// What one element reads of the caller's tensors: loaded before the product, used after it.
template <class Cell, class T>
struct ForwardInputs {
  T x[Cell::kGates];
  bool live;

  __device__ void Load(const ForwardParams<T>& p, const Element& e, int64_t t) {
    live = e.exists && IsLive(p, e.n, t);
    if (!live) return;
    const T* wx = static_cast<const T*>(p.args.wx) +
                  ((e.n * p.T_ + t) * p.K + e.k) * Cell::kGates * p.H + e.j;
#pragma unroll
    for (int g = 0; g < Cell::kGates; ++g) x[g] = wx[g * p.H];
  }

  static __device__ void Prefetch(const ForwardParams<T>& p, const Element& e, int64_t t) {
    const T* wx = static_cast<const T*>(p.args.wx) +
                  ((e.n * p.T_ + t) * p.K + e.k) * Cell::kGates * p.H + e.j;
#pragma unroll
    for (int g = 0; g < Cell::kGates; ++g) PrefetchL2(wx + g * p.H);
  }
};

// q: [kGates] products of h with R.
template <class Cell, class T>
__device__ void ForwardElement(const ForwardParams<T>& p, const Element& e, bool reverse,
                               int64_t step, const ForwardInputs<Cell, T>& in,
                               const Compute<T> (&prev)[Cell::kStates], Compute<T> entering,
                               const Compute<T> (&q)[Cell::kGates]) {
  using C = Compute<T>;
  constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  const int64_t t = TimeOf(p, reverse, step);
  const int64_t step_row = (e.n * p.T_ + t) * p.K + e.k;
  C gate[kGates] = {}, next[kStates], before[kStates];
#pragma unroll
  for (int s = 0; s < kStates; ++s) before[s] = s == 0 ? entering : prev[s];
  C y = 0;
  if (in.live) {
    C x[kGates];
#pragma unroll
    for (int g = 0; g < kGates; ++g) x[g] = ToCompute(in.x[g]);
    WithActivations(p.act,
                    [&](const Activations& act) { Cell::Forward(act, x, q, before, gate, next); });
    if (p.zoneout) {
      C share[kStates];
      ZoneoutShares(p, e, t, share);
      // Selected where a state is wholly kept or new: the other may be infinite.
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        if (share[s] == C(1)) {
          next[s] = prev[s];
        } else if (share[s] != C(0)) {
          next[s] = MulAdd(share[s], prev[s] - next[s], next[s]);
        }
      }
    }
    y = next[0];
  } else {
#pragma unroll
    for (int s = 0; s < kStates; ++s) next[s] = prev[s];
    if (Repeats(p, reverse, e.n, step)) y = prev[0];
  }
  if (p.args.gates != nullptr) {
    T* gates = static_cast<T*>(p.args.gates) + step_row * kGates * p.H + e.j;
#pragma unroll
    for (int g = 0; g < kGates; ++g) gates[g * p.H] = FromCompute<T>(gate[g]);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      static_cast<T*>(p.args.states[s])[step_row * p.H + e.j] = FromCompute<T>(before[s]);
    }
  }
  static_cast<T*>(p.args.y)[step_row * p.H + e.j] = FromCompute<T>(y);
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    p.carried[s][e.at] = next[s];
    if (step == p.T_ - 1 && p.args.sT[s] != nullptr) {
      static_cast<T*>(p.args.sT[s])[e.at] = FromCompute<T>(next[s]);
    }
  }
  Operand(p, step + 1, e.k, e.j)[e.n] = next[0] * DropScale(p, e);
}

// Steps [first, first + count) of the walk; more than one only if a block owns its lane.
template <class Cell, class T, int kRows>
__global__ void __launch_bounds__(kStepThreads, 2)
    ForwardSteps(const __grid_constant__ ForwardParams<T> p, int64_t first, int64_t count) {
  using C = Compute<T>;
  constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  const Tiling& tile = p.tiling;
  const BlockPlace block(tile);
  const T* b = p.b + (block.lane * tile.unit_tiles + block.unit_tile) * tile.padded_depth() *
                         tile.block_columns();
  StepProduct<T, kRows, kForwardColumns<Cell>> product(tile, b,
                                                       reinterpret_cast<C*>(stepwise_shared));
  // Of the threads that share an element, the first has it.
  const int lanes = tile.sum_lanes;
  const int elements = tile.block_rows() * tile.units;
  const bool leads = threadIdx.x % lanes == 0;
  const int mine_index = threadIdx.x / lanes;
  const Element mine(p, block, mine_index);
  const bool reverse = p.reverse[block.lane] != 0;
  for (int64_t step = first; step < first + count; ++step) {
    const int64_t t = TimeOf(p, reverse, step);
    product.Prefetch();
    ForwardInputs<Cell, T> in;
    if (leads) in.Load(p, mine, t);
    if (step == first) {
      WaitForPreviousKernel();
      LetNextKernelStart();
    }
    C prev[kStates] = {}, entering = 0;
    const auto load_states = [&](const Element& e) {
      for (int s = 0; s < kStates; ++s) prev[s] = p.carried[s][e.at];
      entering = p.dropout_rate == 0.0f ? prev[0] : Operand(p, step, e.k, e.j)[e.n];
    };
    if (leads && mine.exists) {
      load_states(mine);
      // A kernel of one step starts early enough to read these itself.
      if (step + 1 < first + count) {
        ForwardInputs<Cell, T>::Prefetch(p, mine, TimeOf(p, reverse, step + 1));
      }
    }
    product.Multiply(Operand(p, step, block.lane, 0) + block.row, tile.padded_rows());
    __syncthreads();
    for (int first_of_round = 0; first_of_round < elements;
         first_of_round += kStepThreads / lanes) {
      const Element e(p, block, min(first_of_round + mine_index, elements - 1));
      C q[kGates];
      product.Sum(e.row, e.unit * kGates, q);
      if (!leads || !e.exists || first_of_round + mine_index >= elements) continue;
      if (first_of_round > 0) {
        in.Load(p, e, t);
        load_states(e);
      }
      ForwardElement<Cell, T>(p, e, reverse, step, in, prev, entering, q);
    }
    if (count > 1) __syncthreads();  // the states are there for all; the sums have been read
  }
}

template <class Cell, class T>
struct BackwardInputs {
  T gate[Cell::kGates], state[Cell::kStates], dy;
  bool live;

  __device__ void Load(const BackwardParams<T>& p, const Element& e, bool reverse, int64_t step) {
    live = false;
    dy = FromCompute<T>(0);
    if (!e.exists || step < 0) return;
    const int64_t t = TimeOf(p, reverse, step);
    const int64_t step_row = (e.n * p.T_ + t) * p.K + e.k;
    live = IsLive(p, e.n, t);
    // y of a masked step is the y before it, so its gradient belongs to that state.
    if (p.args.dy != nullptr && (live || Repeats(p, reverse, e.n, step))) {
      dy = static_cast<const T*>(p.args.dy)[step_row * p.H + e.j];
    }
    if (!live) return;
    const T* gates = static_cast<const T*>(p.args.gates) + step_row * Cell::kGates * p.H + e.j;
#pragma unroll
    for (int g = 0; g < Cell::kGates; ++g) gate[g] = gates[g * p.H];
#pragma unroll
    for (int s = 0; s < Cell::kStates; ++s) {
      state[s] = static_cast<const T*>(p.args.states[s])[step_row * p.H + e.j];
    }
  }

  static __device__ void Prefetch(const BackwardParams<T>& p, const Element& e, int64_t t) {
    const int64_t step_row = (e.n * p.T_ + t) * p.K + e.k;
    const T* gates = static_cast<const T*>(p.args.gates) + step_row * Cell::kGates * p.H + e.j;
#pragma unroll
    for (int g = 0; g < Cell::kGates; ++g) PrefetchL2(gates + g * p.H);
#pragma unroll
    for (int s = 0; s < Cell::kStates; ++s) {
      PrefetchL2(static_cast<const T*>(p.args.states[s]) + step_row * p.H + e.j);
    }
    if (p.args.dy != nullptr) PrefetchL2(static_cast<const T*>(p.args.dy) + step_row * p.H + e.j);
  }
};

// ds: gradients of the states leaving the step, without what `product` (of the gates' gradients
// with Rᵀ, one step later) adds to h's. Step -1 leaves the gradients of the initial states.
template <class Cell, class T>
__device__ void BackwardElement(const BackwardParams<T>& p, const Element& e, bool reverse,
                                int64_t step, const BackwardInputs<Cell, T>& in,
                                Compute<T> (&ds)[Cell::kStates], Compute<T> product) {
  using C = Compute<T>;
  constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  const C scale = DropScale(p, e);
  ds[0] = MulAdd(product, scale, ds[0]);
  if (step < 0) {
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (p.args.ds0[s] != nullptr) static_cast<T*>(p.args.ds0[s])[e.at] = FromCompute<T>(ds[s]);
    }
    return;
  }
  const int64_t t = TimeOf(p, reverse, step);
  const int64_t step_row = (e.n * p.T_ + t) * p.K + e.k;
  ds[0] += ToCompute(in.dy);
  C dpre[kGates] = {};
  if (in.live) {
    C gate[kGates], prev[kStates], past[kStates] = {}, before[kStates];
#pragma unroll
    for (int g = 0; g < kGates; ++g) gate[g] = ToCompute(in.gate[g]);
#pragma unroll
    for (int s = 0; s < kStates; ++s) prev[s] = ToCompute(in.state[s]);
    if (p.zoneout) {
      C share[kStates];
      ZoneoutShares(p, e, t, share);
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        // What went past the cell comes back past it.
        past[s] = share[s] == C(0) ? C(0) : ds[s] * share[s];
        ds[s] = share[s] == C(1) ? C(0) : ds[s] - past[s];
      }
    }
    WithActivations(
        p.act, [&](const Activations& act) { Cell::Backward(act, gate, prev, ds, dpre, before); });
#pragma unroll
    for (int s = 0; s < kStates; ++s) ds[s] = MulAdd(before[s], s == 0 ? scale : C(1), past[s]);
  }
  T* dwx = static_cast<T*>(p.args.dwx) + step_row * kGates * p.H + e.j;
#pragma unroll
  for (int g = 0; g < kGates; ++g) {
    dwx[g * p.H] = FromCompute<T>(dpre[g]);
    Operand(p, step, e.k, g * p.H + e.j)[e.n] = dpre[g];
  }
#pragma unroll
  for (int s = 0; s < kStates; ++s) p.carried[s][e.at] = ds[s];
}

// Steps first, first - 1, … (count of them), down to -1; more than one only if a block owns its
// lane.
template <class Cell, class T, int kRows>
__global__ void __launch_bounds__(kStepThreads, 2)
    BackwardSteps(const __grid_constant__ BackwardParams<T> p, int64_t first, int64_t count) {
  using C = Compute<T>;
  constexpr int kStates = Cell::kStates;
  const Tiling& tile = p.tiling;
  const BlockPlace block(tile);
  const T* b = p.b + (block.lane * tile.unit_tiles + block.unit_tile) * tile.padded_depth() *
                         tile.block_columns();
  StepProduct<T, kRows, kBackwardColumns> product(tile, b, reinterpret_cast<C*>(stepwise_shared));
  // Of the threads that share an element, the first has it.
  const int lanes = tile.sum_lanes;
  const int elements = tile.block_rows() * tile.units;
  const bool leads = threadIdx.x % lanes == 0;
  const int mine_index = threadIdx.x / lanes;
  const Element mine(p, block, mine_index);
  const bool reverse = p.reverse[block.lane] != 0;
  for (int64_t step = first; step > first - count; --step) {
    const bool last = step == p.T_ - 1;  // of the walk: nothing comes back from later steps
    if (!last) product.Prefetch();
    BackwardInputs<Cell, T> in;
    if (leads) in.Load(p, mine, reverse, step);
    if (step == first) {
      WaitForPreviousKernel();
      LetNextKernelStart();
    }
    C ds[kStates] = {};
    const auto load_gradients = [&](const Element& e) {
      for (int s = 0; s < kStates; ++s) ds[s] = p.carried[s][e.at];
    };
    if (leads && mine.exists) {
      load_gradients(mine);
      if (step > 0 && step - 1 > first - count) {
        BackwardInputs<Cell, T>::Prefetch(p, mine, TimeOf(p, reverse, step - 1));
      }
    }
    if (!last)
      product.Multiply(Operand(p, step + 1, block.lane, 0) + block.row, tile.padded_rows());
    __syncthreads();
    for (int first_of_round = 0; first_of_round < elements;
         first_of_round += kStepThreads / lanes) {
      const Element e(p, block, min(first_of_round + mine_index, elements - 1));
      C dh[1] = {};
      if (!last) product.Sum(e.row, e.unit, dh);
      if (!leads || !e.exists || first_of_round + mine_index >= elements) continue;
      if (first_of_round > 0) {
        in.Load(p, e, reverse, step);
        load_gradients(e);
      }
      BackwardElement<Cell, T>(p, e, reverse, step, in, ds, dh[0]);
    }
    if (count > 1) __syncthreads();
  }
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_STEPWISE_KERNELS_CUH_
