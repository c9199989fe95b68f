// Scratch of rows: no two share memory, those of a task follow one another, and between tasks is a
// page.
#include "lib/cpu/engines/task_rows.h"

#include <stdint.h>

#include <cstddef>
#include <random>

#include "lib/base/workspace.h"
#include "tests/lib/check.h"

namespace haste_test {
namespace {

using haste::TaskRows;
using haste::Workspace;

constexpr int64_t kPageBytes = 4096;

template <class C>
void Test(int64_t rows, int64_t lanes, int64_t of_task, int64_t width) {
  const TaskRows<C> layout(rows, lanes, of_task);
  Workspace count(nullptr);
  layout.Take(&count, width);
  const int64_t total = count.used() / sizeof(C);
  int64_t end = 0;  // of the row before
  for (int64_t k = 0; k < lanes; ++k) {
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t at = layout.At(k, n, width), first = n / of_task * of_task;
      const bool begins = n % of_task == 0, apart = begins && (k > 0 || n > 0);
      EXPECT_TRUE(layout.First(n) == first, "row %ld of %ld, %ld a task: first is %ld", long(n),
                  long(rows), long(of_task), long(layout.First(n)));
      EXPECT_TRUE(begins || at == end, "row %ld of %ld, %ld a task: at %ld after %ld", long(n),
                  long(rows), long(of_task), long(at), long(end));
      EXPECT_TRUE(at - end >= (apart ? kPageBytes / int64_t{sizeof(C)} : 0),
                  "row %ld of %ld, %ld a task: at %ld after %ld", long(n), long(rows),
                  long(of_task), long(at), long(end));
      end = at + width;
    }
  }
  EXPECT_TRUE(total >= end + kPageBytes / int64_t{sizeof(C)}, "%ld rows: %ld elements, %ld in use",
              long(rows), long(total), long(end));
}

void TestTogether() {
  const TaskRows<float> layout(7, 2, 0);
  Workspace count(nullptr);
  layout.Take(&count, 16);
  EXPECT_TRUE(count.used() == 2 * 7 * 16 * sizeof(float), "%zu bytes", count.used());
  EXPECT_TRUE(layout.At(1, 3, 16) == (7 + 3) * 16, "at %ld", long(layout.At(1, 3, 16)));
  EXPECT_TRUE(layout.rows() == 7 && layout.First(6) == 0, "%ld rows", long(layout.rows()));
}

// Divisions at the ends of tasks, where they would be wrong first, up to the most rows that are
// divided.
void TestMany(std::mt19937* random) {
  for (int i = 0; i < 2000; ++i) {
    const int64_t most = (1 << 20) - 1, rows = i < 500 ? most : 2 + (*random)() % (most - 1);
    const int64_t of_task = 1 + (*random)() % (rows - 1);
    const TaskRows<float> layout(rows, 1, of_task);
    for (int64_t task = (*random)() % (rows / of_task), n = task * of_task; n < rows;
         n += of_task * (1 + rows / of_task / 50)) {
      const int64_t last = n + of_task - 1;
      EXPECT_TRUE(layout.First(n) == n, "row %ld, %ld a task", long(n), long(of_task));
      if (last < rows) {
        EXPECT_TRUE(layout.First(last) == n, "row %ld, %ld a task", long(last), long(of_task));
      }
    }
  }
}

void TestHuge() {  // too many rows to tell tasks apart: they follow one another
  const int64_t rows = int64_t{1} << 33;
  const TaskRows<float> layout(rows, 2, rows / 64);
  EXPECT_TRUE(layout.rows() == rows && layout.First(rows - 1) == 0, "%ld rows a task",
              long(layout.rows()));
  EXPECT_TRUE(layout.At(0, rows - 1, 16) == (rows - 1) * 16, "at %ld",
              long(layout.At(0, rows - 1, 16)));
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int64_t rows : {1, 2, 5, 18, 64, 1000}) {
    for (int64_t of_task : {int64_t{1}, int64_t{3}, (rows + 1) / 2, rows}) {
      if (of_task > rows) continue;
      haste_test::Test<float>(rows, 1, of_task, 16);
      haste_test::Test<double>(rows, 2, of_task, 24);
      haste_test::Test<float>(rows, 3, of_task, 1040);
    }
  }
  haste_test::TestTogether();
  haste_test::TestMany(&random);
  haste_test::TestHuge();
  return haste_test::Report("task_rows_test");
}
