// c = a·b + bias on the CPU, for callers of the C++ API that link no BLAS. It uses the recurrence's
// micro-kernel and packs one block at a time, in no memory of the caller's.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/gemm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "lib/base/int_math.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/product/pack-inl.h"
#include "lib/cpu/product/product-inl.h"
#include "lib/cpu/threads/team.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

// A task's part of c: rows that share the packing of a panel of b, half of them if there are too
// few tasks for the threads, by panels that share the packing of these rows.
constexpr int64_t kBlockRows = 192;
constexpr int64_t kBlockPanels = 8;
constexpr int64_t kBlockDepth = 256;
constexpr int kPanelVectors = 4;
// Tasks of a thread, so that threads end together.
constexpr int64_t kTasksOfThread = 2;

template <class T>
class Gemm {
  using C = Compute<T>;
  using V = Vec<C>;

 public:
  Gemm(const HasteGemm& gemm, int64_t threads)
      : gemm_(gemm),
        columns_(kPanelVectors * Width<C>()),
        panels_(CeilDiv(gemm.n, columns_)),
        rows_(CeilDiv(gemm.m, kBlockRows) * panels_ < threads * kTasksOfThread ? kBlockRows / 2
                                                                               : kBlockRows),
        down_(CeilDiv(gemm.m, rows_)),
        some_(std::clamp<int64_t>(down_ * panels_ / (threads * kTasksOfThread), 1, kBlockPanels)) {}

  int64_t tasks() const { return down_ * CeilDiv(panels_, some_); }

  void Block(int64_t task) const {
    const int64_t i0 = task % down_ * rows_, rows = std::min(rows_, gemm_.m - i0);
    const int64_t first = task / down_ * some_, end = std::min(panels_, first + some_);
    static thread_local std::vector<C> scratch;
    scratch.resize(rows_ * kBlockDepth + (kBlockDepth + rows_ * some_) * columns_);
    C* a = scratch.data();
    C* b = a + rows_ * kBlockDepth;
    C* sums = b + kBlockDepth * columns_;
    std::fill_n(sums, rows * (end - first) * columns_, C(0));
    for (int64_t p0 = 0; p0 < gemm_.k; p0 += kBlockDepth) {
      const int64_t depth = std::min(kBlockDepth, gemm_.k - p0);
      const int64_t stride = PadTo(depth, Width<C>());
      Pack(static_cast<const T*>(gemm_.a) + i0 * gemm_.a_row + p0 * gemm_.a_col, gemm_.a_row,
           gemm_.a_col, rows, depth, stride, a);
      for (int64_t p = first; p < end; ++p) {
        const int64_t j0 = p * columns_;
        Pack(static_cast<const T*>(gemm_.b) + p0 * gemm_.b_row + j0 * gemm_.b_col, gemm_.b_row,
             gemm_.b_col, depth, std::min(columns_, gemm_.n - j0), columns_, b);
        C* const of_panel = sums + (p - first) * rows * columns_;
        PanelProduct<kPanelVectors>(a, stride, rows, b, depth,
                                    [&](int64_t row, V(&acc)[kPanelVectors]) HWY_ATTR {
                                      C* to = of_panel + row * columns_;
                                      for (int v = 0; v < kPanelVectors; ++v, to += Width<C>()) {
                                        Store(Load(to) + acc[v], to);
                                      }
                                    });
      }
    }
    for (int64_t p = first; p < end; ++p) {
      Finish(i0, rows, p * columns_, sums + (p - first) * rows * columns_);
    }
  }

 private:
  // c = sums + bias, of the rows from i0 on and of the panel that begins with column j0.
  void Finish(int64_t i0, int64_t rows, int64_t j0, const C* sums) const {
    const int64_t columns = std::min(columns_, gemm_.n - j0);
    const T* bias = static_cast<const T*>(gemm_.bias);
    for (int64_t i = 0; i < rows; ++i) {
      T* to = static_cast<T*>(gemm_.c) + (i0 + i) * gemm_.c_row + j0;
      for (int64_t j = 0; j < columns; j += Width<C>()) {
        const V v = Load(sums + i * columns_ + j);
        StorePart(bias == nullptr ? v : v + LoadPart(bias + j0 + j, columns - j), to + j,
                  columns - j);
      }
    }
  }

  // to[i][j] = from[i·row + j·col], in rows of `stride`, which a vector divides. Zeros behind the
  // columns, so that their products are finite.
  static void Pack(const T* from, int64_t row, int64_t col, int64_t rows, int64_t columns,
                   int64_t stride, C* to) {
    if (row == 1 && col != 1) return PackTransposed(from, columns, col, 0, rows, stride, to);
    for (int64_t i = 0; i < rows; ++i, from += row, to += stride) {
      if (col == 1) {
        int64_t j = 0;
        for (; j < columns; j += Width<C>()) Store(LoadPart(from + j, columns - j), to + j);
        std::fill(to + j, to + stride, C(0));
      } else {
        for (int64_t j = 0; j < columns; ++j) StorePart(LoadPart(from + j * col, 1), to + j, 1);
        std::fill(to + columns, to + stride, C(0));
      }
    }
  }

  const HasteGemm& gemm_;
  const int64_t columns_;  // of a panel
  const int64_t panels_;
  const int64_t rows_;  // of a task
  const int64_t down_;  // tasks below one another
  const int64_t some_;  // panels of a task
};

// A single row, as in a streaming model: b is read in place, in runs of kRun vectors.
template <class T>
class RowGemm {
  using C = Compute<T>;
  static constexpr int kRun = 8;

 public:
  RowGemm(const HasteGemm& gemm, int64_t) : gemm_(gemm), columns_(kRun * Width<C>()) {}
  static bool Takes(const HasteGemm& gemm) {
    const bool rows_are_contiguous = gemm.a_col == 1 && gemm.b_col == 1;
    return gemm.m == 1 && rows_are_contiguous && gemm.n % Width<C>() == 0;
  }

  int64_t tasks() const { return (gemm_.n + columns_ - 1) / columns_; }

  void Block(int64_t task) const {
    static thread_local std::vector<C> scratch;
    scratch.resize(gemm_.k + Width<C>());
    C* row = scratch.data();
    for (int64_t i = 0; i < gemm_.k; i += Width<C>()) {
      Store(LoadPart(static_cast<const T*>(gemm_.a) + i, gemm_.k - i), row + i);
    }
    const int64_t end = std::min(gemm_.n, (task + 1) * columns_);
    int64_t j = task * columns_;
    if (end - j == columns_) return Run<kRun>(row, j);
    for (; j < end; j += Width<C>()) Run<1>(row, j);
  }

 private:
  template <int kVectors>
  void Run(const C* row, int64_t j) const {
    const T* b = static_cast<const T*>(gemm_.b) + j;
    Vec<C> sums[kVectors][1];
    // In the parts, and in the order, in which Gemm adds up: a row has the same bits in any batch.
    for (int64_t p = 0; p < gemm_.k; p += kBlockDepth) {
      Vec<C> part[kVectors][1];
      RowProduct(row + p, std::min(kBlockDepth, gemm_.k - p), b + p * gemm_.b_row, gemm_.b_row, 0,
                 part);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[v][0] = sums[v][0] + part[v][0];
    }
    const T* bias = static_cast<const T*>(gemm_.bias);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = j + v * Width<C>();
      if (bias != nullptr) sums[v][0] = sums[v][0] + Storage<T>::Load(bias + at);
      Storage<T>::Store(sums[v][0], static_cast<T*>(gemm_.c) + at);
    }
  }

  const HasteGemm& gemm_;
  const int64_t columns_;
};

// With fewer multiply-adds a thread, waking it costs more than it saves.
constexpr double kWakeMacs = 200e3;

template <class Product>
void RunBlocks(const HasteGemm& gemm, const HasteExecutor& executor) {
  HasteExecutor team = executor;
  const double macs = static_cast<double>(gemm.m) * gemm.n * gemm.k;
  team.threads = static_cast<int>(std::min<double>(TeamThreads(executor), macs / kWakeMacs + 1));
  const Product product(gemm, team.threads);
  ParallelFor(team, product.tasks(), [&](int64_t task) { product.Block(task); });
}

template <class T>
void RunReduceRows(int64_t rows, int64_t columns, const void* in, void* out,
                   const HasteExecutor& executor) {
  using C = Compute<T>;
  constexpr int64_t kColumns = 256;
  ParallelFor(executor, (columns + kColumns - 1) / kColumns, [&](int64_t block) {
    const int64_t j0 = block * kColumns, j1 = std::min(columns, j0 + kColumns);
    for (int64_t j = j0; j < j1; j += Width<C>()) {
      Vec<C> sum;
      const T* from = static_cast<const T*>(in) + j;
      for (int64_t i = 0; i < rows; ++i) sum = sum + LoadPart(from + i * columns, columns - j);
      StorePart(sum, static_cast<T*>(out) + j, columns - j);
    }
  });
}

void GemmOf(const HasteGemm& gemm, const HasteExecutor& executor) {
  WithDtype(gemm.dtype, [&](auto of) {
    using T = decltype(of);
    const auto run = RowGemm<T>::Takes(gemm) ? RunBlocks<RowGemm<T>> : RunBlocks<Gemm<T>>;
    run(gemm, executor);
  });
}

void ReduceRowsOf(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                  const HasteExecutor& executor) {
  WithDtype(dtype, [&](auto of) { RunReduceRows<decltype(of)>(rows, columns, in, out, executor); });
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {

CpuProperties GetCpuProperties(const HasteExecutor& executor) {
  CpuProperties cpu;
  cpu.threads = TeamThreads(executor);
#if defined(_SC_LEVEL2_CACHE_SIZE)
  static const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (l2 > 0) cpu.l2_bytes = l2;
#endif
  if (BestTarget() == SimdTarget::kAmx) cpu.tile_rows = 16;
  return cpu;
}

int32_t CpuGemm(const HasteGemm& gemm, void* workspace, const HasteExecutor& executor,
                HasteStatus*) {
  if (gemm.b_scale != nullptr) {
    CpuGemmInt8(gemm, workspace, executor);
    return HASTE_OK;
  }
  if (gemm.dtype == HASTE_BFLOAT16 && CpuGemmBfloat16(gemm, executor)) return HASTE_OK;
  HASTE_DISPATCH(GemmOf)(gemm, executor);
  return HASTE_OK;
}

int32_t CpuReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                      const HasteExecutor& executor, HasteStatus*) {
  HASTE_DISPATCH(ReduceRowsOf)(dtype, rows, columns, in, out, executor);
  return HASTE_OK;
}

}  // namespace haste
#endif  // HWY_ONCE
