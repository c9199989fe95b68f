// Where a walk keeps what it has for each row of the batch.
#pragma once

#include <stdint.h>

#include "lib/base/int_math.h"
#include "lib/base/workspace.h"

namespace haste {

// Scratch memory [K, N, width] of C. Where threads walk different rows, these are divided into
// tasks. The rows of a task follow one another, and a page is free between tasks: a core prefetches
// what follows the lines that it reads, within their page. It would take rows away from another
// core, which writes them in each step. With kMostRows rows or more, those of a lane are one task.
template <class C>
class TaskRows {
 public:
  // rows_per_task: in a lane; 0: one thread walks all rows of all lanes, or threads walk together.
  TaskRows(int64_t rows, int64_t lanes, int64_t rows_per_task) : rows_(rows), lanes_(lanes) {
    if (rows_per_task == 0) return;
    gap_ = kPageBytes / sizeof(C);
    if (rows >= kMostRows) return;
    rows_ = rows_per_task;
    tasks_ = CeilDiv(rows, rows_);
    inverse_ = (int64_t{1} << kShift) / rows_ + 1;
  }

  // Rows of a task; the last one may have fewer.
  int64_t rows() const { return rows_; }
  // The first row of the task that row n belongs to.
  int64_t First(int64_t n) const { return Task(n) * rows_; }

  C* Take(Workspace* workspace, int64_t width) const {
    return workspace->Take<C>(lanes_ * tasks_ * (rows_ * width + gap_));
  }
  // Offset of row n of lane k.
  int64_t At(int64_t k, int64_t n, int64_t width) const {
    return (k * tasks_ * rows_ + n) * width + (k * tasks_ + Task(n)) * gap_;
  }

 private:
  static constexpr int64_t kPageBytes = 4096;
  // n / rows_ without a division. Exact, and without overflow, while n · rows_ < 2^kShift.
  static constexpr int kShift = 40;
  static constexpr int64_t kMostRows = int64_t{1} << kShift / 2;
  int64_t Task(int64_t n) const { return n * inverse_ >> kShift; }

  int64_t rows_, lanes_;
  int64_t tasks_ = 1;    // of a lane
  int64_t inverse_ = 0;  // of rows_; 0: all rows are of task 0
  int64_t gap_ = 0;      // elements
};

}  // namespace haste
