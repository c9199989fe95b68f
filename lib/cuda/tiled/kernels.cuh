// Steps of the `tiled` engine: a phase (lib/cuda/cell/phase_forward.cuh,
// lib/cuda/cell/phase_backward.cuh), with its product on tensor cores (mainloop.cuh), then the
// cell.
//
// A block reads other blocks' results of a step only after all of them have finished the step. If
// one launch walks all steps, it learns that from their count; if each step is a launch, from the
// end of the previous kernel. Until then it reads only what no step writes, and what its own
// threads have written.
#pragma once

#include "lib/cuda/cell/phase_backward.cuh"
#include "lib/cuda/cell/phase_forward.cuh"
#include "lib/cuda/ptx/bulk_copy.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/global_flags.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/tiled/mainloop.cuh"

namespace haste {

extern __shared__ __align__(16) unsigned char tiled_shared[];

template <class Phase, int kRows>
class TiledRun {
  using Params = typename Phase::Params;
  using C = typename Params::C;
  static constexpr int kUnits = ShapeOf<Phase>().units(), kSums = Phase::kSums;
  static constexpr int kTiles = ShapeOf<Phase>().tiles(), kThreads = ShapeOf<Phase>().threads();
  // A thread's elements all belong to one unit, kRowStep rows apart.
  static constexpr int kRowStep = kThreads / kUnits;
  // The elements whose inputs are loaded to registers before their sums are ready. More would be
  // more code than fits the instruction cache.
  static constexpr int kBatch = kThreads > 256 ? 2 : 4;
  static_assert(!kScalesRows<Phase> || kUnits % 32 == 0, "a warp has one row");

 public:
  HASTE_DEVICE explicit TiledRun(const Params& p)
      : p_(p),
        place_(p.tiling),
        layout_(ShapeOf<Phase>(), p.tiling),
        product_(p, place_, tiled_shared),
        counters_(reinterpret_cast<TiledCounters*>(tiled_shared + layout_.counters)),
        sums_(reinterpret_cast<float*>(tiled_shared + layout_.stages)),
        reverse_(p.reverse[place_.lane] != 0),
        own_rows_(p.tiling.own_rows()),
        row_(static_cast<int>(threadIdx.x) / kUnits),
        unit_(static_cast<int>(threadIdx.x) % kUnits) {
    if constexpr (kScaledTerms<typename Params::Storage> > 0) sum_scale_ = ScalesOf(p).product;
    const int64_t j = static_cast<int64_t>(place_.unit_tile) * kUnits + unit_;
    first_ = Element(p, place_.row + place_.split * own_rows_ + row_, place_.lane, j,
                     row_ < kRowStep && j < p.H);
    at_stride_ = kRowStep * p.K * p.H;
    one_stride_ = at_stride_ * p.T_;
    if (threadIdx.x == 0) product_.Init();
    __syncthreads();
    if (p.tiling.splits > 1) ClusterSync();
  }

  HASTE_DEVICE void Keep() const { product_.Keep(); }

  // Starts loads of what no step writes: for the product, and prefetches for elements whose inputs
  // do not go to registers yet.
  HASTE_DEVICE void Begin(int64_t step) const {
    if (Phase::HasProduct(p_, step)) product_.Begin();
    const StepAt at = At(step);
    for (int i = kBatch; i * kRowStep < own_rows_; ++i) {
      const Element e = ElementOf(i);
      if (e.exists) Phase::Prefetch(p_, e, Further(at, i));
    }
  }

  // The same for a thread's first elements, into registers.
  HASTE_DEVICE void Load(int64_t step) { LoadFrom(step, 0, mine_); }

  // All of a step but what only this block reads of its last elements.
  HASTE_DEVICE void Step(int64_t step) {
    LoadCarried(0, mine_);
    const bool multiplies = Phase::HasProduct(p_, step);
    if (multiplies) {
      product_.Multiply(step + Phase::kOperandOf);
      if (p_.tiling.splits > 1) {
        Push();
        counters_->meeting.Wait(meetings_++ & 1);
        AddUp();
      } else {
        EachSum(
            [&](int tile, int row, int in_tile, float4 v) { StoreSums(tile, row, in_tile, v); });
      }
      __syncthreads();
    }
    const StepAt at = At(step);
    for (int first = 0;; first += kBatch) {
      Phase next[kBatch];
      const bool more = (first + kBatch) * kRowStep < own_rows_;
      if (more) {
        LoadFrom(step, first + kBatch, next);
        LoadCarried(first + kBatch, next);
      }
      HASTE_UNROLL for (int i = 0; i < kBatch; ++i) {
        const Element e = ElementOf(first + i);
        if (!TakesPart(e, first + i)) continue;
        C sums[kSums] = {};
        if (multiplies) Sums(first + i, sums);
        mine_[i].Step(p_, e, Further(at, first + i), sums);
      }
      last_ = first;
      if (!more) break;
      Write(step);
      HASTE_UNROLL for (int i = 0; i < kBatch; ++i) mine_[i] = next[i];
    }
  }

  // The rest of it.
  HASTE_DEVICE void Write(int64_t step) const {
    const StepAt at = At(step);
    HASTE_UNROLL for (int i = 0; i < kBatch; ++i) {
      const Element e = ElementOf(last_ + i);
      if (e.exists) mine_[i].Write(p_, e, Further(at, last_ + i));
    }
  }

  HASTE_DEVICE uint32_t* arrived() const { return p_.arrived + place_.group; }

 private:
  // The i-th element of this thread.
  HASTE_DEVICE Element ElementOf(int i) const {
    Element e = first_;
    e.n += i * kRowStep;
    e.at += i * at_stride_;
    e.exists = e.exists && HasRow(e, i);
    return e;
  }
  HASTE_DEVICE bool HasRow(const Element& e, int i) const {
    return row_ + i * kRowStep < own_rows_ && e.n < p_.N;
  }
  // Of a step. Where elements share a scale whole warps do, as far as the operand has a chunk.
  HASTE_DEVICE bool TakesPart(const Element& e, int i) const {
    return kScalesRows<Phase> ? e.j / 32 * 32 < p_.H && HasRow(e, i) : e.exists;
  }
  // A step of the first element; of the i-th.
  HASTE_DEVICE StepAt At(int64_t step) const {
    return StepAt(p_, first_, Phase::kAllGates, reverse_, step);
  }
  HASTE_DEVICE StepAt Further(const StepAt& at, int i) const {
    StepAt further = at;
    further.place.one += i * one_stride_;
    further.place.gates += i * one_stride_ * Phase::kAllGates;
    return further;
  }

  HASTE_DEVICE void LoadFrom(int64_t step, int first, Phase (&to)[kBatch]) const {
    const StepAt at = At(step);
    HASTE_UNROLL for (int i = 0; i < kBatch; ++i) {
      const Element e = ElementOf(first + i);
      if (kScalesRows<Phase> || e.exists) to[i].Load(p_, e, Further(at, first + i));
    }
  }
  HASTE_DEVICE void LoadCarried(int first, Phase (&to)[kBatch]) const {
    HASTE_UNROLL for (int i = 0; i < kBatch; ++i) {
      const Element e = ElementOf(first + i);
      if (e.exists) to[i].LoadCarried(p_, e);
    }
  }

  // The sums of one of this block's own rows and the 16 units of a tile, which are contiguous.
  HASTE_DEVICE float* SumsOf(int tile, int row) const {
    return sums_ + tile * TiledProductShape::sum_tile(own_rows_) + row * TiledProductShape::kSumRow;
  }
  // Stores what a lane has of a tile: a pair of rows of units `in_tile` and `in_tile` + 8.
  HASTE_DEVICE void StoreSums(int tile, int row, int in_tile, float4 v) const {
    float* to = SumsOf(tile, row) + in_tile;
    to[0] = v.x;
    to[TiledProductShape::kSumRow] = v.y;
    to[8] = v.z;
    to[TiledProductShape::kSumRow + 8] = v.w;
  }
  // Calls take(tile, row, in_tile, sums) for what this lane has of the block's sums.
  template <class Take>
  HASTE_DEVICE void EachSum(const Take& take) const {
    const int lane = threadIdx.x % 32;
    product_.Each([&](int tile, int rows, float4 v) {
      take(tile, rows * kTileColumns + lane % 4 * 2, lane / 4, v);
    });
  }
  HASTE_DEVICE void Sums(int i, C (&sums)[kSums]) const {
    HASTE_UNROLL for (int s = 0; s < kSums; ++s) {
      sums[s] = SumsOf(unit_ / 16 * kSums + s, row_ + i * kRowStep)[unit_ % 16];
      if constexpr (kScaledTerms<typename Params::Storage> > 0) sums[s] *= sum_scale_;
    }
  }

  // Partial sums of a block's own rows, as all blocks of the cluster push them: [block, tile, pair
  // of rows, half of its units], 16 bytes each.
  HASTE_DEVICE int terms() const { return kTiles * own_rows_ * 4; }  // of a block
  HASTE_DEVICE int PartAt(int split, int part) const {
    return layout_.terms + (split * terms() + part) * 16;
  }
  HASTE_DEVICE void Push() const {
    if (threadIdx.x == 0) counters_->meeting.ArriveAndExpect(ShapeOf<Phase>().part_bytes(kRows));
    const uint32_t here = SharedAddress(tiled_shared), counter = SharedAddress(&counters_->meeting);
    const int log_own_rows = __ffs(own_rows_) - 1;
    EachSum([&](int tile, int row, int in_tile, float4 v) {
      const uint32_t owner = row >> log_own_rows;
      const int own_row = row & (own_rows_ - 1);
      const int at = PartAt(place_.split, tile * own_rows_ * 4 + own_row * 4 + in_tile);
      const uint4 bits = make_uint4(__float_as_uint(v.x), __float_as_uint(v.y),
                                    __float_as_uint(v.z), __float_as_uint(v.w));
      haste::Push(AddressIn(here + at, owner), bits, AddressIn(counter, owner));
    });
  }
  // Adds up the partial sums, always in the same order.
  HASTE_DEVICE void AddUp() const {
    const int log_tile = __ffs(own_rows_) + 1;  // of own_rows_ * 4
    for (int part = threadIdx.x; part < terms(); part += kThreads) {
      float4 total = {};
#pragma unroll 4
      for (int split = 0; split < p_.tiling.splits; ++split) {
        const float4 v = *reinterpret_cast<const float4*>(tiled_shared + PartAt(split, part));
        total.x += v.x;
        total.y += v.y;
        total.z += v.z;
        total.w += v.w;
      }
      const int in_tile = part & ((1 << log_tile) - 1);
      StoreSums(part >> log_tile, in_tile / 8 * 2, in_tile % 8, total);
    }
  }

  const Params& p_;
  const TiledPlace place_;
  const TiledLayout layout_;
  TiledProduct<Phase, kRows> product_;
  TiledCounters* const counters_;
  float* const sums_;
  const bool reverse_;
  const int own_rows_, row_, unit_;
  Element first_;
  int64_t at_stride_, one_stride_;  // between consecutive elements of a thread
  uint32_t meetings_ = 0;
  float sum_scale_;  // only for Scaled
  Phase mine_[kBatch];
  int last_ = 0;  // the first of the elements in mine_
};

// `count` steps of the walk from `first` on. More than one only in a persistent kernel.
template <class Phase, int kRows>
__global__ void __launch_bounds__(ShapeOf<Phase>().threads(), 1)
    TiledSteps(const __grid_constant__ typename Phase::Params p, int64_t first, int64_t count) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // the plan never selects this kernel for other GPUs
#else
  TiledRun<Phase, kRows> run(p);
  if (count > 1 || Phase::HasProduct(p, first)) run.Keep();  // the product waits for it
  run.Load(first);
  uint32_t ended = 0;  // steps ended, over all blocks of the group
  int64_t step = first;
  for (int64_t left = count; left > 0; --left, step += Phase::kStride) {
    run.Begin(step);
    if (!p.tiling.persistent) {
      WaitForPreviousKernel();
      LetNextKernelStart();
    } else if (step != first) {
      ended += static_cast<uint32_t>(p.tiling.group_blocks());
      WaitForArrivals(run.arrived(), ended);
    }
    run.Step(step);
    if (left > 1) {
      FenceSharedBulkCopies();  // to come: they write where the sums were
      CountArrival(run.arrived());
    }
    run.Write(step);
    if (left > 1) run.Load(step + Phase::kStride);
  }
#endif
}

}  // namespace haste
