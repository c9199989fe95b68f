// One phase of a step (lib/cuda/cell/phase_forward.cuh, lib/cuda/cell/phase_backward.cuh) in one
// kernel: the product with R, then the cell, in the block that has the sums. Operands are
// double-buffered, so a launch is the only barrier between blocks.
//
// Before WaitForPreviousKernel a kernel reads only what no step writes. From a tensor that is
// overwritten in place (wx by the gates, the gates by dwx) it reads only its own time step, and
// there only the gates that its own phase or a later one overwrites.
#pragma once

#include "lib/cuda/cell/cell_step.cuh"
#include "lib/cuda/cell/phase_backward.cuh"
#include "lib/cuda/cell/phase_forward.cuh"
#include "lib/cuda/cell/step_params.cuh"
#include "lib/cuda/ptx/async.cuh"
#include "lib/cuda/stepwise/fma_product.cuh"

namespace haste {

extern __shared__ __align__(16) unsigned char stepwise_shared[];

// A block's share of one phase, step after step.
template <class Phase, int kRows>
class PhaseRun {
  using Params = typename Phase::Params;
  using T = typename Params::Storage;
  using C = Compute<T>;

 public:
  HASTE_DEVICE explicit PhaseRun(const Params& p)
      : p_(p),
        block_(p.tiling),
        product_(p.tiling,
                 p.b + (block_.lane * p.tiling.unit_tiles + block_.unit_tile) *
                           p.tiling.padded_depth() * p.tiling.block_columns(),
                 reinterpret_cast<C*>(stepwise_shared)),
        leads_(threadIdx.x % p.tiling.sum_lanes == 0),
        mine_index_(threadIdx.x / p.tiling.sum_lanes),
        mine_(p, block_, mine_index_),
        reverse_(p.reverse[block_.lane] != 0) {}

  // Reads what no step writes: R, and into `mine` the data of this thread's first element.
  HASTE_DEVICE void Begin(int64_t step, Phase* mine) {
    if (Phase::HasProduct(p_, step)) product_.Prefetch();
    if (leads_) mine->Load(p_, mine_, At(mine_, step));
  }

  // more: this kernel goes on to the next step and reads ahead for it. Otherwise the next kernel
  // does that itself, as it starts early enough.
  HASTE_DEVICE void Finish(int64_t step, bool more, Phase* mine) {
    const int lanes = p_.tiling.sum_lanes;
    const int elements = p_.tiling.block_rows() * p_.tiling.units;
    const bool multiplies = Phase::HasProduct(p_, step);
    if (leads_ && mine_.exists) {
      mine->LoadCarried(p_, mine_);
      if (more) Phase::Prefetch(p_, mine_, At(mine_, step + Phase::kStride));
    }
    if (multiplies) {
      product_.Multiply(Operand(p_, step + Phase::kOperandOf, block_.lane, 0) + block_.row,
                        p_.tiling.padded_rows());
    }
    __syncthreads();
    for (int first_of_round = 0; first_of_round < elements;
         first_of_round += kStepThreads / lanes) {
      const BlockElement e(p_, block_, min(first_of_round + mine_index_, elements - 1));
      C sums[Phase::kSums] = {};
      if (multiplies) product_.Sum(e.row, e.unit * Phase::kSums, sums);
      if (!leads_ || !e.exists || first_of_round + mine_index_ >= elements) continue;
      if (first_of_round > 0) {
        mine->Load(p_, e, At(e, step));
        mine->LoadCarried(p_, e);
      }
      const StepAt at = At(e, step);
      mine->Step(p_, e, at, sums);
      mine->Write(p_, e, at);
    }
  }

 private:
  HASTE_DEVICE StepAt At(const Element& e, int64_t step) const {
    return StepAt(p_, e, Phase::kAllGates, reverse_, step);
  }

  const Params& p_;
  const BlockPlace block_;
  StepProduct<T, kRows, Phase::kColumns> product_;
  // Of the threads that share an element, the first runs the cell on it.
  const bool leads_;
  const int mine_index_;
  const BlockElement mine_;
  const bool reverse_;
};

// `count` steps of the walk from `first` on. More than one only if a block owns its lane.
template <class Phase, int kRows>
__global__ void __launch_bounds__(kStepThreads, 2)
    Steps(const __grid_constant__ typename Phase::Params p, const WalkStep from, int64_t count) {
  const int64_t first = from.Get();
  PhaseRun<Phase, kRows> run(p);
  int64_t step = first;
  for (int64_t left = count; left > 0; --left, step += Phase::kStride) {
    Phase mine;
    run.Begin(step, &mine);
    if (step == first) {
      WaitForPreviousKernel();
      LetNextKernelStart();
    }
    run.Finish(step, left > 1, &mine);
    if (count > 1) __syncthreads();  // all states are written; all sums have been read
  }
}

// The same for steps of two phases, where a block owns its lane in both. Each step makes its
// PhaseRuns anew: two that live for all steps need more registers than there are.
template <class First, class Second, int kRows>
__global__ void __launch_bounds__(kStepThreads, 2)
    StepsOfTwo(const __grid_constant__ typename First::Params p,
               const __grid_constant__ typename Second::Params q, int64_t first, int64_t count) {
  int64_t step = first;
  for (int64_t left = count; left > 0; --left, step += First::kStride) {
    PhaseRun<First, kRows> run(p);
    First mine;
    run.Begin(step, &mine);
    run.Finish(step, left > 1, &mine);
    __syncthreads();
    if (step < 0) return;  // backward has stored the gradients of the initial states
    PhaseRun<Second, kRows> then(q);
    Second rest;
    then.Begin(step, &rest);
    then.Finish(step, left > 1, &rest);
    __syncthreads();
  }
}

}  // namespace haste
