// The warp-specialized forward walk of `grid`: some warps only multiply, others only run the cell.
// For an even number of passes of one tile of rows.
//
// A step of one pass mostly waits: for h from other blocks, for the sums of other warps, for one
// dependent instruction of the cell after another. So the warps that multiply do nothing else, pass
// after pass. Two sets of other warps run the cell, one on the even passes and one on the odd, so a
// set does one pass in the time of two products. That leaves it time to read and write memory
// element by element, without I/O warps. Each set has a buffer for sums, with one barrier for "sums
// are ready" and one for "sums have been taken".
#pragma once

#include "lib/cuda/persistent/product.cuh"
#include "lib/cuda/ptx/global_flags.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"

namespace haste {

// The current pass of the walk.
struct WalkPass {
  int step = 0, pass = 0;

  // The set of warps and the buffer of sums that have this pass. They are the same in every step.
  HASTE_DEVICE int set() const { return pass % kElementSets; }
  HASTE_DEVICE WalkPass Next(int passes) const {
    WalkPass next = {step, pass + 1};
    if (next.pass == passes) next = {step + 1, 0};
    return next;
  }
};

template <class Cell, class T>
class WarpSpecializedRun : PersistentProduct<Cell, T, 1, ForwardWay::kGridWarpSpecialized> {
  using Base = PersistentProduct<Cell, T, 1, ForwardWay::kGridWarpSpecialized>;
  using Base::kGates, Base::kHeld, Base::p_, Base::Sizes;
  using typename Base::Params, typename Base::Words;
  // The warps that multiply, and one set of those that have elements.
  static constexpr int kBoth = kPersistentWarps + kElementWarps;
  // h cycles through eight slots. A thread clears its word two steps later. Its fence precedes the
  // last h that it sends before the next round, so whoever has received that h sees the clear.
  static constexpr int kStepsOfFence = 4;

 public:
  HASTE_DEVICE explicit WarpSpecializedRun(const Params& p)
      : Base(p, ForwardLayout(p.tiling, Sizes(), false)) {}

  HASTE_DEVICE void Multiply() {
    if constexpr (kScaledTerms<T> > 0) Base::FindScales();
    Base::LoadTiles();
    const int passes = Opaque(p_.tiling.passes), steps = Opaque(static_cast<int>(p_.T_));
    // h of the next pass is asked for as soon as it can have arrived. With two passes and short
    // products, that is not before these sums are stored.
    const bool early = Opaque(passes > 2 || p_.tiling.chunks > kHeld) != 0;
    int begun = 0;  // passes begun, up to one a set: their buffers are still free
    WalkPass now;
    Words words = {};
    Base::AskFirst(0, 0, words);
    do {
      const WalkPass next = now.Next(passes);
      const auto ask = [&] {
        if (next.step < steps) Base::AskFirst(next.step, next.pass, words);
      };
      // The sums overwrite earlier ones, which must have been read. If !early, the wait for that is
      // done while h is in transit.
      const bool others = begun == kElementSets;
      if (others && !early) Sync(kTakenName + now.set());
      Base::MultiplyStates(now.step, now.pass, now.set(), words, [&] {
        if (early) ask();
        if (others && early) Sync(kTakenName + now.set());
      });
      Arrive(kThereName + now.set());
      if (!early) ask();
      if (begun < kElementSets) ++begun;
      now = next;
    } while (now.step < steps);
  }

  HASTE_DEVICE void RunProducer() {
    if constexpr (kScaledTerms<T> > 0) Base::FindScales();
    const int passes = p_.tiling.passes;
    const int set = threadIdx.x / 32 / kElementWarps % kElementSets;
    Base::SendFirst(set, kElementSets);  // the number of passes is even
    InputFlagsReader inputs(p_.flags);
    WalkPass now = {0, set};
    // place: this thread's element in [N, T, K, H]. down: the offset from there to the set's next
    // pass. wrap: to its first pass of the next step.
    int64_t place = Base::PlaceOf(0, set).one;
    const int64_t stride = p_.K * p_.H, down = kElementSets * Base::pass_stride_;
    const int64_t wrap = (Base::reverse_ ? -stride : stride) - (passes / kElementSets - 1) * down;
    Inputs in;
    inputs.Await(p_, Base::reverse_, now.step);
    Load(now, place, &in);
    do {
      const WalkPass next = now.Next(passes).Next(passes);
      const bool more = next.step < p_.T_;
      const typename Base::Entering entering = Base::Enter(now.step, now.pass, set);
      Sync(kThereName + set);
      Base::MakeStates(
          now.step, now.pass, entering,
          [&](StepFlags* seen, T(&x)[kGates]) {
            if (more) Arrive(kTakenName + set);
            *seen = in.seen;
            HASTE_UNROLL for (int g = 0; g < kGates; ++g) x[g] = in.x[g];
          },
          [&](const auto&... left) {
            if (Base::There(now.pass)) {
              StoreForward<Cell>(p_, StepPlace(place, kGates, Base::unit_), left...);
            }
          });
      Base::ClearMine(now.step, now.pass);
      place += next.step > now.step ? wrap : down;
      if (more) {
        inputs.Await(p_, Base::reverse_, next.step);
        Load(next, place, &in);
      }
      if (now.step % kStepsOfFence == kStepsOfFence - 1) FenceRelease();
      now = next;
    } while (now.step < p_.T_);
  }

 private:
  // Barriers between the warps that multiply and one set of those with elements. A computed barrier
  // number costs less than a branch.
  static HASTE_DEVICE void Sync(int name) { NamedBarrierSync<kBoth * 32>(name); }
  static HASTE_DEVICE void Arrive(int name) { NamedBarrierArrive<kBoth * 32>(name); }

  // What a step reads for this thread's element, and its step flags.
  struct Inputs {
    T x[kGates] = {};
    StepFlags seen;
  };
  // Also prefetches what later steps read.
  HASTE_DEVICE void Load(const WalkPass& at, int64_t place, Inputs* in) const {
    in->seen = Base::ReadStepFlags(at.step, at.pass);
    if (!Base::There(at.pass)) return;
    const T* from = static_cast<const T*>(p_.args.wx) + StepPlace(place, kGates, Base::unit_).gates;
    const int H = static_cast<int>(p_.H);
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) in->x[g] = from[g * H];
    if (at.step >= p_.T_ - kPrefetchSteps) return;
    const int64_t further = kPrefetchSteps * p_.K * kGates * p_.H;
    from += Base::reverse_ ? -further : further;
    HASTE_UNROLL for (int g = 0; g < kGates; ++g) PrefetchL2(from + g * H);
  }
};

}  // namespace haste
