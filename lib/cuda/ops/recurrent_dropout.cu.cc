// Recurrent dropout of h at all steps at once: the mask of a unit is the same at every step.
#include <algorithm>

#include "lib/base/dtypes.h"
#include "lib/base/int_math.h"
#include "lib/base/philox.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ops/ops.h"
#include "lib/cuda/ptx/vector_access.cuh"

namespace haste {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;
constexpr int64_t kSteps = 16;  // for which a thread draws once

// Tensors [N, T, width].
template <class T>
__global__ void __launch_bounds__(kThreads)
    DropUnits(int64_t N, int64_t steps, int64_t width, const int64_t* seed, float rate,
              const T* __restrict__ from, T* __restrict__ to) {
  const PhiloxKey key = MakePhiloxKey(seed);
  const int64_t parts = (steps + kSteps - 1) / kSteps, count = N * parts * width;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += stride) {
    const int64_t unit = i % width, part = i / width % parts, n = i / width / parts;
    const Compute<T> scale =
        DropoutScale(key, static_cast<uint32_t>(n), static_cast<uint32_t>(unit), rate);
    for (int64_t t = part * kSteps; t < min(steps, (part + 1) * kSteps); ++t) {
      const int64_t at = (n * steps + t) * width + unit;
      to[at] = FromCompute<T>(ToCompute(from[at]) * scale);
    }
  }
}

}  // namespace

int32_t CudaDropHidden(const HasteRnnConfig& config, const int64_t* seed, const void* from,
                       void* to, const HasteExecutor& executor, HasteStatus* status) {
  const int64_t width = config.lanes * config.hidden;
  const int64_t count = config.batch * CeilDiv(config.time, kSteps) * width;
  const int64_t blocks = std::min(kMostBlocks, CeilDiv(count, kThreads));
  return WithDtype(config.dtype, [&](auto of) -> int32_t {
    using T = decltype(of);
    return HASTE_CUDA_STATUS(
        Launch(DropUnits<T>, {blocks, kThreads}, executor, config.batch, config.time, width, seed,
               config.recurrent_dropout, static_cast<const T*>(from), static_cast<T*>(to)),
        status);
  });
}

}  // namespace haste
