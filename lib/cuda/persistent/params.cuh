// What the persistent kernels share (engines `cluster` and `grid`): sizes, the work of a block, and
// which thread has which element.
//
// A group of blocks walks one lane and some rows of the batch alone. Each block owns `units` of the
// lane's hidden units. It keeps their part of R for all steps in registers, and what does not fit
// there in shared memory. The rows are divided into passes: while one pass is in transit between
// the blocks, the next is multiplied.
#pragma once

#include "lib/cuda/cell/element.cuh"
#include "lib/cuda/cell/on_chip.cuh"
#include "lib/cuda/ptx/mma.cuh"
#include "lib/engine/engine.h"
#include "lib/plan/engines/persistent.h"

namespace haste {

// How many steps ahead of the walk inputs are prefetched.
constexpr int kPrefetchSteps = 3;

template <class T, class Args>
struct PersistentParams : OnChipParams<T, Args> {
  PersistentTiling tiling;
  uint4* exchange;     // for `grid`; all bits set
  int piece;           // forward: the size of a copied piece: kPieceBytes, or one element
  OverlapFlags flags;  // counts: null if nothing is overlapped with the walk
};

enum class ForwardWay;

// A thread's element of every pass: a warp has two rows of 16 units. Threads after the last element
// have none, and for them There() is always false.
template <class Cell, class Params, int kTiles>
class PersistentThread {
  template <class, class, int, ForwardWay>
  friend class IoWarps;

 public:
  static constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  static constexpr int kRows = kTiles * kTileColumns;  // of a pass
  static constexpr int kThreads = kPersistentWarps * 32;
  static constexpr bool kBackward = std::is_same_v<typename Params::Args, HasteRnnBackwardArgs>;

  // states: [pass, state, thread]; the factor of h from dropout is stored after the last state.
  // May be null if states are never asked for.
  HASTE_DEVICE PersistentThread(const Params& p, int warp, int lane, float* states = nullptr)
      : p_(p),
        rank_(blockIdx.x % p.tiling.blocks),
        group_(blockIdx.x / p.tiling.blocks),
        warp_(warp),
        lane_(OfThread(lane)),
        column_(warp_ % (kRows / 2) * 2 + lane_ / 16),
        tile_(warp_ / (kRows / 2)),
        states_(states + OfThread(warp * 32 + lane)) {
    const int row_groups = p.tiling.row_groups;
    k_ = group_ / row_groups;
    reverse_ = p.IsReverse(k_);
    row_ = group_ % row_groups * p.tiling.group_rows() + column_;
    unit_ = rank_ * p.tiling.units() + tile_ * kTileRows + lane_ % 16;
    exists_ = 0;
    for (int pass = 0; pass < p.tiling.passes; ++pass) {
      const bool there = tile_ < p.tiling.unit_tiles && unit_ < p.H && row_ + pass * kRows < p.N;
      exists_ |= (there ? 1 : 0) << pass;
    }
    exists_ = Opaque(exists_);
    const int64_t stride = p.K * p.H;
    pass_stride_ = kRows * p.T_ * stride;
    wrap_stride_ =
        (reverse_ == kBackward ? stride : -stride) - (p.tiling.passes - 1) * pass_stride_;
  }

  // This thread's element of pass 0 at a step.
  HASTE_DEVICE StepPlace PlaceOf(int64_t step) const {
    return StepPlace((row_ * p_.T_ + TimeOf(p_, reverse_, step)) * p_.K + k_, kGates, p_.H, unit_);
  }
  // The same for any pass.
  HASTE_DEVICE StepPlace PlaceOf(int64_t step, int pass) const {
    StepPlace place = PlaceOf(step);
    place.one += pass * pass_stride_;
    place.gates += pass * pass_stride_ * kGates;
    return place;
  }
  // The element of the next pass. wraps: the next pass is the first of the next step.
  HASTE_DEVICE StepPlace Further(const StepPlace& place, bool wraps) const {
    const int64_t by = wraps ? wrap_stride_ : pass_stride_;
    StepPlace further;
    further.one = place.one + by;
    further.gates = place.gates + by * kGates;
    return further;
  }
  HASTE_DEVICE bool There(int pass) const { return (exists_ >> pass & 1) != 0; }
  HASTE_DEVICE Element ElementOf(int pass) const {
    return Element(p_, row_ + pass * kRows, k_, unit_, There(pass));
  }
  // A prefetcher that begins kPrefetchSteps after the first step of the walk.
  template <int kTerms>
  HASTE_DEVICE auto PrefetcherOf(const void* tensor) const {
    const bool up = reverse_ == kBackward;
    return Prefetcher<typename Params::Storage, kTerms>(
        p_, tensor, row_ - column_, kRows, k_, static_cast<int64_t>(rank_) * p_.tiling.units(),
        p_.tiling.units(), up ? kPrefetchSteps : p_.T_ - 1 - kPrefetchSteps, up);
  }

  HASTE_DEVICE float& State(int pass, int s) const {
    return states_[(pass * (kStates + 1) + s) * kThreads];
  }
  HASTE_DEVICE float Scale(int pass) const {
    return p_.dropout_rate == 0.0f ? 1.0f : State(pass, kStates);
  }
  // from: [N, K, H] each, or null.
  HASTE_DEVICE void LoadStates(const void* const* from, int pass) const {
    using T = typename Params::Storage;
    const Element e = ElementOf(pass);
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) {
      const T* all = static_cast<const T*>(from[s]);
      State(pass, s) = all == nullptr || !e.exists ? 0.0f : ToCompute(all[e.at]);
    }
    if (p_.dropout_rate != 0.0f) State(pass, kStates) = e.exists ? DropScale(p_, e) : 1.0f;
  }

  HASTE_DEVICE StepFlags ReadStepFlags(int step, int pass) const {
    return haste::ReadStepFlags<Cell>(p_, ElementOf(pass), reverse_, step);
  }

 protected:
  // Backward has no register to spare for an opaque copy.
  static HASTE_DEVICE int OfThread(int x) { return kBackward ? x : OpaqueOfThread(x); }

  const Params& p_;
  const int rank_, group_;  // the block's index in its group, and the group's index
  const int warp_, lane_;
  const int column_;  // row in the pass
  const int tile_;    // unit tile in the block
  float* const states_;
  int k_, row_, unit_;  // lane; row of the batch, at pass 0; hidden unit
  int exists_;          // bit p: at pass p
  bool reverse_;
  int64_t pass_stride_,
      wrap_stride_;  // in [N, T, K, H]: to the next pass, to the next step's first
};

}  // namespace haste
