// The forward walk of `grid` where elements have warps of their own, for several passes (an even
// number) of one tile of rows.
//
// A step of one pass is mostly waiting: for h from other blocks, for the sums of other warps, for
// one instruction of the cell after the other. So the warps that multiply do nothing else, pass
// after pass, and two sets of warps, of which one has the even passes and the other the odd, make
// what follows, at the pace of one pass for two products. That leaves them the time to read and
// write memory element by element, and nobody has to serve them. Sums are handed over in a buffer
// a set, with a barrier for when they are there and one for when they are taken.
#ifndef HASTE_LIB_CUDA_PERSISTENT_WARP_SPECIALIZED_CUH_
#define HASTE_LIB_CUDA_PERSISTENT_WARP_SPECIALIZED_CUH_

#include "lib/cuda/persistent/product.cuh"
#include "lib/cuda/ptx/global_flags.cuh"
#include "lib/cuda/ptx/named_barrier.cuh"

namespace haste {

// A pass of the walk, one after the other.
struct WalkPass {
  int step = 0, pass = 0;

  // The set of warps, and the buffer of sums, that have it: the same ones in every step.
  __device__ __forceinline__ int set() const { return pass % kElementSets; }
  __device__ __forceinline__ WalkPass Next(int passes) const {
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
  // Those that multiply, and a set of those that have elements.
  static constexpr int kBoth = kPersistentWarps + kElementWarps;
  // h goes round eight slots. A thread clears its own two steps later, and its fence comes before
  // the last that it sends ahead of the next round: whoever asks for that has seen this one.
  static constexpr int kStepsOfFence = 4;

 public:
  __device__ __forceinline__ explicit WarpSpecializedRun(const Params& p)
      : Base(p, ForwardLayout(p.tiling, Sizes(), false)) {}

  __device__ __forceinline__ void Multiply() {
    if constexpr (kScaledTerms<T> > 0) Base::FindScales();
    Base::LoadTiles();
    const int passes = Opaque(p_.tiling.passes), steps = Opaque(static_cast<int>(p_.T_));
    // h of the next pass is asked for as soon as it can be there: not before these sums where there
    // are two passes, and products are short.
    const bool early = Opaque(passes > 2 || p_.tiling.chunks > kHeld) != 0;
    int begun = 0;  // passes, up to one a set: nothing is in the way of their sums
    WalkPass now;
    Words words = {};
    Base::AskFirst(0, 0, words);
    do {
      const WalkPass next = now.Next(passes);
      const auto ask = [&] {
        if (next.step < steps) Base::AskFirst(next.step, next.pass, words);
      };
      // Its sums take the place of others, which must have been read: where nothing is in a hurry,
      // that is waited for while h is on its way.
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

  __device__ __forceinline__ void RunProducer() {
    if constexpr (kScaledTerms<T> > 0) Base::FindScales();
    const int passes = p_.tiling.passes;
    const int set = threadIdx.x / 32 / kElementWarps % kElementSets;
    Base::SendFirst(set, kElementSets);  // there is an even number of them
    InputFlagsReader inputs(p_.flags);
    WalkPass now = {0, set};
    // This thread's element in [N, T, K, H]; from there to the set's next pass, and to its first of
    // the next step.
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
#pragma unroll
            for (int g = 0; g < kGates; ++g) x[g] = in.x[g];
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
  // Those that multiply meet a set of those that have elements. A name that is computed costs less
  // than a branch.
  static __device__ __forceinline__ void Sync(int name) { NamedBarrierSync<kBoth * 32>(name); }
  static __device__ __forceinline__ void Arrive(int name) { NamedBarrierArrive<kBoth * 32>(name); }

  // What a step reads of this thread's element, and what is known of it beforehand.
  struct Inputs {
    T x[kGates] = {};
    StepFlags seen;
  };
  // Asks for what later steps read, too.
  __device__ __forceinline__ void Load(const WalkPass& at, int64_t place, Inputs* in) const {
    in->seen = Base::ReadStepFlags(at.step, at.pass);
    if (!Base::There(at.pass)) return;
    const T* from = static_cast<const T*>(p_.args.wx) + StepPlace(place, kGates, Base::unit_).gates;
    const int H = static_cast<int>(p_.H);
#pragma unroll
    for (int g = 0; g < kGates; ++g) in->x[g] = from[g * H];
    if (at.step >= p_.T_ - kPrefetchSteps) return;
    const int64_t further = kPrefetchSteps * p_.K * kGates * p_.H;
    from += Base::reverse_ ? -further : further;
#pragma unroll
    for (int g = 0; g < kGates; ++g) PrefetchL2(from + g * H);
  }
};

}  // namespace haste

#endif  // HASTE_LIB_CUDA_PERSISTENT_WARP_SPECIALIZED_CUH_
