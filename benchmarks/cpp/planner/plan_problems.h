// What plan_timings times: recurrences, in one order whatever the machine, and cuts of each.
#ifndef HASTE_BENCHMARKS_CPP_PLANNER_PLAN_PROBLEMS_H_
#define HASTE_BENCHMARKS_CPP_PLANNER_PLAN_PROBLEMS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "benchmarks/cpp/planner/plan_rows.h"

namespace benchmark {

// Draws one of a list.
class Draws {
 public:
  template <class T, size_t kCount>
  T Of(const T (&list)[kCount]) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return list[(state_ >> 33) % kCount];
  }

 private:
  uint64_t state_ = 1;
};

// First those whose plans tests pin, with all cuts that may be the best; then drawn ones, with some
// cuts.
class Problems {
 public:
  // false: there are no more.
  bool Next(Problem*);
  // Of the last problem: of each engine the cut that it would take, and others.
  std::vector<Cut> CutsOf(const Problem&, const haste::CudaProperties&);

 private:
  static constexpr size_t kMostProblems = 5000;

  Draws draws_;
  std::set<Problem> seen_;
  size_t next_ = 0;
  bool pinned_ = false;
};

// Drawn ones in which R may be stationary: in 16 bits, then of cells that normalise h·R, then of
// floats.
class StationaryProblems {
 public:
  bool Next(Problem*);
  // All cuts in which R is stationary, and of each engine that may be faster the cut that it would
  // take.
  std::vector<Cut> CutsOf(const Problem&, const haste::CudaProperties&);

 private:
  static constexpr size_t kPlainDraws = 1500, kWithNormalizing = 1900, kDraws = 2500;

  Draws draws_;
  std::set<Problem> seen_;
  size_t drawn_ = 0;
};

}  // namespace benchmark

#endif  // HASTE_BENCHMARKS_CPP_PLANNER_PLAN_PROBLEMS_H_
