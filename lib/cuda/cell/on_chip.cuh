// Shared by the engines that keep R on the chip for all steps: parameters, and prefetch of inputs.
#pragma once

#include <type_traits>

#include "lib/base/workspace.h"
#include "lib/cells/info.h"
#include "lib/cuda/cell/params.cuh"
#include "lib/cuda/cell/prepare.cuh"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ptx/async.cuh"
#include "lib/plan/plan.h"

namespace haste {

// Whether a kernel has code for this architecture: its tensor-core instructions need 8.0, clusters
// need 9.0.
constexpr bool HasOnChipCode([[maybe_unused]] bool clusters) {
#if defined(__CUDA_ARCH__)
  return __CUDA_ARCH__ >= (clusters ? 900 : 800);
#else
  return true;
#endif
}

template <class T, class A>
struct OnChipParams : RecurrenceParams<T> {
  using Args = A;
  Args args;
  uint32_t directions[kMaxOnChipLanes / 32];

  HASTE_DEVICE bool IsReverse(int k) const { return (directions[k / 32] >> (k % 32) & 1) != 0; }
};

// Prefetches into L2 what a block's units will read from a tensor [N, T, K, kTerms, H] some steps
// later. Each thread prefetches a piece of one row and one of the kTerms.
template <class T, int kTerms>
class Prefetcher {
  static constexpr int kPiece = 64 / sizeof(T);

 public:
  // row, unit: the block's first; rows, units: how many. time: the first to prefetch; up: the walk
  // goes on to later ones.
  template <class Params>
  HASTE_DEVICE Prefetcher(const Params& p, const void* tensor, int64_t row, int rows, int64_t k,
                          int64_t unit, int units, int64_t time, bool up)
      : rows_left_(0) {
    if (tensor == nullptr) return;
    const int pieces = (units + kPiece - 1) / kPiece;
    const int part = threadIdx.x / pieces % kTerms, mine = threadIdx.x / pieces / kTerms;
    unit += threadIdx.x % pieces * kPiece;
    if (mine >= rows || unit >= p.H) return;
    const int64_t stride = p.K * kTerms * p.H;
    rows_left_ = static_cast<int>(min(p.N - row - mine, int64_t{1} << 30));
    from_ = static_cast<const T*>(tensor) + ((row + mine) * p.T_ + time) * stride +
            (k * kTerms + part) * p.H + unit;
    stride_ = up ? stride : -stride;
    pass_stride_ = rows * p.T_ * stride;
  }
  // first_row: the pass's first row in the group.
  HASTE_DEVICE void Ask(int pass, int first_row) const {
    if (first_row < rows_left_) PrefetchL2(from_ + pass * pass_stride_);
  }
  HASTE_DEVICE void Advance() { from_ += stride_; }

 private:
  const T* from_ = nullptr;
  int64_t stride_ = 0, pass_stride_ = 0;
  int rows_left_;
};

// --- Host code

// T itself if it has 16 bits; else the type that multiplies as scaled float16.
template <class T>
using ScaledStorage =
    std::conditional_t<sizeof(T) == 2, T, Scaled<std::is_same_v<T, float> ? 2 : 1>>;

// Calls run with a pointer to the type as which a forward walk multiplies T. It has the split terms
// that PlanRecurrence counts.
template <class T, class Run>
auto WithForwardStorage(const HasteRnnConfig& config, const HasteCellInfo& cell, const Run& run) {
  if constexpr (sizeof(T) == 2) {
    return run(static_cast<T*>(nullptr));
  } else {
    return HasBoundedStates(config, cell) ? run(static_cast<ScaledStorage<T>*>(nullptr))
                                          : run(static_cast<float*>(nullptr));
  }
}

template <class Cell, class Params>
void FillOnChip(const HasteRnnConfig& config, const typename Params::Args& args,
                Workspace* workspace, Params* p) {
  FillRecurrence<Cell, typename Params::Storage>(config, args, p);
  p->args = args;
  FillDirections(config, 0, config.lanes, p->directions);
  p->first_live = p->mask != nullptr ? workspace->Take<int64_t>(2 * p->N) : nullptr;
}

}  // namespace haste
