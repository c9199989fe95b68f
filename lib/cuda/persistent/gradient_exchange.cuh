// The backward walk of a persistent kernel, without its product: the exchange of sums of dh between
// the blocks, and the cell.
//
// Sums of dh arrive in the layout that tensor cores produce: a tile of 16 units × 8 rows from each
// sender.
#pragma once

#include "lib/cuda/persistent/state_exchange.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/global_flags.cuh"
#include "lib/cuda/ptx/mbarrier.cuh"
#include "lib/cuda/ptx/tagged.h"

namespace haste {

template <class T>
using PersistentBackwardParams = PersistentParams<T, HasteRnnBackwardArgs>;

constexpr int kBackwardSlots = 2;

// Steps are counted in walk order, from the last one on: `done` is the number of steps before.
template <class Cell, class T, int kTiles, bool kCluster, bool kShared>
class GradientExchange : public PersistentThread<Cell, PersistentBackwardParams<T>, kTiles> {
 protected:
  using Params = PersistentBackwardParams<T>;
  using Base = PersistentThread<Cell, Params, kTiles>;
  using Base::column_, Base::group_, Base::lane_, Base::p_, Base::rank_, Base::tile_, Base::warp_;
  using Base::kGates, Base::kStates;
  using Kept = Reserve<Cell, T, kGates>;
  static constexpr int kSumStride = BackwardLayout::kSumStride;
  static constexpr int kSumTile = BackwardLayout::kSumTile;
  // Whether it is possible that half of the warps have all elements.
  static constexpr bool kSpares = kShared && kTiles == 1;
  // Tiles of sums that a thread loads at once.
  static constexpr int kAhead = 6;
  HASTE_DEVICE GradientExchange(const Params& p, const BackwardLayout& at)
      : Base(p, threadIdx.x / 32, threadIdx.x % 32,
             reinterpret_cast<float*>(persistent_shared + at.states)),
        tiles_of_block_(p.tiling.unit_tiles * kTiles),
        words_of_pass_(ReceivedSums(p.tiling) / 16),
        words_of_use_((kCluster ? 1 : p.tiling.blocks) * words_of_pass_),
        first_gatherer_(kSpares && tiles_of_block_ == 1 ? kPersistentWarps / 2 : 0),
        sum_tile_(warp_ % tiles_of_block_),
        sum_part_((warp_ - first_gatherer_) / tiles_of_block_),
        sum_parts_((kPersistentWarps - first_gatherer_) / tiles_of_block_),
        counters_(reinterpret_cast<TransactionBarrier*>(persistent_shared + at.counters)),
        words_(kCluster ? reinterpret_cast<uint4*>(persistent_shared + at.receive)
                        : p.exchange + static_cast<int64_t>(group_) * kBackwardSlots *
                                           p.tiling.passes * words_of_use_),
        sums_(reinterpret_cast<float*>(persistent_shared + at.sums)) {}

  // self has: LoadTiles and Prepare, called before all steps; SetOperand(done, pass, dq), called
  // for this thread's element; and Multiply(done, pass), called by all threads, which multiplies
  // what SetOperand got by Rᵀ and sends it.
  template <class Self>
  HASTE_DEVICE void Walk(Self& self) {
    self.LoadTiles();
    self.Prepare();
    const int steps = static_cast<int>(p_.T_);
    int wants_initial = 0;  // 0 or 1; Opaque keeps it in a register
    for (int s = 0; s < kStates; ++s) wants_initial |= p_.args.ds0[s] != nullptr;
    wants_initial = Opaque(wants_initial);
    for (int pass = 0; pass < p_.tiling.passes; ++pass) Base::LoadStates(p_.args.dsT, pass);
    StepPlace place = Base::PlaceOf(steps - 1);
    Inputs inputs;
    inputs.Ask(*this, steps - 1, 0, place);
    auto gates_ahead = Base::template PrefetcherOf<kGates>(p_.args.gates);
    auto dy_ahead = Base::template PrefetcherOf<1>(p_.args.dy);
    // h is the first state and not every cell reads it. Every cell reads the last saved state.
    auto saved_ahead = Base::template PrefetcherOf<1>(p_.args.saved[kSavedStates<Cell> - 1]);
    const int passes = p_.tiling.passes;
    for (int done = 0; done < steps; ++done) {
      const int step = steps - 1 - done;
      for (int pass = 0; pass < passes; ++pass) {
        if (done > 0) Gather(done - 1, pass);
        __syncthreads();
        if (pass == 0 && done > 0 && (done & p_.flags.mask) == 0) Report(done);
        const bool multiplies = wants_initial != 0 || step > 0;
        Finish(self, done, pass, place, inputs, multiplies);
        if (multiplies) {
          self.Multiply(done, pass);
        } else {
          __syncthreads();  // the sums have been read
        }
        // Loads the next inputs that do not depend on other blocks, while sums are in transit.
        const bool wraps = pass + 1 == passes;
        place = Base::Further(place, wraps);
        if (step > 0 || !wraps) {
          inputs.Ask(*this, wraps ? step - 1 : step, wraps ? 0 : pass + 1, place);
        }
        if (step >= kPrefetchSteps) {
          gates_ahead.Ask(pass, pass * Base::kRows);
          dy_ahead.Ask(pass, pass * Base::kRows);
          saved_ahead.Ask(pass, pass * Base::kRows);
        }
      }
      gates_ahead.Advance();
      dy_ahead.Advance();
      saved_ahead.Advance();
    }
    for (int pass = 0; wants_initial != 0 && pass < p_.tiling.passes; ++pass) {
      Gather(steps - 1, pass);
      __syncthreads();
      CarryOut(pass);
      __syncthreads();
    }
  }

  HASTE_DEVICE bool alone() const { return p_.tiling.blocks == 1; }

  // All threads have stored their elements' gradients of another time chunk.
  HASTE_DEVICE void Report(int done) const {
    if (threadIdx.x == 0) SignalFlag(p_.flags.counts + (done / (p_.flags.mask + 1) - 1));
  }

  // --- Uses of memory that is written repeatedly: two slots for every pass

  HASTE_DEVICE int UseOf(int done, int pass) const { return (done & 1) * p_.tiling.passes + pass; }
  HASTE_DEVICE TransactionBarrier* CounterOf(int done, int pass) const {
    return counters_ + UseOf(done, pass);
  }
  // Parity of the use of the slot. In `grid` the first use must have tag 0, because memory begins
  // with all bits set.
  HASTE_DEVICE uint32_t TagOf(int done) const { return done >> 1 & 1; }

  // --- Sums in transit: [slot, pass, receiver (grid), sender, unit tile, row tile, lane]

  // Index among the words of this group (grid) or block (cluster), within a use: this lane's word
  // for row tile 0 of a unit tile of `receiver`.
  HASTE_DEVICE int PlaceOfSums(int receiver, int sender, int unit_tile) const {
    return (kCluster ? 0 : receiver * words_of_pass_) +
           (sender * tiles_of_block_ + unit_tile * kTiles) * 32 + lane_;
  }

  // The first word of a use.
  HASTE_DEVICE int WordsOf(int done, int pass) const { return UseOf(done, pass) * words_of_use_; }
  // Sends the sums of row tile n. to: this lane's word of row tile 0 in this use.
  HASTE_DEVICE void Send(int done, int pass, int receiver, int to, int n, const float (&c)[4]) {
    const int at = to + n * 32;
    if constexpr (kCluster) {
      uint4* word_there = words_ + at;
      const uint4 word = make_uint4(__float_as_uint(c[0]), __float_as_uint(c[1]),
                                    __float_as_uint(c[2]), __float_as_uint(c[3]));
      if (alone()) {
        *word_there = word;
      } else {
        Push(AddressIn(SharedAddress(word_there), receiver), word,
             AddressIn(SharedAddress(CounterOf(done, pass)), receiver));
      }
    } else {
      StoreWhole(words_ + at, make_uint4(__float_as_uint(c[0]), __float_as_uint(c[1]),
                                         __float_as_uint(c[2]), Tagged(c[3], TagOf(done))));
    }
  }

  // Adds up what all blocks have sent in step `done`: each warp one tile, from some of the senders.
  // kSpares: only the warps without elements do it, if there are any, as they have less to do.
  HASTE_DEVICE void Gather(int done, int pass) {
    if (kSpares && warp_ < first_gatherer_) return;
    if (kCluster) {
      if (alone()) {
        __syncthreads();
      } else {
        TransactionBarrier* counter = CounterOf(done, pass);
        if (threadIdx.x == 0) counter->ArriveAndExpect(ReceivedSums(p_.tiling));
        counter->Wait(TagOf(done));
      }
    }
    const int of_sender = tiles_of_block_ * 32, further = sum_parts_ * of_sender;
    const uint4* from = words_ + (WordsOf(done, pass) + PlaceOfSums(rank_, 0, 0) + sum_tile_ * 32 +
                                  sum_part_ * of_sender);
    const uint32_t tag = TagOf(done);
    float sum[4] = {};
    for (int first = sum_part_; first < p_.tiling.senders; first += kAhead * sum_parts_) {
      uint4 words[kAhead];
      // Calls visit(i) for each tile that exists.
      const auto each = [&](const auto& visit) {
        HASTE_UNROLL for (int i = 0; i < kAhead; ++i) {
          if (first + i * sum_parts_ < p_.tiling.senders) visit(i);
        }
      };
      const auto ask = [&](int i) {
        const uint4* at = from + i * further;
        words[i] = kCluster ? *at : LoadWhole(at);
      };
      const auto some_absent = [&] {
        bool all = true;
        each([&](int i) { all &= HasTag(words[i].w, tag); });
        return !__all_sync(0xFFFFFFFFu, all);
      };
      each(ask);
      while (!kCluster && some_absent()) {
        each([&](int i) {
          if (!HasTag(words[i].w, tag)) ask(i);
        });
      }
      each([&](int i) {
        sum[0] += __uint_as_float(words[i].x);
        sum[1] += __uint_as_float(words[i].y);
        sum[2] += __uint_as_float(words[i].z);
        sum[3] += kCluster ? __uint_as_float(words[i].w) : Untagged(words[i].w);
      });
      from += kAhead * further;
    }
    float* to = sums_ + warp_ * kSumTile;
    HASTE_UNROLL for (int i = 0; i < 4; ++i) {
      to[(lane_ % 4 * 2 + i % 2) * kSumStride + lane_ / 4 + i / 2 * 8] = sum[i];
    }
  }
  // This thread's element of the sums, added up over the warps that gathered its tile: 8, or 4 if
  // there are two tiles or if half of the warps gather.
  HASTE_DEVICE float GetSum() const {
    const float* from = sums_ + column_ % 8 * kSumStride + lane_ % 16;
    if (kSpares && first_gatherer_ > 0) {
      return AddFour(from + kPersistentWarps / 2 * kSumTile, kSumTile);
    }
    from += (tile_ * kTiles + column_ / 8) * kSumTile;
    const int stride = tiles_of_block_ * kSumTile;
    const float sum = AddFour(from, stride);
    return sum_parts_ == 4 ? sum : sum + AddFour(from + 4 * stride, stride);
  }
  static HASTE_DEVICE float AddFour(const float* from, int stride) {
    return (from[0] + from[stride]) + (from[2 * stride] + from[3 * stride]);
  }

  // --- A step

  HASTE_DEVICE void CarryOut(int pass) {
    const Element e = Base::ElementOf(pass);
    if (!e.exists) return;
    float ds[kStates];
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) ds[s] = Base::State(pass, s);
    ds[0] = MulAdd(GetSum(), Base::Scale(pass), ds[0]);
    StoreStates<T>(p_.args.ds0, e.at, ds);
  }

  // The inputs of a pass that do not depend on other blocks: the reserve, dy.
  struct Inputs {
    Kept kept;
    T dy;
    StepFlags seen;

    HASTE_DEVICE void Ask(const GradientExchange& run, int step, int pass, const StepPlace& place) {
      const T* all_dy = static_cast<const T*>(run.p_.args.dy);
      if (run.There(pass)) {
        kept.Load(run.p_, place);
        dy = all_dy == nullptr ? FromCompute<T>(0) : all_dy[place.one];
      }
      seen = run.ReadStepFlags(step, pass);
    }
  };

  // Computes the cell's gradients for this thread's element.
  template <class Self>
  HASTE_DEVICE void Finish(Self& self, int done, int pass, const StepPlace& place,
                           const Inputs& inputs, bool multiplies) {
    if (tile_ >= p_.tiling.unit_tiles) return;
    const float scale = Base::Scale(pass);
    float ds[kStates], dx[kGates] = {}, dq[kGates] = {};
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) ds[s] = Base::State(pass, s);
    if (done > 0) ds[0] = MulAdd(GetSum(), scale, ds[0]);
    WalkBackward<Cell, T, 1>(p_, {inputs.seen}, {inputs.kept}, {inputs.dy}, {scale}, OfOne(ds),
                             OfOne(dx), OfOne(dq));
    if (multiplies) self.SetOperand(done, pass, dq);
    HASTE_UNROLL for (int s = 0; s < kStates; ++s) Base::State(pass, s) = ds[s];
    if (Base::There(pass)) StoreBackward<Cell>(p_, place, dx, dq);
  }

  const int tiles_of_block_;

 private:
  const int words_of_pass_, words_of_use_;
  const int first_gatherer_;                   // warps before this one do not gather
  const int sum_tile_, sum_part_, sum_parts_;  // of this warp: tile of sums; part, of how many

 protected:
  TransactionBarrier* const counters_;

 private:
  uint4* const words_;
  float* const sums_;
};

}  // namespace haste
