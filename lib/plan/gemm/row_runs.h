// Rows of a product that do not simply follow one another in memory: for example, from x [N, T, C],
// some steps of each row of the batch, or all of them, step by step.
#pragma once

#include <stdint.h>

namespace haste {

#ifdef __CUDACC__
#define HASTE_ROW_RUNS_FN __host__ __device__ constexpr
#else
#define HASTE_ROW_RUNS_FN constexpr
#endif

// Runs of `run` rows, `inner` rows of memory apart. Each run begins `outer` rows after the previous
// one. run = 0: rows as they are in memory. Runs have fewer than 2^31 rows.
struct RowRuns {
  int64_t run = 0, outer = 0, inner = 1;

  HASTE_ROW_RUNS_FN int64_t At(int64_t row) const {
    if (run == 0) return row;
    const uint32_t r = static_cast<uint32_t>(row), of = static_cast<uint32_t>(run);
    return r / of * outer + r % of * inner;
  }
};

// Walks along them.
class RowCursor {
 public:
  HASTE_ROW_RUNS_FN RowCursor(const RowRuns& runs, int64_t first)
      : inner_(runs.inner),
        wrap_(runs.outer - runs.run * runs.inner),
        run_(runs.run == 0 ? UINT32_MAX : static_cast<uint32_t>(runs.run)),
        left_(run_ - (runs.run == 0 ? 0 : static_cast<uint32_t>(first) % run_)),
        at_(runs.At(first)) {}

  HASTE_ROW_RUNS_FN int64_t at() const { return at_; }
  HASTE_ROW_RUNS_FN void Next() {
    at_ += inner_;
    if (--left_ > 0) return;
    at_ += wrap_;
    left_ = run_;
  }

 private:
  const int64_t inner_, wrap_;
  const uint32_t run_;
  uint32_t left_;
  int64_t at_;
};

}  // namespace haste
