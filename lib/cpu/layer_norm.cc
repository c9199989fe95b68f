// Layer normalisation of rows, and its gradient: y = γ ∘ (x - mean) / sqrt(variance + ε) + β.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/cpu/layer_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "lib/base/workspace.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/moments-inl.h"
#include "lib/cpu/threads/team.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of this file

// The gradients of γ and β are sums over blocks of rows, then over blocks. The size of a block does
// not depend on the number of threads. There are few blocks, so their sums are small against x.
constexpr int64_t kMostBlocks = 64;
constexpr int64_t kLeastRows = 16;
// Elements of a forward task: enough to make the cost of handing it over negligible.
constexpr int64_t kTaskElements = 1 << 14;

int64_t BlockRows(int64_t rows) {
  return std::max(kLeastRows, (rows + kMostBlocks - 1) / kMostBlocks);
}
int64_t Blocks(int64_t rows) { return (rows + BlockRows(rows) - 1) / BlockRows(rows); }

template <class T>
HWY_INLINE Moments<Compute<T>> MomentsOf(const T* x, int64_t features, float epsilon) {
  return RowMoments<Compute<T>>(
      1, features, epsilon, [&](int, int64_t j) HWY_ATTR { return LoadPart(x + j, features - j); });
}

template <class T>
void RunForward(const HasteLayerNorm& norm, const HasteExecutor& executor) {
  const int64_t features = norm.features, total = norm.rows * norm.lanes;
  const int64_t width = Width<Compute<T>>();
  const int64_t chunk = std::max<int64_t>(1, kTaskElements / features);
  ParallelFor(executor, (total + chunk - 1) / chunk, [&](int64_t task) {
    for (int64_t r = task * chunk; r < std::min(total, (task + 1) * chunk); ++r) {
      const T* x = static_cast<const T*>(norm.x) + r * features;
      const T* gamma = static_cast<const T*>(norm.gamma) + r % norm.lanes * features;
      const T* beta = static_cast<const T*>(norm.beta);
      if (beta != nullptr) beta += r % norm.lanes * features;
      T* y = static_cast<T*>(norm.y) + r * features;
      const auto moments = MomentsOf(x, features, norm.epsilon);
      for (int64_t j = 0; j < features; j += width) {
        const int64_t count = features - j;
        const auto normed = moments.Normed(LoadPart(x + j, count));
        const auto offset = beta == nullptr ? Vec<Compute<T>>() : LoadPart(beta + j, count);
        StorePart(MulAdd(normed, LoadPart(gamma + j, count), offset), y + j, count);
      }
    }
  });
}

// One row of one lane. Adds to the gradients of gamma and beta, which are padded to whole vectors.
template <class T>
HWY_INLINE void RowGradient(const T* x, const T* gamma, const T* dy, T* dx, Compute<T>* dgamma,
                            Compute<T>* dbeta, int64_t features, float epsilon) {
  using V = Vec<Compute<T>>;
  const int64_t width = Width<Compute<T>>();
  const auto moments = MomentsOf(x, features, epsilon);
  V sum, products;
  for (int64_t j = 0; j < features; j += width) {
    const int64_t count = features - j;
    const V normed = moments.Normed(LoadPart(x + j, count));
    const V g = LoadPart(dy + j, count);
    const V d = g * LoadPart(gamma + j, count);
    Store(MulAdd(g, normed, Load(dgamma + j)), dgamma + j);
    Store(g + Load(dbeta + j), dbeta + j);
    sum = sum + d;
    products = MulAdd(d, normed, products);
  }
  const V mean_d(SumOfLanes(sum) / features), mean_product(SumOfLanes(products) / features);
  for (int64_t j = 0; j < features; j += width) {
    const int64_t count = features - j;
    const V normed = moments.Normed(LoadPart(x + j, count));
    const V d = LoadPart(dy + j, count) * LoadPart(gamma + j, count);
    StorePart(moments.Backward(d, normed, mean_d, mean_product), dx + j, count);
  }
}

// Scratch of the gradient: [block, lane, 2, padded], the sums of dγ and of dβ.
template <class T>
struct Partial {
  Partial(const HasteLayerNormGrad& norm, Workspace* workspace)
      : padded((norm.features + Width<Compute<T>>() - 1) / Width<Compute<T>>() *
               Width<Compute<T>>()),
        lanes(norm.lanes),
        sums(workspace->Take<Compute<T>>(Blocks(norm.rows) * lanes * 2 * padded)) {}
  Compute<T>* At(int64_t block, int64_t lane) const {
    return sums + (block * lanes + lane) * 2 * padded;
  }
  const int64_t padded, lanes;
  Compute<T>* const sums;
};

template <class T>
void RunGradient(const HasteLayerNormGrad& norm, void* memory, const HasteExecutor& executor) {
  using V = Vec<Compute<T>>;
  Workspace workspace(memory);
  const Partial<T> partial(norm, &workspace);
  const int64_t features = norm.features, lanes = norm.lanes, width = Width<Compute<T>>();
  const int64_t blocks = Blocks(norm.rows), block_rows = BlockRows(norm.rows);
  const T* gamma = static_cast<const T*>(norm.gamma);
  ParallelFor(executor, blocks * lanes, [&](int64_t task) {
    const int64_t block = task / lanes, lane = task % lanes;
    auto* sums = partial.At(block, lane);
    std::fill(sums, sums + 2 * partial.padded, Compute<T>(0));
    for (int64_t r = block * block_rows; r < std::min(norm.rows, (block + 1) * block_rows); ++r) {
      const int64_t at = (r * lanes + lane) * features;
      RowGradient(static_cast<const T*>(norm.x) + at, gamma + lane * features,
                  static_cast<const T*>(norm.dy) + at, static_cast<T*>(norm.dx) + at, sums,
                  sums + partial.padded, features, norm.epsilon);
    }
  });
  void* const gradients[2] = {norm.dgamma, norm.dbeta};
  ParallelFor(executor, lanes * 2, [&](int64_t task) {
    const int64_t lane = task / 2, which = task % 2;
    if (gradients[which] == nullptr) return;
    T* to = static_cast<T*>(gradients[which]) + lane * features;
    for (int64_t j = 0; j < features; j += width) {
      V sum;
      for (int64_t block = 0; block < blocks; ++block) {
        sum = sum + Load(partial.At(block, lane) + which * partial.padded + j);
      }
      StorePart(sum, to + j, features - j);
    }
  });
}

void ForwardOf(const HasteLayerNorm& norm, const HasteExecutor& executor) {
  WithDtype(norm.dtype, [&](auto of) { RunForward<decltype(of)>(norm, executor); });
}

size_t WorkspaceOf(const HasteLayerNormGrad& norm) {
  Workspace count(nullptr);
  WithDtype(norm.dtype, [&](auto of) { Partial<decltype(of)>(norm, &count); });
  return count.used();
}

void GradientOf(const HasteLayerNormGrad& norm, void* memory, const HasteExecutor& executor) {
  WithDtype(norm.dtype, [&](auto of) { RunGradient<decltype(of)>(norm, memory, executor); });
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {

int32_t CpuLayerNorm(const HasteLayerNorm& norm, const HasteExecutor& executor, HasteStatus*) {
  HASTE_DISPATCH(ForwardOf)(norm, executor);
  return HASTE_OK;
}

size_t CpuLayerNormWorkspace(const HasteLayerNormGrad& norm, const HasteExecutor&) {
  return HASTE_DISPATCH(WorkspaceOf)(norm);
}

int32_t CpuLayerNormGrad(const HasteLayerNormGrad& norm, void* memory,
                         const HasteExecutor& executor, HasteStatus*) {
  HASTE_DISPATCH(GradientOf)(norm, memory, executor);
  return HASTE_OK;
}

}  // namespace haste
#endif  // HWY_ONCE
