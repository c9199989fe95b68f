// Layer normalisation of rows, its gradient, and sums over rows. It is bound by memory. A warp, or
// for longer rows a block, reads a row once and keeps it in registers until the result is written.
// The part that does not fit is read again.
#include <algorithm>
#include <cstdint>

#include "lib/base/dtypes.h"
#include "lib/base/int_math.h"
#include "lib/base/math.h"
#include "lib/base/workspace.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ops/ops.h"
#include "lib/cuda/ptx/reduce.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/engine/engine.h"

namespace haste {
namespace {

constexpr int kMaxThreads = 512;    // of a row
constexpr int kBlockThreads = 256;  // at least, where each warp has a row of its own

// Elements of a row that a thread keeps.
template <class T>
constexpr int kHeld = sizeof(T) == 8 ? 8 : 16;
// Elements of the widest access.
template <class T>
constexpr int kWide = 16 / sizeof(T);

// A thread's part of a row [features]: every blockDim.x-th vector of kVector elements. The first
// kSlots vectors stay in registers.
template <class T, int kVector>
class RowPart {
  using Vector = Fragment<T, kVector>;
  static constexpr int kSlots = kHeld<T> / kVector;

 public:
  static constexpr int kElements = kSlots * kVector;

  HASTE_DEVICE void Load(const T* row, int64_t features) {
    row_ = row;
    HASTE_UNROLL for (int slot = 0; slot < kSlots; ++slot) {
      if (At(slot) < features) held_[slot] = LoadFragment<kVector>(row + At(slot));
    }
  }

  // Vector number `slot`, which begins at `at`.
  HASTE_DEVICE Vector Get(int slot, int64_t at) const {
    return slot < kSlots ? held_[slot] : LoadFragment<kVector>(row_ + at);
  }

  // Calls visit(slot, at) for each vector. slot is a compile-time constant below kSlots, and kSlots
  // for all later vectors.
  template <class Visit>
  static HASTE_DEVICE void Each(int64_t features, const Visit& visit) {
    HASTE_UNROLL for (int slot = 0; slot < kSlots; ++slot) {
      if (At(slot) < features) visit(slot, At(slot));
    }
    for (int64_t at = At(kSlots); at < features; at += static_cast<int64_t>(blockDim.x) * kVector) {
      visit(kSlots, at);
    }
  }

 private:
  static HASTE_DEVICE int64_t At(int slot) {
    return (static_cast<int64_t>(slot) * blockDim.x + threadIdx.x) * kVector;
  }

  const T* row_;
  Vector held_[kSlots];
};

template <class T, int kVector, class Sum>
HASTE_DEVICE Moments<Compute<T>> MomentsOf(const RowPart<T, kVector>& x, int64_t features,
                                           float epsilon, Sum& block_sum) {
  using C = Compute<T>;
  using Part = RowPart<T, kVector>;
  Moments<C> moments;
  C sum[2] = {};
  Part::Each(features, [&](int slot, int64_t at) {
    const auto values = x.Get(slot, at);
    HASTE_UNROLL for (int i = 0; i < kVector; ++i) sum[0] += ToCompute(values.v[i]);
  });
  block_sum(sum);
  moments.mean = sum[0] / static_cast<C>(features);
  sum[0] = sum[1] = 0;
  Part::Each(features, [&](int slot, int64_t at) {
    const auto values = x.Get(slot, at);
    HASTE_UNROLL for (int i = 0; i < kVector; ++i) {
      const C from_mean = ToCompute(values.v[i]) - moments.mean;
      sum[0] = MulAdd(from_mean, from_mean, sum[0]);
    }
  });
  block_sum(sum);
  moments.scale = InverseDeviation(sum[0], static_cast<C>(features), epsilon);
  return moments;
}

// A row for every threadIdx.y.
template <class T, int kVector>
__global__ void __launch_bounds__(kMaxThreads) Normalise(const __grid_constant__ HasteLayerNorm g) {
  using C = Compute<T>;
  using Part = RowPart<T, kVector>;
  __shared__ typename BlockSum<C, 2>::Shared shared;
  BlockSum<C, 2> block_sum(&shared);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= g.rows * g.lanes) return;  // whole warps, in a block without barriers
  const int64_t at_lane = row % g.lanes * g.features;
  const T* gamma = static_cast<const T*>(g.gamma) + at_lane;
  const T* beta = g.beta == nullptr ? nullptr : static_cast<const T*>(g.beta) + at_lane;
  T* y = static_cast<T*>(g.y) + row * g.features;
  Part x;
  x.Load(static_cast<const T*>(g.x) + row * g.features, g.features);
  const Moments<C> moments = MomentsOf(x, g.features, g.epsilon, block_sum);
  Part::Each(g.features, [&](int slot, int64_t at) {
    const auto values = x.Get(slot, at);
    const auto gammas = LoadFragment<kVector>(gamma + at);
    Fragment<T, kVector> betas = {};
    if (beta != nullptr) betas = LoadFragment<kVector>(beta + at);
    T result[kVector];
    HASTE_UNROLL for (int i = 0; i < kVector; ++i) {
      result[i] = FromCompute<T>(MulAdd(moments.Normed(ToCompute(values.v[i])),
                                        ToCompute(gammas.v[i]), ToCompute(betas.v[i])));
    }
    StoreFragment(y + at, result);
  });
}

// How the gradient divides the rows: each lane in groups of `rows` adjacent rows with partial sums
// of their own. It depends on sizes only, and so does the order of all sums.
struct RowGroups {
  int64_t rows, count;
};
constexpr int64_t kRowsOfGroup = 8;            // at least: partial sums are written once a group
constexpr int64_t kThreadsOfGrid = 128 << 10;  // enough for any GPU

struct GradientTerms {
  RowGroups groups;
  void* gamma;  // [groups, lanes, features] in compute type
  void* beta;   // the same, or null
};

// A group of rows for every threadIdx.y.
template <class T, int kVector>
__global__ void __launch_bounds__(kMaxThreads)
    NormaliseGrad(const __grid_constant__ HasteLayerNormGrad g, const GradientTerms parts) {
  using C = Compute<T>;
  using Part = RowPart<T, kVector>;
  __shared__ typename BlockSum<C, 2>::Shared shared;
  BlockSum<C, 2> block_sum(&shared);
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (index >= parts.groups.count * g.lanes) return;  // whole warps, as in Normalise
  const int64_t lane = index % g.lanes;
  const int64_t begin = index / g.lanes * parts.groups.rows;
  const int64_t end = min(begin + parts.groups.rows, g.rows);
  const T* gamma = static_cast<const T*>(g.gamma) + lane * g.features;
  C* const gamma_part = static_cast<C*>(parts.gamma) + index * g.features;
  C* const beta_part =
      parts.beta == nullptr ? nullptr : static_cast<C*>(parts.beta) + index * g.features;
  const C features = static_cast<C>(g.features);
  C gamma_sum[Part::kElements] = {}, beta_sum[Part::kElements] = {};
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at_row = (row * g.lanes + lane) * g.features;
    Part x, dy;
    x.Load(static_cast<const T*>(g.x) + at_row, g.features);
    dy.Load(static_cast<const T*>(g.dy) + at_row, g.features);
    const Moments<C> moments = MomentsOf(x, g.features, g.epsilon, block_sum);
    C sum[2] = {};
    Part::Each(g.features, [&](int slot, int64_t at) {
      const auto values = x.Get(slot, at);
      const auto gradients = dy.Get(slot, at);
      const auto gammas = LoadFragment<kVector>(gamma + at);
      HASTE_UNROLL for (int i = 0; i < kVector; ++i) {
        const C normed = moments.Normed(ToCompute(values.v[i]));
        const C gradient = ToCompute(gradients.v[i]);
        const C scaled = gradient * ToCompute(gammas.v[i]);
        sum[0] += scaled;
        sum[1] = MulAdd(scaled, normed, sum[1]);
        const int held = slot * kVector + i;
        if (held < Part::kElements) {
          gamma_sum[held] = MulAdd(gradient, normed, gamma_sum[held]);
          beta_sum[held] += gradient;
        } else {
          const bool fresh = row == begin;
          gamma_part[at + i] = MulAdd(gradient, normed, fresh ? C(0) : gamma_part[at + i]);
          if (beta_part != nullptr) {
            beta_part[at + i] = (fresh ? C(0) : beta_part[at + i]) + gradient;
          }
        }
      }
    });
    block_sum(sum);
    const C mean = sum[0] / features, slope = sum[1] / features;
    T* dx = static_cast<T*>(g.dx) + at_row;
    Part::Each(g.features, [&](int slot, int64_t at) {
      const auto values = x.Get(slot, at);
      const auto gradients = dy.Get(slot, at);
      const auto gammas = LoadFragment<kVector>(gamma + at);
      T result[kVector];
      HASTE_UNROLL for (int i = 0; i < kVector; ++i) {
        const C normed = moments.Normed(ToCompute(values.v[i]));
        const C scaled = ToCompute(gradients.v[i]) * ToCompute(gammas.v[i]);
        result[i] = FromCompute<T>(moments.scale * (scaled - mean - normed * slope));
      }
      StoreFragment(dx + at, result);
    });
  }
  Part::Each(g.features, [&](int slot, int64_t at) {
    HASTE_UNROLL for (int i = 0; i < kVector; ++i) {
      const int held = slot * kVector + i;
      if (held >= Part::kElements) continue;  // written already
      gamma_part[at + i] = gamma_sum[held];
      if (beta_part != nullptr) beta_part[at + i] = beta_sum[held];
    }
  });
}

// Threads of a row, in x: a power of two of warps, enough to keep the whole row if possible.
template <class T>
int RowThreads(int64_t features) {
  int threads = kWarpThreads;
  while (threads < kMaxThreads && static_cast<int64_t>(threads) * kHeld<T> < features) threads *= 2;
  return threads;
}

template <class T>
RowGroups GroupsOf(const HasteLayerNormGrad& g) {
  const int64_t groups_of_lane =
      std::max<int64_t>(1, kThreadsOfGrid / RowThreads<T>(g.features) / g.lanes);
  const int64_t rows = std::max(kRowsOfGroup, CeilDiv(g.rows, groups_of_lane));
  return {rows, CeilDiv(g.rows, rows)};
}

template <class T>
GradientTerms TermsOf(const HasteLayerNormGrad& g, Workspace* workspace) {
  GradientTerms parts;
  parts.groups = GroupsOf<T>(g);
  const int64_t elements = parts.groups.count * g.lanes * g.features;
  parts.gamma = workspace->Take<Compute<T>>(elements);
  parts.beta = g.dbeta == nullptr ? nullptr : workspace->Take<Compute<T>>(elements);
  return parts;
}

bool IsAligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// Launches `kernel` with one of `units` rows, or groups of rows, for each threadIdx.y.
template <class... Params, class... Args>
int32_t LaunchRows(void (*kernel)(Params...), int64_t units, int threads,
                   const HasteExecutor& executor, HasteStatus* status, const Args&... args) {
  const int rows_of_block = threads == kWarpThreads ? kBlockThreads / kWarpThreads : 1;
  const int64_t blocks = CeilDiv(units, rows_of_block);
  HASTE_TRY(CheckBlocks(blocks, "rows, lanes", status));
  return HASTE_CUDA_STATUS(
      Launch(kernel, {blocks, dim3(threads, rows_of_block)}, executor, args...), status);
}

template <class T>
int32_t Forward(const HasteLayerNorm& g, const HasteExecutor& executor, HasteStatus* status) {
  const bool wide = g.features % kWide<T> == 0 && IsAligned(g.x) && IsAligned(g.y) &&
                    IsAligned(g.gamma) && IsAligned(g.beta);
  return LaunchRows(wide ? Normalise<T, kWide<T>> : Normalise<T, 1>, g.rows * g.lanes,
                    RowThreads<T>(g.features), executor, status, g);
}

template <class T>
int32_t Backward(const HasteLayerNormGrad& g, void* workspace, const HasteExecutor& executor,
                 HasteStatus* status) {
  using C = Compute<T>;
  Workspace pieces(workspace);
  const GradientTerms parts = TermsOf<T>(g, &pieces);
  const bool wide = g.features % kWide<T> == 0 && IsAligned(g.x) && IsAligned(g.dy) &&
                    IsAligned(g.dx) && IsAligned(g.gamma);
  const int64_t groups = parts.groups.count;
  HASTE_TRY(LaunchRows(wide ? NormaliseGrad<T, kWide<T>> : NormaliseGrad<T, 1>, groups * g.lanes,
                       RowThreads<T>(g.features), executor, status, g, parts));
  const auto sum = [&](const void* of, void* to) {
    return LaunchSumOverRows<C, T>(groups, g.lanes * g.features, static_cast<const C*>(of), to,
                                   executor, status);
  };
  HASTE_TRY(sum(parts.gamma, g.dgamma));
  return g.dbeta == nullptr ? HASTE_OK : sum(parts.beta, g.dbeta);
}

template <class T>
size_t WorkspaceBytes(const HasteLayerNormGrad& g) {
  Workspace count(nullptr);
  TermsOf<T>(g, &count);
  return count.used();
}

}  // namespace

int32_t CudaLayerNorm(const HasteLayerNorm& norm, const HasteExecutor& executor,
                      HasteStatus* status) {
  return WithDtype(norm.dtype,
                   [&](auto of) { return Forward<decltype(of)>(norm, executor, status); });
}

size_t CudaLayerNormWorkspace(const HasteLayerNormGrad& norm, const HasteExecutor&) {
  return WithDtype(norm.dtype, [&](auto of) { return WorkspaceBytes<decltype(of)>(norm); });
}

int32_t CudaLayerNormGrad(const HasteLayerNormGrad& norm, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status) {
  return WithDtype(norm.dtype, [&](auto of) {
    return Backward<decltype(of)>(norm, workspace, executor, status);
  });
}

int32_t CudaReduceRows(int32_t dtype, int64_t rows, int64_t columns, const void* in, void* out,
                       const HasteExecutor& executor, HasteStatus* status) {
  if (columns <= 0) return HASTE_OK;
  return WithDtype(dtype, [&](auto of) {
    using T = decltype(of);
    return LaunchSumOverRows<T, T>(rows, columns, static_cast<const T*>(in), out, executor, status);
  });
}

}  // namespace haste
