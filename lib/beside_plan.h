// Which of the products around a recurrence a GPU makes beside it, on the multiprocessors that the
// walk leaves free: pure arithmetic.
//
// Forward the walk follows x·W, step by step. Backward the products follow the walk, some steps at
// a time.
#ifndef HASTE_LIB_BESIDE_PLAN_H_
#define HASTE_LIB_BESIDE_PLAN_H_

#include <stdint.h>

#include <array>

#include "lib/engine.h"
#include "lib/haste/c_api.h"
#include "lib/plan.h"
#include "lib/product_plan.h"

namespace haste {

// x·W, of which the walk waits for what it reads.
struct InputBeside {
  ProductPlan product;  // for the pairs of blocks that it has; not `ours`: the walk comes after it
  TileOrder order;      // as the lanes walk, of rows step by step
  // So many rows of tiles come before the walk, made by all pairs of the GPU: the walk would have
  // to wait for them.
  int rows_before = 0, all_pairs = 0;
};
// plan: of this direction of the walk, here and below.
InputBeside PlanInputBeside(const HasteRnnConfig&, const HasteCellInfo&, int64_t features,
                            const Plan& plan, const CudaProperties&);

// That order. false: there is none, as lanes that walk both ways do not lie forwards first or
// backwards first, in whole tiles, or steps are a fraction of one.
bool InputOrder(const HasteRnnConfig&, const HasteGemm& input, TileOrder* order);

// Which parts of it a walk waits for; but for the counts.
Watch InputWatched(const HasteRnnConfig&, const TileOrder& order);

struct GradientsBeside {
  int64_t steps = 0;    // of a part, but the last: a power of two
  int64_t parts = 0;    // 0: all products come after the walk
  int blocks = 0;       // of the walk
  bool cublas = false;  // makes dx; else it is ours, as those of W and R are

  bool IsLast(int64_t part) const { return part + 1 == parts; }
  int64_t StepsOf(int64_t part, int64_t time) const {
    return IsLast(part) ? time - part * steps : steps;
  }
};
GradientsBeside PlanGradientsBeside(const HasteRnnConfig&, const HasteCellInfo&, int64_t features,
                                    const Plan& plan, const CudaProperties&);

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
constexpr int64_t kPartRoom = 96 << 20;

// The first lane behind k that walks the other way, or the number of lanes.
int64_t EndOfDirection(const HasteRnnConfig&, int64_t k);
// Whether all lanes walk in one direction.
bool OneDirection(const HasteRnnConfig&);

}  // namespace haste

#endif  // HASTE_LIB_BESIDE_PLAN_H_
