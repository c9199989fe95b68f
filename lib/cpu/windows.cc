// haste_windows on the CPU.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/windows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "lib/base/causal_windows.h"
#include "lib/base/dtypes.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/simd-inl.h"
#include "lib/cpu/threads/team.h"

HASTE_TARGET_BEGIN

namespace {

// to = the sum of `rows`, each [features].
template <class T>
void Sum(const std::vector<const void*>& rows, int64_t features, void* to) {
  using C = Compute<T>;
  for (int64_t j = 0; j < features; j += Width<C>()) {
    Vec<C> sum;
    for (const void* row : rows) {
      sum = sum + LoadPart(static_cast<const T*>(row) + j, features - j);
    }
    StorePart(sum, static_cast<T*>(to) + j, features - j);
  }
}

void SumOf(int32_t dtype, const std::vector<const void*>& rows, int64_t features, void* to) {
  WithDtype(dtype, [&](auto of) { Sum<decltype(of)>(rows, features, to); });
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

constexpr int64_t kStepsOfTask = 64;

// Calls step(n, t) for each step of each row, and row(n) once a row.
template <class Args, class Step, class Row>
void ForEach(const Args& args, const HasteExecutor& executor, const Step& step, const Row& row) {
  const int64_t blocks = args.time / kStepsOfTask + 1;
  ParallelFor(executor, args.batch * blocks, [&](int64_t task) {
    const int64_t n = task / blocks, first = task % blocks * kStepsOfTask;
    for (int64_t t = first; t < std::min(args.time, first + kStepsOfTask); ++t) step(n, t);
    if (first == 0) row(n);
  });
}

}  // namespace

int32_t CpuWindows(const HasteWindows& args, const HasteExecutor& executor, HasteStatus*) {
  const int64_t known = args.window - 1;
  const size_t bytes = args.features * DtypeSize(args.dtype);
  // Copies the input of place (t, b) of row n to row `to_row` of `to`.
  const auto copy = [&](void* to, int64_t to_row, int64_t n, int64_t t, int64_t b) {
    char* const place = static_cast<char*>(to) + to_row * bytes;
    const bool walked = t != WindowWalk::kNone;
    const void* from = walked ? args.x : args.before;
    const int64_t row = walked ? n * args.time + t : n * known + b;
    if (from == nullptr) {
      memset(place, 0, bytes);
    } else {
      memcpy(place, static_cast<const char*>(from) + row * bytes, bytes);
    }
  };
  ForEach(
      args, executor,
      [&](int64_t n, int64_t t) {
        const WindowWalk walk(args, n);
        const int64_t to = (n * args.time + t) * args.window;
        if (!walk.IsLive(t)) {
          memset(static_cast<char*>(args.seen) + to * bytes, 0, args.window * bytes);
          return;
        }
        walk.Backwards(known, t, [&](int64_t k, int64_t step, int64_t b) {
          copy(args.seen, to + k, n, step, b);
        });
      },
      [&](int64_t n) {
        if (args.after == nullptr) return;
        const WindowWalk walk(args, n);
        walk.Backwards(known - 1, walk.Last(), [&](int64_t k, int64_t step, int64_t b) {
          copy(args.after, n * known + k, n, step, b);
        });
      });
  return HASTE_OK;
}

int32_t CpuWindowsGrad(const HasteWindowsGrad& args, const HasteExecutor& executor, HasteStatus*) {
  const int64_t known = args.window - 1;
  const size_t bytes = args.features * DtypeSize(args.dtype);
  // Row `to_row` of `to` = the sum of the gradients of all places that hold place k of step t.
  const auto collect = [&](void* to, int64_t to_row, const WindowWalk& walk, int64_t n, int64_t k,
                           int64_t t) {
    std::vector<const void*> rows;
    walk.Onwards(k, t, [&](int64_t place, int64_t step) {
      const bool walked = step != WindowWalk::kNone;
      const void* from = walked ? args.dseen : args.dafter;
      const int64_t row = walked ? (n * args.time + step) * args.window + place : n * known + place;
      if (from != nullptr) rows.push_back(static_cast<const char*>(from) + row * bytes);
    });
    HASTE_DISPATCH(SumOf)
    (args.dtype, rows, args.features, static_cast<char*>(to) + to_row * bytes);
  };
  ForEach(
      args, executor,
      [&](int64_t n, int64_t t) {
        if (args.dx == nullptr) return;
        const WindowWalk walk(args, n);
        if (walk.IsLive(t)) return collect(args.dx, n * args.time + t, walk, n, known, t);
        memset(static_cast<char*>(args.dx) + (n * args.time + t) * bytes, 0, bytes);
      },
      [&](int64_t n) {
        if (args.dbefore == nullptr) return;
        const WindowWalk walk(args, n);
        for (int64_t b = 0; b < known; ++b) {
          collect(args.dbefore, n * known + b, walk, n, b, walk.First());
        }
      });
  return HASTE_OK;
}

}  // namespace haste
#endif  // HWY_ONCE
