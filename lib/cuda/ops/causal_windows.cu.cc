// haste_windows on CUDA: a thread for each feature of a step or of a carried row.
#include "lib/base/causal_windows.h"

#include <algorithm>

#include "lib/base/dtypes.h"
#include "lib/base/int_math.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ops/ops.h"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/engine/engine.h"

namespace haste {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;

// Calls step(n, t, c) for each step and carried(n, b, c) for each carried row.
template <class Args, class Step, class Carried>
HASTE_DEVICE void ForEach(const Args& args, const Step& step, const Carried& carried) {
  const int64_t rows = args.time + args.window - 1, count = args.batch * rows * args.features;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += stride) {
    const int64_t c = i % args.features, row = i / args.features % rows;
    const int64_t n = i / args.features / rows;
    if (row < args.time) {
      step(n, row, c);
    } else {
      carried(n, row - args.time, c);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) WindowsForward(HasteWindows args) {
  const int64_t known = args.window - 1, C = args.features;
  const T *const x = static_cast<const T*>(args.x), *const before =
                                                        static_cast<const T*>(args.before);
  T *const seen = static_cast<T*>(args.seen), *const after = static_cast<T*>(args.after);
  const auto value = [&](int64_t n, int64_t t, int64_t b, int64_t c) {
    if (t != WindowWalk::kNone) return x[(n * args.time + t) * C + c];
    return before == nullptr ? FromCompute<T>(Compute<T>(0)) : before[(n * known + b) * C + c];
  };
  ForEach(
      args,
      [&](int64_t n, int64_t t, int64_t c) {
        const WindowWalk walk(args, n);
        T* const to = seen + (n * args.time + t) * args.window * C + c;
        if (!walk.IsLive(t)) {
          for (int64_t k = 0; k < args.window; ++k) to[k * C] = FromCompute<T>(Compute<T>(0));
          return;
        }
        walk.Backwards(known, t, [&](int64_t k, int64_t step, int64_t b) {
          to[k * C] = value(n, step, b, c);
        });
      },
      [&](int64_t n, int64_t row, int64_t c) {
        if (after == nullptr || row != 0) return;  // one thread writes all rows of a feature
        const WindowWalk walk(args, n);
        walk.Backwards(known - 1, walk.Last(), [&](int64_t k, int64_t step, int64_t b) {
          after[(n * known + k) * C + c] = value(n, step, b, c);
        });
      });
}

template <class T>
__global__ void __launch_bounds__(kThreads) WindowsBackward(HasteWindowsGrad args) {
  const int64_t known = args.window - 1, C = args.features;
  const T *const dseen = static_cast<const T*>(args.dseen), *const dafter =
                                                                static_cast<const T*>(args.dafter);
  const auto collect = [&](const WindowWalk& walk, int64_t n, int64_t k, int64_t t, int64_t c) {
    Compute<T> sum = 0;
    walk.Onwards(k, t, [&](int64_t place, int64_t step) {
      if (step != WindowWalk::kNone) {
        sum += ToCompute(dseen[((n * args.time + step) * args.window + place) * C + c]);
      } else if (dafter != nullptr) {
        sum += ToCompute(dafter[(n * known + place) * C + c]);
      }
    });
    return FromCompute<T>(sum);
  };
  ForEach(
      args,
      [&](int64_t n, int64_t t, int64_t c) {
        if (args.dx == nullptr) return;
        const WindowWalk walk(args, n);
        static_cast<T*>(args.dx)[(n * args.time + t) * C + c] =
            walk.IsLive(t) ? collect(walk, n, known, t, c) : FromCompute<T>(Compute<T>(0));
      },
      [&](int64_t n, int64_t b, int64_t c) {
        if (args.dbefore == nullptr) return;
        const WindowWalk walk(args, n);
        static_cast<T*>(args.dbefore)[(n * known + b) * C + c] =
            collect(walk, n, b, walk.First(), c);
      });
}

template <class Args>
int32_t Run(void (*kernel)(Args), const Args& args, const HasteExecutor& executor,
            HasteStatus* status) {
  const int64_t count = args.batch * (args.time + args.window - 1) * args.features;
  const int64_t blocks = std::min(kMostBlocks, CeilDiv(count, kThreads));
  if (count > 0) HASTE_CUDA_TRY(Launch(kernel, {blocks, kThreads}, executor, args), status);
  return HASTE_OK;
}

}  // namespace

int32_t CudaWindows(const HasteWindows& args, const HasteExecutor& executor, HasteStatus* status) {
  return WithDtype(args.dtype, [&](auto of) {
    return Run(WindowsForward<decltype(of)>, args, executor, status);
  });
}

int32_t CudaWindowsGrad(const HasteWindowsGrad& args, const HasteExecutor& executor,
                        HasteStatus* status) {
  return WithDtype(args.dtype, [&](auto of) {
    return Run(WindowsBackward<decltype(of)>, args, executor, status);
  });
}

}  // namespace haste
