// The I/O warps of a persistent kernel's forward walk, which have no elements. They copy what a
// step reads and writes, find each element's step flags, prefetch inputs of later steps, and clear
// the words of h of the step before last. The warps with elements only do what depends on h.
#pragma once

#include "lib/cuda/cell/step_io.cuh"
#include "lib/cuda/persistent/state_exchange.cuh"
#include "lib/cuda/ptx/global_flags.cuh"

namespace haste {

// The step flags of a thread's element, in a byte.
HASTE_DEVICE unsigned char PackStepFlags(const StepFlags& seen) {
  return static_cast<unsigned char>((seen.live ? 1u : 0u) | (seen.repeats ? 2u : 0u) |
                                    seen.drawn << 2);
}
HASTE_DEVICE StepFlags UnpackStepFlags(uint32_t packed) {
  StepFlags seen;
  seen.live = (packed & 1) != 0;
  seen.repeats = (packed & 2) != 0;
  seen.drawn = packed >> 2;
  return seen;
}

template <class Cell, class T, int kTiles, ForwardWay kWay>
class IoWarps {
  using States = StateExchange<Cell, T, kTiles, kWay>;
  using Params = PersistentForwardParams<T>;
  using Thread = PersistentThread<Cell, Params, kTiles>;
  static constexpr bool kCluster = kWay == ForwardWay::kCluster;
  static constexpr int kSaved = SavedTensors<Cell>();

 public:
  HASTE_DEVICE IoWarps(const Params& p, const States& states, const ForwardLayout& at,
                       bool some_idle)
      : p_(p),
        states_(states),
        warp_(threadIdx.x / 32 - kPersistentWarps),
        thread_(threadIdx.x - kPersistentWarps * 32),
        seen_(persistent_shared + at.seen + thread_),
        read_(reinterpret_cast<T*>(persistent_shared + at.reads)),
        written_(reinterpret_cast<T*>(persistent_shared + at.writes)),
        read_step_(PersistentReads(p.tiling, SizesOf<Cell, T>()).step()),
        written_step_(PersistentWrites(p.tiling, SizesOf<Cell, T>()).step()),
        needed_(p.mask != nullptr || (p.zoneout && p.training)),
        clears_(kCluster || some_idle ? -1 : states.PlaceToClear(thread_)),
        inputs_(p.flags) {
    HASTE_UNROLL for (int i = 0; i < kElements; ++i) {
      const Thread thread(p, warp_ + i * kCopyWarps, threadIdx.x % 32);
      rows_[i] = Opaque(thread.row_);
      units_[i] = Opaque(thread.unit_);
      exist_[i] = thread.exists_;
    }
    if (p.zoneout && p.training) key_ = MakePhiloxKey(p.seed);
    AskMask(0, 0);
    StepFlags live;
    live.live = true;
    for (int i = 0; i < 2 * kElements; ++i) seen_[i * kCopyWarps * 32] = PackStepFlags(live);
  }

  // Runs all steps. Synchronizes with the other warps in every pass and after the last.
  HASTE_DEVICE void Serve() {
    const int passes = p_.tiling.passes;
    void* const read[] = {const_cast<void*>(p_.args.wx)};
    void* written[2 + kSaved] = {p_.args.keep ? p_.args.gates : nullptr, p_.args.y};
    HASTE_UNROLL for (int i = 0; i < kSaved; ++i) {
      written[2 + i] = p_.args.keep ? p_.args.saved[i] : nullptr;
    }
    const int units = p_.tiling.units(), unit = states_.rank_ * units;
    const int row = states_.row_ - states_.column_;
    StepTraffic<T, Cell::kGates, 1, PiecesOf(Cell::kGates)> reads(
        p_, PersistentReads(p_.tiling, SizesOf<Cell, T>()), read, thread_, row, states_.k_, unit,
        units, states_.reverse_);
    StepTraffic<T, Cell::kGates, 2 + kSaved, PiecesOf(Cell::kGates + 1 + kSaved)> writes(
        p_, PersistentWrites(p_.tiling, SizesOf<Cell, T>()), written, thread_, row, states_.k_,
        unit, units, states_.reverse_);
    int step = 0, pass = 0, before = -1;  // before: the pass that ended last
    int buffer = 0;
    inputs_.Await(p_, states_.reverse_, 0);
    reads.Read(read_, 0, passes == 1);
    if (needed_) Tell(0, 0, 0);
    CommitCopies();
    WaitCopies(0);
    do {
      SyncRows();
      const int other = buffer ^ 1;
      states_.Clear(step, pass, clears_);
      const int now = pass;
      const bool ends = ++pass == passes;
      if (ends) {
        pass = 0;
        ++step;
      }
      if (step < p_.T_) {
        if (step < p_.T_ - kPrefetchSteps) reads.Prefetch(kPrefetchSteps, pass);
        inputs_.Await(p_, states_.reverse_, step);
        reads.Read(read_ + other * read_step_, pass, pass + 1 == passes);
        if (needed_) Tell(step, pass, other);
      }
      CommitCopies();
      // Before the writes below, which the fence would have to wait for too.
      if (__any_sync(0xFFFFFFFFu, clears_ >= 0)) FenceRelease();
      if (before >= 0) writes.Write(written_ + other * written_step_, before, before + 1 == passes);
      before = now;
      WaitCopies(0);
      buffer = other;
    } while (step < p_.T_);
    SyncRows();
    writes.Write(written_ + (buffer ^ 1) * written_step_, before, true);
  }

 private:
  static constexpr int kElements = kPersistentWarps / kCopyWarps;  // whose flags a thread finds

  // The most pieces a thread can have, if `tensors` tensors are copied.
  static constexpr int PiecesOf(int tensors) {
    const int bytes = kPersistentElements * tensors * static_cast<int>(sizeof(T));
    return (bytes / kPieceBytes + kCopyWarps * 32 - 1) / (kCopyWarps * 32);
  }

  // Loads the mask of a step's elements, long before it is used.
  HASTE_DEVICE void AskMask(int step, int pass) {
    if (p_.mask == nullptr || step >= p_.T_) return;
    const int64_t t = TimeOf(p_, states_.reverse_, step);
    HASTE_UNROLL for (int i = 0; i < kElements; ++i) {
      if ((exist_[i] >> pass & 1) != 0) {
        mask_[i] = p_.mask[static_cast<int64_t>(rows_[i] + pass * Thread::kRows) * p_.T_ + t];
      }
    }
  }
  // Writes the step flags of all threads' elements. Called for one step after the other, in order.
  HASTE_DEVICE void Tell(int step, int pass, int buffer) {
    unsigned char told[kElements];
    HASTE_UNROLL for (int i = 0; i < kElements; ++i) {
      told[i] = 0;
      if (exist_[i] == 0) continue;
      const Element e(p_, rows_[i] + pass * Thread::kRows, states_.k_, units_[i],
                      (exist_[i] >> pass & 1) != 0);
      told[i] = PackStepFlags(ReadStepFlags<Cell>(p_, e, states_.reverse_, step,
                                                  p_.mask == nullptr || mask_[i] != 0, key_));
    }
    const bool wraps = pass + 1 == p_.tiling.passes;
    AskMask(wraps ? step + 1 : step, wraps ? 0 : pass + 1);
    HASTE_UNROLL for (int i = 0; i < kElements; ++i) {
      seen_[buffer * kPersistentElements + i * kCopyWarps * 32] = told[i];
    }
  }

  const Params& p_;
  const States& states_;
  const int warp_, thread_;  // indices among the I/O warps
  unsigned char* const seen_;
  T *const read_, *const written_;
  const int read_step_, written_step_;
  int rows_[kElements], units_[kElements], exist_[kElements];
  unsigned char mask_[kElements] = {};  // of the next step whose flags are to be found
  PhiloxKey key_ = {};
  const bool needed_;  // do step flags depend on more than whether an element exists?
  const int clears_;
  InputFlagsReader inputs_;
};

}  // namespace haste
