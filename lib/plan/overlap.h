// Which of the products around a recurrence a GPU makes beside it, on the multiprocessors that the
// walk leaves free: pure arithmetic.
//
// Forward the walk follows x·W, step by step. Backward the products follow the walk, some steps at
// a time.
#pragma once

#include <stdint.h>

#include <array>

#include "haste/c_api.h"
#include "lib/plan/gemm/gemm.h"
#include "lib/plan/plan.h"

namespace haste {

// Products at work beside a walk on a GPU, on another stream, part by part.
struct OverlapFlags {
  uint32_t* counts = nullptr;  // of each part, 0 before the call; null: there are none
  // Forward: rows of wx of a part, step by step of the walk, not fewer than N. They are there when
  // it counts `wanted`.
  int32_t rows = 0;
  uint32_t wanted = 0;
  // And so many parts further on, where lanes walk both ways, those of the ones that walk
  // backwards: the first of these parts lacks some steps, which are no fraction of it.
  int32_t chunks = 0, missing = 0;
  uint32_t wanted_backwards = 0;
  // Backward: a power of two less one, the steps of a part. Each block counts when it has left
  // those, but not after the last part.
  int32_t mask = -1;

  // Forward: calls wait(part, wanted) for each part more that a step reads. steps_there: of so many
  // steps all were waited for; backwards with those that are missing. 0 at first.
  template <class Wait>
  constexpr void Await(int32_t n, bool backwards, int32_t step, int32_t* steps_there,
                       const Wait& wait) const {
    backwards = backwards && chunks > 0;
    if (backwards) step += missing;
    while (step >= *steps_there) {
      const int32_t chunk = (*steps_there * n + rows - 1) / rows;
      wait(chunk + (backwards ? chunks : 0), backwards ? wanted_backwards : wanted);
      *steps_there = (chunk + 1) * rows / n;
    }
  }
};

// x·W, of which the walk waits for what it reads.
struct OverlappedInput {
  ProductPlan product;  // for the pairs of blocks that it has; not `ours`: the walk comes after it
  TileOrder order;      // as the lanes walk, of rows step by step
  // So many rows of tiles come before the walk, made by all pairs of the GPU: the walk would have
  // to wait for them.
  int rows_before = 0, all_pairs = 0;
};
// plan: of this direction of the walk, here and below.
OverlappedInput PlanOverlappedInput(const HasteRnnConfig&, const HasteCellInfo&, int64_t features,
                                    const Plan& plan, const CudaProperties&);

// That order. false: there is none, as lanes that walk both ways do not lie forwards first or
// backwards first, in whole tiles, or steps are a fraction of one.
bool InputOrder(const HasteRnnConfig&, const HasteGemm& input, TileOrder* order);

// Which parts of it a walk waits for; but for the counts.
OverlapFlags InputFlags(const HasteRnnConfig&, const TileOrder& order);

struct OverlappedGradients {
  int64_t steps = 0;    // of a part, but the last: a power of two
  int64_t chunks = 0;   // 0: all products come after the walk
  int blocks = 0;       // of the walk
  bool cublas = false;  // makes dx; else it is ours, as those of W and R are

  bool IsLast(int64_t chunk) const { return chunk + 1 == chunks; }
  int64_t StepsOf(int64_t chunk, int64_t time) const {
    return IsLast(chunk) ? time - chunk * steps : steps;
  }
};
OverlappedGradients PlanOverlappedGradients(const HasteRnnConfig&, const HasteCellInfo&,
                                            int64_t features, const Plan& plan,
                                            const CudaProperties&);

// Some times of a layer, one after the other.
struct Times {
  int64_t first, count;
};

// Which ones all lanes have left, where they walk both ways, once `to` steps of `time` are done,
// and not yet after `from`: none, those in the middle, or as many before them as behind them. What
// there is not has a count of 0.
std::array<Times, 2> CompletedTimes(int64_t from, int64_t to, int64_t time);

// xᵀ·dwx of one lane, and hᵀ·dwx below it, which read the same dwx: one product. lanes: of which
// xᵀ·dwx is one.
bool WeightsAreOne(const HasteCellInfo&, int64_t lanes);

// Bytes that a part's product may take.
constexpr int64_t kChunkRoom = 96 << 20;

// The first lane after k that walks the other way, or the number of lanes.
int64_t EndOfDirection(const HasteRnnConfig&, int64_t k);
// Whether all lanes walk in one direction.
bool OneDirection(const HasteRnnConfig&);

}  // namespace haste
