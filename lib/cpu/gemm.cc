// c = a·b + bias on the CPU, for programs that link no BLAS, and for gradients of a layer. It uses
// the recurrence's micro-kernel and packs one block at a time, in no memory of the caller's but c.
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

// Rows that are multiplied together, and how much of their depth. With kBlockPanels panels of b
// they stay in the second-level cache.
constexpr int64_t kBlockRows = 192;
constexpr int64_t kBlockDepth = 256;
constexpr int kPanelVectors = 4;
// Tasks of a thread, so that threads end together.
constexpr int64_t kTasksOfThread = 2;

template <class T>
class Gemm {
  using C = Compute<T>;
  using V = Vec<C>;
  // Whether sums wait in c for the next block of the depth, and rows of a are read where they are.
  static constexpr bool kInPlace = std::is_same_v<T, C>;
  static constexpr int64_t kBlockPanels = kInPlace ? 4 : 8;

 public:
  // A task of floats is of as many rows as may be, which share packed panels; else of panels, which
  // share packed rows, and of half the rows if there are too few tasks for the threads.
  Gemm(const HasteGemm& gemm, int64_t threads)
      : gemm_(gemm),
        columns_(kPanelVectors * Width<C>()),
        panels_(CeilDiv(gemm.n, columns_)),
        tasks_(threads * kTasksOfThread),
        some_(kInPlace ? CeilDiv(panels_, std::min(panels_, tasks_))
                       : std::clamp<int64_t>(CeilDiv(gemm.m, PackedRows()) * panels_ / tasks_, 1,
                                             kBlockPanels)),
        rows_(kInPlace ? RowsOfTask(CeilDiv(tasks_, CeilDiv(panels_, some_))) : PackedRows()),
        down_(CeilDiv(gemm.m, rows_)) {}

  int64_t tasks() const { return down_ * CeilDiv(panels_, some_); }

  void Block(int64_t task) const {
    const Range rows = Part(task % down_, rows_, gemm_.m);
    const Range panels = Part(task / down_, some_, panels_);
    for (int64_t p = panels.begin; p < panels.end; p += kBlockPanels) {
      Block(rows, {p, std::min(panels.end, p + kBlockPanels)});
    }
  }

 private:
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  static Range Part(int64_t i, int64_t each, int64_t all) {
    return {i * each, std::min(all, (i + 1) * each)};
  }
  int64_t PackedRows() const {
    return CeilDiv(gemm_.m, kBlockRows) * panels_ < tasks_ ? kBlockRows / 2 : kBlockRows;
  }
  // With so many tasks below one another: whole tiles.
  int64_t RowsOfTask(int64_t down) const {
    return PadTo(CeilDiv(gemm_.m, down), kTileRows<kPanelVectors>);
  }

  // Rows of a: element i of row r is first[r * row + i * col]. row or col is 1.
  struct Operand {
    const C* first;
    int64_t row, col;
  };

  void Block(Range rows, Range panels) const {
    static thread_local std::vector<C> scratch;
    const int64_t panel = kBlockDepth * columns_, waiting = kInPlace ? 0 : rows.size() * columns_;
    scratch.resize(kBlockRows * kBlockDepth + panels.size() * (panel + waiting));
    C* const packed = scratch.data();
    C* const b = packed + kBlockRows * kBlockDepth;
    C* const sums = b + panels.size() * panel;
    int64_t p0 = 0;
    do {  // once without a depth, too
      const int64_t depth = std::min(kBlockDepth, gemm_.k - p0);
      for (int64_t i = rows.begin; i < rows.end; i += kBlockRows) {
        const int64_t count = std::min(kBlockRows, rows.end - i);
        const Operand a = Rows(i, count, p0, depth, packed);
        for (int64_t p = panels.begin; p < panels.end; ++p) {
          const int64_t at = p - panels.begin, j0 = p * columns_;
          C* const to = sums + at * waiting + (kInPlace ? 0 : i - rows.begin) * columns_;
          const auto add = [&](int64_t row, V(&products)[kPanelVectors]) HWY_ATTR {
            Add(p0, i + row, j0, products, kInPlace ? nullptr : to + row * columns_);
          };
          const T* const from =
              static_cast<const T*>(gemm_.b) + p0 * gemm_.b_row + j0 * gemm_.b_col;
          Multiply(a, count, depth, i == rows.begin ? from : nullptr,
                   std::min(columns_, gemm_.n - j0), b + at * panel, add);
        }
      }
      p0 += kBlockDepth;
    } while (p0 < gemm_.k);
  }

  Operand Rows(int64_t i, int64_t count, int64_t p0, int64_t depth, C* packed) const {
    const T* const a = static_cast<const T*>(gemm_.a) + i * gemm_.a_row + p0 * gemm_.a_col;
    if constexpr (kInPlace) {
      if (gemm_.a_row == 1 || gemm_.a_col == 1) return {a, gemm_.a_row, gemm_.a_col};
    }
    const int64_t stride = PadTo(depth, Width<C>());
    Pack(a, gemm_.a_row, gemm_.a_col, count, depth, stride, packed);
    return {packed, stride, 1};
  }

  // Calls use(row, products) for the rows of a. from: b, of so many columns, to be packed into the
  // panel; nullptr: the panel is packed.
  template <class Use>
  HWY_INLINE void Multiply(const Operand& a, int64_t rows, int64_t depth, const T* from,
                           int64_t columns, C* panel, const Use& use) const {
    int64_t done = 0;
    if constexpr (kInPlace) {
      if (from != nullptr && gemm_.b_col == 1 && columns == columns_) {
        constexpr int kMost = kTileRows<kPanelVectors>;
        done = NextTile<kMost>(rows);
        WithRows<kMost>(done, [&](auto count) HWY_ATTR {
          V sums[count][kPanelVectors];
          PackingTile(a, from, depth, panel, sums);
          for (int r = 0; r < count; ++r) use(r, sums[r]);
        });
        from = nullptr;
      }
    }
    if (from != nullptr) Pack(from, gemm_.b_row, gemm_.b_col, depth, columns, columns_, panel);
    const auto rest = [&](int64_t row, V(&sums)[kPanelVectors]) HWY_ATTR { use(done + row, sums); };
    const C* const left = a.first + done * a.row;
    if constexpr (kInPlace) {
      if (a.col != 1) {
        return PanelProduct<kPanelVectors, false, 1, true>(left, a.col, rows - done, panel, depth,
                                                           rest);
      }
    }
    PanelProduct<kPanelVectors>(left, a.row, rows - done, panel, depth, rest);
  }

  // The product of a tile with columns of b where they lie, which are packed on the way.
  template <int kRows>
  HWY_INLINE void PackingTile(const Operand& a, const T* from, int64_t depth, C* HWY_RESTRICT panel,
                              V (&sums)[kRows][kPanelVectors]) const {
    const C* HWY_RESTRICT column = a.first;
    for (int64_t i = 0; i < depth; ++i, from += gemm_.b_row, column += a.col) {
      V b[kPanelVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v, panel += Width<C>()) {
        __builtin_prefetch(from + kRowsAhead * gemm_.b_row + v * Width<C>());
        b[v] = InRegister<kManyRegisters>(Storage<T>::Load(from + v * Width<C>()));
        Store(b[v], panel);
      }
      const auto operand = [&](int r) HWY_ATTR {
        return V(hn::Set(hn::ScalableTag<C>(), column[r * a.row]));
      };
      AddOuterProduct(operand, b, sums);
    }
  }

  // Adds the products of the depth from p0 on to those before it, of the columns from j0 on of row
  // i of c. They wait in `waiting` unless kInPlace.
  HWY_INLINE void Add(int64_t p0, int64_t i, int64_t j0, const V (&products)[kPanelVectors],
                      C* waiting) const {
    const bool last = p0 + kBlockDepth >= gemm_.k;
    const T* const bias = last ? static_cast<const T*>(gemm_.bias) : nullptr;
    T* const to = static_cast<T*>(gemm_.c) + i * gemm_.c_row + j0;
    for (int v = 0; v < kPanelVectors; ++v) {
      const int64_t j = v * Width<C>(), left = gemm_.n - j0 - j;
      if (left <= 0) return;
      V sum = products[v];
      if (p0 == 0) {
        sum = V() + sum;
      } else if constexpr (kInPlace) {
        sum = LoadPart(to + j, left) + sum;
      } else {
        sum = Load(waiting + j) + sum;
      }
      if (bias != nullptr) sum = sum + LoadPart(bias + j0 + j, left);
      if (last || kInPlace) {
        StorePart(sum, to + j, left);
      } else {
        Store(sum, waiting + j);
      }
    }
  }

  // to[i][j] = from[i·row + j·col], in rows of `stride`, which a vector divides. Zeros after the
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
  const int64_t tasks_;  // at least, if there is enough to do
  const int64_t some_;   // panels of a task
  const int64_t rows_;   // of a task
  const int64_t down_;   // tasks below one another
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
