// The forward walk of the engine `block`.
#pragma once

#include "lib/cuda/block/product.cuh"

namespace haste {

template <class T>
using BlockForwardParams = BlockParams<T, HasteRnnForwardArgs>;

template <class Cell, class T, int kRows, bool kCluster, bool kOdd>
class BlockForwardRun : BlockWalk<Cell, BlockForwardParams<T>, kRows, kCluster, kOdd, false> {
  using Base = BlockWalk<Cell, BlockForwardParams<T>, kRows, kCluster, kOdd, false>;
  using Base::computes_, Base::k_, Base::p_, Base::reverse_, Base::scale_, Base::scales_,
      Base::state_;
  using Base::kElements, Base::kGates, Base::kStates, Base::kValues;
  using typename Base::Stores;
  static constexpr int kSaved = SavedTensors<Cell>();
  static constexpr bool kBounded = kScaledTerms<T> > 0;

 public:
  HASTE_DEVICE explicit BlockForwardRun(const BlockForwardParams<T>& p) : Base(p) {}

  HASTE_DEVICE void Walk() {
    void* const read[] = {const_cast<void*>(p_.args.wx)};
    void* written[2 + kSaved] = {p_.args.keep ? p_.args.gates : nullptr, p_.args.y};
    HASTE_UNROLL for (int i = 0; i < kSaved; ++i) {
      written[2 + i] = p_.args.keep ? p_.args.saved[i] : nullptr;
    }
    if (Base::copies()) {
      Base::Copy(read, written);
      return;
    }
    Base::ClearOperand();
    Base::FindScales();
    Base::LoadTiles();
    Base::LoadStates(p_.args.s0);
    Base::EndClear();
    const Stores first(*this, 0);
    HASTE_UNROLL for (int e = 0; e < kElements; ++e) Put(first, e, state_[e][0] * scale_[e]);
    Base::Send(first);
    Base::EndStep();
    Places places[kElements];
    HASTE_UNROLL for (int e = 0; e < kElements; ++e) places[e] = Places(*this, e);
    RecurrentBias<Cell, T> bias;
    bias.Load(p_, k_, Base::Unit(), Base::Unit() < p_.H);
    const int steps = static_cast<int>(p_.T_);
    auto reading = Base::PipelineReader();
    auto writing = Base::PipelineWriter();
    for (int step = 0; step < steps; ++step) {
      StepFlags seen[kElements];
      T x[kElements][kGates];
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        seen[e] = Base::ReadStepFlagsOfElement(e, step);
        HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
          x[e][g] = reading.now[places[e].x + g * Base::units()];
        }
      }
      const Stores stores(*this, (step + 1) & 1);
      float before[kElements][kStates], kept[kElements][Cell::kKept] = {};
      float next[kElements][kStates], y[kElements];
      float products[kElements][kValues];
      Base::Multiply(step, products);
      WalkForward<Cell, T, kElements>(
          p_, seen, x, scale_, state_,
          [&](float (&q)[kElements][kGates]) {
            HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
              HASTE_UNROLL for (int g = 0; g < kGates; ++g) {
                const float product = kBounded ? products[e][g] * scales_.product : products[e][g];
                q[e][g] = bias.AddedTo(product, g);
              }
            }
          },
          before, kept, next, y);
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        Put(stores, e, next[e][0] * scale_[e]);
        HASTE_UNROLL for (int s = 0; s < kStates; ++s) state_[e][s] = next[e][s];
      }
      if (step + 1 < steps) Base::Send(stores);
      HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
        if (!computes_[e]) continue;
        StoreForward<Cell>(RowAt(places[e], writing.now), StepPlace(0, 0, 0, 0), y[e], before[e],
                           kept[e]);
      }
      Base::EndStep();
      reading.Advance();
      writing.Advance();
    }
    HASTE_UNROLL for (int e = 0; e < kElements; ++e) {
      const Element element = Base::ElementOf(e);
      if (element.exists) StoreStates<T>(p_.args.sT, element.at, state_[e]);
    }
    Base::EndWalk();
  }

 private:
  HASTE_DEVICE void Put(const Stores& at, int e, float h) const {
    Base::Put(at, e, {kBounded ? h * scales_.state : h});
  }

  // Where an element is in the rows of a step: its first gate of wx, its first gate, y.
  struct Places {
    int x, gates, y;

    Places() = default;
    HASTE_DEVICE Places(const BlockForwardRun& run, int e) {
      const int row = run.RowOf(e), unit = run.Unit() - run.BlockUnit();
      x = Opaque(run.computes_[e] ? run.Reads().At(0, row) + unit : 0);
      gates = Opaque(run.Writes().At(0, row) + unit);
      y = Opaque(run.Writes().At(1, row) + unit);
    }
  };
  HASTE_DEVICE StepRow<T> RowAt(const Places& at, T* written) const {
    StepRow<T> row;
    row.H = Base::units();
    row.args.gates = written + at.gates;
    row.args.y = written + at.y;
    HASTE_UNROLL for (int i = 0; i < kSaved; ++i) {
      row.args.saved[i] = row.args.y + (i + 1) * Base::Writes().narrow_tensor();
    }
    row.args.keep = p_.args.keep != 0;
    return row;
  }
};

template <class Cell, class T, int kRows, bool kCluster, bool kOdd>
__global__ void __launch_bounds__((kMaxBlockThreads<Cell, T, kCluster>), 1)
    BlockForward(const __grid_constant__ BlockForwardParams<T> p) {
  if constexpr (HasBlockCode(kCluster, kOdd)) {
    BlockForwardRun<Cell, T, kRows, kCluster, kOdd>(p).Walk();
  }
}

}  // namespace haste
