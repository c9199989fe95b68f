// The forward walk of a persistent kernel: h goes to all blocks of the group. Each multiplies it by
// its units' columns of R and computes the next h of its units.
//
// The warps that multiply also have the elements; the I/O warps (IoWarps) read and write memory for
// them. A pass has one barrier after the product (`cluster`: one more where sums have one buffer)
// and one with the I/O warps. Everything else stays within a thread. What other blocks wait for
// comes first: h is sent before anything of its step is stored.
#pragma once

#include "lib/cuda/persistent/io_warps.cuh"
#include "lib/cuda/persistent/product.cuh"
#include "lib/cuda/persistent/warp_specialized.cuh"
#include "lib/cuda/ptx/cluster.cuh"
#include "lib/cuda/ptx/global_flags.cuh"

namespace haste {

template <class Cell, class T, int kTiles, ForwardWay kWay>
class PersistentForwardRun : PersistentProduct<Cell, T, kTiles, kWay> {
  using Base = PersistentProduct<Cell, T, kTiles, kWay>;
  using Base::alone, Base::column_, Base::kCluster, Base::kGates, Base::kRows, Base::lane_,
      Base::p_, Base::Sizes, Base::tile_, Base::two_buffers_, Base::warp_;
  using typename Base::Params, typename Base::Words;

 public:
  HASTE_DEVICE explicit PersistentForwardRun(const Params& p)
      : PersistentForwardRun(p, ForwardLayout(p.tiling, Sizes(), kCluster)) {}

  // Called by the warps that multiply. RunProducer is called by the I/O warps.
  HASTE_DEVICE void Multiply() {
    Base::Prepare();
    if constexpr (kScaledTerms<T> > 0) Base::FindScales();
    Base::LoadTiles();
    Base::SendFirst();
    Walk();
    Leave();
  }
  HASTE_DEVICE void RunProducer() {
    Base::Prepare();
    IoWarps<Cell, T, kTiles, kWay>(p_, *this, at_, some_idle_).Serve();
    Leave();
  }

 private:
  HASTE_DEVICE PersistentForwardRun(const Params& p, const ForwardLayout& at)
      : Base(p, at),
        at_(at),
        has_elements_(tile_ < p.tiling.unit_tiles),
        some_idle_(p.tiling.unit_tiles * kTiles == 1),
        clears_(Base::PlaceToClear(lane_)),
        seen_(persistent_shared + at.seen + OpaqueOfThread(threadIdx.x)),
        read_step_(PersistentReads(p.tiling, Sizes()).step()),
        written_step_(PersistentWrites(p.tiling, Sizes()).step()),
        read_(reinterpret_cast<T*>(persistent_shared + at.reads) +
              Opaque(PersistentReads(p.tiling, Sizes()).At(0, column_) + BlockUnit())),
        gates_(reinterpret_cast<T*>(persistent_shared + at.writes) +
               Opaque(PersistentWrites(p.tiling, Sizes()).At(0, column_) + BlockUnit())),
        y_(reinterpret_cast<T*>(persistent_shared + at.writes) +
           Opaque(PersistentWrites(p.tiling, Sizes()).At(1, column_) + BlockUnit())) {}

  // This thread's unit in the block.
  HASTE_DEVICE int BlockUnit() const { return tile_ * kTileRows + lane_ % 16; }

  // A block may not exit while other blocks may still write to its shared memory.
  HASTE_DEVICE void Leave() const {
    if (kCluster && !alone()) ClusterSync();
  }

  HASTE_DEVICE void Walk() {
    Words words = {};
    AskStates(0, 0, words);
    int buffer = 0, step = 0, pass = 0;
    do {
      if (!kCluster) SyncRows();  // while h is in transit
      // The previous sums have been read: in `grid` since SyncRows.
      Base::MultiplyStates(step, pass, buffer, words, [&] {
        if (kCluster && !two_buffers_) SyncProduct();
      });
      if (kCluster) {
        SyncRows();
      } else {
        SyncProduct();
      }
      const bool wraps = pass + 1 == p_.tiling.passes;
      const int next_step = wraps ? step + 1 : step, next_pass = wraps ? 0 : pass + 1;
      const auto ask = [&] {
        if (next_step < p_.T_) AskStates(next_step, next_pass, words);
      };
      if (has_elements_) {
        Finish(step, pass, buffer, ask);
      } else {
        if (!kCluster && warp_ == kPersistentWarps - 1) {
          Base::Clear(step, pass, clears_);
          FenceRelease();
        }
        ask();
      }
      step = next_step;
      pass = next_pass;
      buffer ^= 1;
    } while (step < p_.T_);
    SyncRows();  // the last results are in shared memory
  }

  // Loads the first words of h early, if arrivals are not counted.
  HASTE_DEVICE void AskStates(int step, int pass, Words& words) const {
    if constexpr (!kCluster) {
      // Not before the warps that have elements get here: no h can have arrived earlier.
      if (some_idle_) SyncAt<kElementsName, kPersistentWarps>();
      Base::AskFirst(step, pass, words);
    }
  }

  // Runs the cell. The I/O warps have put its inputs in shared memory, and will copy its results
  // from there. ask() is called after the results are stored.
  template <class Ask>
  HASTE_DEVICE void Finish(int step, int pass, int buffer, const Ask& ask) const {
    Base::MakeStates(
        step, pass, Base::Enter(step, pass, buffer),
        [&](StepFlags* seen, T(&x)[kGates]) {
          *seen = UnpackStepFlags(seen_[buffer * kPersistentElements]);
          seen->live &= Base::There(pass);
          HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
            x[g] = read_[buffer * read_step_ + g * p_.tiling.units()];
          }
        },
        [&](const auto&... left) {
          StoreForward<Cell>(RowAt(buffer), StepPlace(0, 0, 0, 0), left...);
          ask();
        });
  }

  // Where the results of this thread's element go in a pass.
  HASTE_DEVICE StepRow<T> RowAt(int buffer) const {
    StepRow<T> row;
    row.H = p_.tiling.units();
    row.args.gates = gates_ + buffer * written_step_;
    row.args.y = y_ + buffer * written_step_;
    HASTE_UNROLL for (int i = 0; i < SavedTensors<Cell>(); ++i) {
      row.args.saved[i] = row.args.y + (i + 1) * kRows * p_.tiling.units();
    }
    row.args.keep = p_.args.keep != 0;
    return row;
  }

  const ForwardLayout at_;
  const bool has_elements_, some_idle_;
  const int clears_;  // words of h to clear, used where some warps have no elements
  // For this thread's element: its step flags, its first gate of wx and of the gates, its y.
  const unsigned char* const seen_;
  const int read_step_, written_step_;
  const T* const read_;
  T *const gates_, *const y_;
};

template <class Cell, class T, int kTiles, ForwardWay kWay>
__global__ void __launch_bounds__(ForwardRoles<kWay>::kThreads, 1)
    PersistentForward(const __grid_constant__ PersistentForwardParams<T> p) {
  if constexpr (HasOnChipCode(kWay != ForwardWay::kGrid)) {
    using Run =
        std::conditional_t<kWay == ForwardWay::kGridWarpSpecialized, WarpSpecializedRun<Cell, T>,
                           PersistentForwardRun<Cell, T, kTiles, kWay>>;
    using Registers = ForwardRegisters<Cell, T, kWay>;
    if (threadIdx.x >= kPersistentWarps * 32) {
      DeallocateRegisters<Registers::kRest>();
      Run(p).RunProducer();
    } else {
      AllocateRegisters<Registers::kProduct>();
      Run(p).Multiply();
    }
  }
}

}  // namespace haste
