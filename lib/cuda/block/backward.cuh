// The backward walk of the engine `block`: each warp computes dh of some units from the gates'
// gradients of all units.
#pragma once

#include "lib/cuda/block/product.cuh"

namespace haste {

template <class T>
using BlockBackwardParams = BlockParams<T, HasteRnnBackwardArgs>;

template <class Cell, class T, int kRows, bool kCluster, bool kOdd>
class BlockBackwardRun : BlockWalk<Cell, BlockBackwardParams<T>, kRows, kCluster, kOdd, true> {
  using Base = BlockWalk<Cell, BlockBackwardParams<T>, kRows, kCluster, kOdd, true>;
  using Base::computes_, Base::p_, Base::reverse_, Base::scale_, Base::scales_, Base::state_;
  using Base::kDepths, Base::kElements, Base::kGates, Base::kStates;
  using typename Base::Stores;
  static constexpr int kSaved = SavedTensors<Cell>();

 public:
  HASTE_DEVICE explicit BlockBackwardRun(const BlockBackwardParams<T>& p) : Base(p) {}

  // Steps are counted in walk order, from the last one on: `done` is the number of steps before.
  HASTE_DEVICE void Walk() {
    void* read[2 + kSaved] = {const_cast<void*>(p_.args.gates)};
    HASTE_UNROLL for (int i = 0; i < kSaved; ++i) read[1 + i] = const_cast<void*>(p_.args.saved[i]);
    read[1 + kSaved] = const_cast<void*>(p_.args.dy);
    void* written[1 + Cell::kSplitsGradient] = {p_.args.dwx};
    if constexpr (Cell::kSplitsGradient) written[1] = p_.args.dq;
    if (Base::copies()) {
      Base::Copy(read, written);
      return;
    }
    Base::ClearOperand();
    Base::FindScales();
    Base::LoadTiles();
    Base::LoadStates(p_.args.dsT);
    bool wants_initial = false;
    for (int s = 0; s < kStates; ++s) wants_initial |= p_.args.ds0[s] != nullptr;
    Base::EndClear();
    Base::EndStep();
    Places places[kElements];
    HASTE_UNROLL for (int e = 0; e < kElements; ++e) places[e] = Places(*this, e);
    const int steps = static_cast<int>(p_.T_);
    auto reading = Base::PipelineReader();
    auto writing = Base::PipelineWriter();
    for (int done = 0; done < steps; ++done) {
      StepFlags seen[kElements];
      Reserve<Cell, T, kGates> kept[kElements];
      T dy[kElements];
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        seen[e] = Base::ReadStepFlagsOfElement(e, steps - 1 - done);
        const StepRow<T> row = RowAt(places[e], reading.now, writing.now);
        kept[e].Load(row, StepPlace(0, 0, 0, 0));
        dy[e] = p_.args.dy == nullptr ? FromCompute<T>(0) : *row.args.y;
      }
      const Stores stores(*this, done & 1);
      if (done > 0) AddProduct(done - 1);
      float dx[kElements][kGates] = {}, dq[kElements][kGates] = {};
      WalkBackward<Cell, T, kElements>(p_, seen, kept, dy, scale_, state_, dx, dq);
      float depths[kElements][kDepths] = {};
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        HASTE_UNROLL for (int g = 0; g < kGates; ++g) depths[e][g] = dq[e][g];
      }
      Base::ScaleRows(stores.use, depths);
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) Base::Put(stores, e, depths[e]);
      if (wants_initial || done + 1 < steps) Base::Send(stores);
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        if (!computes_[e]) continue;
        StoreBackward<Cell>(RowAt(places[e], reading.now, writing.now), StepPlace(0, 0, 0, 0),
                            dx[e], dq[e]);
      }
      Base::EndStep();
      reading.Advance();
      writing.Advance();
    }
    if (wants_initial) {
      AddProduct(steps - 1);
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        const Element element = Base::ElementOf(e);
        if (element.exists) StoreStates<T>(p_.args.ds0, element.at, state_[e]);
      }
    }
    Base::EndWalk();
  }

 private:
  HASTE_DEVICE void AddProduct(int done) {
    float dh[kElements][1];
    Base::Multiply(done, dh);
    HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
      if constexpr (Base::kScalesRows) dh[e][0] *= scales_.product;
      state_[e][0] = MulAdd(dh[e][0], scale_[e], state_[e][0]);
    }
  }

  // Where an element is in the rows of a step: its first gate, its first saved state, its first
  // gate of dwx.
  struct Places {
    int gates, saved, dwx;

    Places() = default;
    HASTE_DEVICE Places(const BlockBackwardRun& run, int e) {
      const int row = run.RowOf(e), unit = run.Unit() - run.BlockUnit();
      gates = Opaque(run.computes_[e] ? run.Reads().At(0, row) + unit : 0);
      saved = Opaque(run.computes_[e] ? run.Reads().At(1, row) + unit : 0);
      dwx = Opaque(run.Writes().At(0, row) + unit);
    }
  };
  // StepRow's y stands for dy.
  HASTE_DEVICE StepRow<T> RowAt(const Places& at, T* read, T* written) const {
    StepRow<T> row;
    row.H = Base::units();
    row.args.gates = read + at.gates;
    HASTE_UNROLL for (int i = 0; i < kSaved; ++i) {
      row.args.saved[i] = read + at.saved + i * Base::Reads().narrow_tensor();
    }
    row.args.y = read + at.saved + kSaved * Base::Reads().narrow_tensor();
    row.args.dwx = written + at.dwx;
    row.args.dq = row.args.dwx + Base::Writes().wide_tensor();
    return row;
  }
};

template <class Cell, class T, int kRows, bool kCluster, bool kOdd>
__global__ void __launch_bounds__((kMaxBlockThreads<Cell, T, kCluster>), 1)
    BlockBackward(const __grid_constant__ BlockBackwardParams<T> p) {
  if constexpr (HasBlockCode(kCluster, kOdd)) {
    BlockBackwardRun<Cell, T, kRows, kCluster, kOdd>(p).Walk();
  }
}

}  // namespace haste
