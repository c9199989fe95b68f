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
  using T = typename Params::Storage;
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
    first_ = Element(p, place_.row + place_.split * own_rows_ + row_, place_.lane, j, j < p.H);
    one_at_0_ = (first_.n * p.T_ * p.K + first_.k) * p.H + first_.j;
    const int rows = static_cast<int>(min(p.N - first_.n, int64_t{own_rows_ - row_}));
    const int count = row_ < kRowStep && rows > 0 ? (rows + kRowStep - 1) / kRowStep : 0;
    count_ = first_.j < p.H ? count : 0;
    // Where elements share a scale whole warps do, as far as the operand has a chunk.
    taking_part_ = kScalesRows<Phase> && first_.j / 32 * 32 < p.H ? count : count_;
    if (threadIdx.x == 0) product_.Init();
    __syncthreads();
    if (p.tiling.splits > 1) ClusterSync();
  }

  HASTE_DEVICE void Keep() const { product_.Keep(); }

  // Starts loads of what no step writes: for the product, and for elements. The first of a thread
  // go to registers, others are prefetched.
  HASTE_DEVICE void Begin(int64_t step) {
    if (Phase::HasProduct(p_, step)) product_.Begin();
    const Strides strides = StridesOfRows();
    Cursor at = First(step);
    HASTE_UNROLL for (int i = 0; i < kBatch; ++i, at = Further(at, strides, 1))
        Load(at, i, &mine_[i]);
    for (int i = kBatch; i < count_; ++i, at = Further(at, strides, 1)) {
      Phase::Prefetch(p_, at.e, at.step);
    }
  }

  // Calls arrive() when all is stored but what only this block reads of its last elements.
  template <class Arrive>
  HASTE_DEVICE void Step(int64_t step, const Arrive& arrive) {
    const Cursor own = First(step);
    HASTE_UNROLL for (int i = 0; i < kBatch; ++i) {
      if (i < count_) mine_[i].LoadCarried(p_, Further(own, StridesOfRows(), i).e);
    }
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
    if constexpr (Phase::kOperandOf > 0) {
      // Backward's last step has little to do, and others need not ask whether they are it.
      if (step < 0) return Elements(First(-1), multiplies, arrive);
      __builtin_assume(step >= 0);
    }
    Elements(First(step), multiplies, arrive);
  }

  HASTE_DEVICE uint32_t* arrived() const { return p_.arrived + place_.group; }

 private:
  // One of this thread's elements, at a step.
  struct Cursor {
    TiledElement<T, Params::kTerms, Phase::kBackward ? Phase::kAllGates : 1> e;
    StepAt step;
  };
  HASTE_DEVICE Cursor First(int64_t step) const {
    const int64_t t = TimeOf(p_, reverse_, step);
    const StepPlace place(one_at_0_ + t * (p_.K * p_.H), Phase::kAllGates,
                          static_cast<int>(first_.j));
    return {{first_, 0}, {step, t, reverse_, place}};
  }
  // From one element of a thread to the next, in [N, K, H], [N, T, K, H] and [N, T, K, G, H].
  struct Strides {
    int64_t at, one, gates;

    // For a loop: the compiler would otherwise multiply sizes in it again.
    HASTE_DEVICE Strides Made() const { return {Opaque(at), Opaque(one), Opaque(gates)}; }
  };
  HASTE_DEVICE Strides StridesOfRows() const {
    const int64_t at = kRowStep * p_.K * p_.H;
    return {at, at * p_.T_, at * p_.T_ * Phase::kAllGates};
  }
  static HASTE_DEVICE Cursor Further(const Cursor& at, const Strides& strides, int elements) {
    Cursor further = at;
    further.e.n += elements * kRowStep;
    further.e.row += elements * kRowStep;
    further.e.at += elements * strides.at;
    further.step.place.one += elements * strides.one;
    further.step.place.gates += elements * strides.gates;
    return further;
  }

  // The cell of this thread's elements. at: the first. multiplies: there are sums.
  template <class Arrive>
  HASTE_DEVICE void Elements(Cursor at, bool multiplies, const Arrive& arrive) {
    at.e.Aim(p_, at.step.step + Phase::kStride + Phase::kOperandOf);
    const Strides strides = StridesOfRows().Made();
    const float* sums = SumsOf(unit_ / 16 * kSums, row_) + unit_ % 16;
    for (int first = 0;; first += kBatch, sums += kBatch * kRowStep * TiledProductShape::kSumRow) {
      Phase now[kBatch];  // with its results
      const Cursor ahead = Further(at, strides, kBatch);
      const bool more = (first + kBatch) * kRowStep < own_rows_;
      HASTE_UNROLL for (int i = 0; i < kBatch; ++i) {
        if (first + i < taking_part_) {
          now[i] = mine_[i];
          C of_element[kSums] = {};
          if (multiplies) Sums(sums + i * kRowStep * TiledProductShape::kSumRow, of_element);
          const Cursor here = Further(at, strides, i);
          now[i].Step(p_, here.e, here.step, of_element);
        }
        // In the registers of the one that is done.
        LoadAll(Further(ahead, strides, i), first + kBatch + i, &mine_[i]);
      }
      if (!more) arrive();
      HASTE_UNROLL for (int i = 0; i < kBatch; ++i) {
        if (first + i >= count_) continue;
        const Cursor here = Further(at, strides, i);
        now[i].Write(p_, here.e, here.step);
      }
      if (!more) break;
      at = ahead;
    }
  }

  // i: the element's index among those of this thread.
  HASTE_DEVICE void Load(Cursor at, int i, Phase* to) const {
    at.e.exists = i < count_;
    if (i < taking_part_) to->Load(p_, at.e, at.step);
  }
  HASTE_DEVICE void LoadAll(Cursor at, int i, Phase* to) const {
    at.e.exists = i < count_;
    if (at.e.exists) {
      to->Load(p_, at.e, at.step);
      to->LoadCarried(p_, at.e);
    } else if (i < taking_part_) {
      to->Load(p_, at.e, at.step);
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
  // from: the first of an element's sums.
  HASTE_DEVICE void Sums(const float* from, C (&sums)[kSums]) const {
    HASTE_UNROLL for (int s = 0; s < kSums; ++s) {
      sums[s] = from[s * TiledProductShape::sum_tile(own_rows_)];
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
  int64_t one_at_0_;         // its offset in [N, T, K, H] at time 0
  int count_, taking_part_;  // elements of this thread; and with those that are only padding
  uint32_t meetings_ = 0;
  float sum_scale_;     // only for Scaled
  Phase mine_[kBatch];  // inputs of its first elements
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
    run.Step(step, [&] {
      if (left == 1) return;
      FenceSharedBulkCopies();  // to come: they write where the sums were
      CountArrival(run.arrived());
    });
  }
#endif
}

}  // namespace haste
