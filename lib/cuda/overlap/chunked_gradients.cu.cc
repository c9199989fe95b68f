#include "lib/cuda/overlap/chunked_gradients.h"

#include <algorithm>
#include <type_traits>

#include "lib/base/dtypes.h"
#include "lib/base/int_math.h"
#include "lib/base/workspace.h"
#include "lib/cuda/gemm/gemm.h"
#include "lib/cuda/host/device.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/ptx/vector_access.cuh"
#include "lib/plan/gemm/layer_gemms.h"

namespace haste {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 8;  // neighbours that a thread has

// to = sums, rounded. aligned: `to` begins at a multiple of 16 bytes.
template <class T>
__global__ void __launch_bounds__(kThreads)
    RoundSums(int64_t count, bool aligned, const float* sums, T* to) {
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kAtOnce;
  if (aligned && first + kAtOnce <= count) {
    const auto from = LoadFragment<kAtOnce>(sums + first);
    T rounded[kAtOnce];
    HASTE_UNROLL for (int i = 0; i < kAtOnce; ++i) rounded[i] = FromCompute<T>(from.v[i]);
    StoreFragment<kAtOnce>(to + first, rounded);
    return;
  }
  const int64_t end = min(first + kAtOnce, count);
  for (int64_t i = first; i < end; ++i) to[i] = FromCompute<T>(sums[i]);
}

int32_t Round(int32_t dtype, int64_t count, const float* sums, void* to,
              const HasteExecutor& executor, HasteStatus* status) {
  if (to == nullptr) return HASTE_OK;
  const bool aligned = reinterpret_cast<uintptr_t>(to) % 16 == 0;
  const auto round = [&](auto* gradient) {
    using T = std::remove_pointer_t<decltype(gradient)>;
    return Launch(RoundSums<T>, {CeilDiv(count, int64_t{kThreads * kAtOnce}), kThreads}, executor,
                  count, aligned, sums, gradient);
  };
  return HASTE_CUDA_STATUS(
      dtype == HASTE_FLOAT16 ? round(static_cast<Half*>(to)) : round(static_cast<Bfloat16*>(to)),
      status);
}

float* Further(float* sums, int64_t elements) {
  return sums == nullptr ? nullptr : sums + elements;
}

}  // namespace

int32_t ChunkedGradients::Bytes(size_t* bytes, HasteStatus* status) const {
  const Room room = RoomIn(nullptr);
  size_t largest = 0;
  for (int64_t chunk : {int64_t{0}, overlap_.chunks - 1}) {
    for (bool one : {false, true}) {
      HASTE_TRY(OfChunk(chunk, room, one, [&](const ProductChunk& product) -> int32_t {
        size_t wanted = 0;
        HASTE_TRY(CudaProductChunkWorkspace(product, kChunkRoom, &wanted, status));
        largest = std::max(largest, wanted);
        return HASTE_OK;
      }));
    }
  }
  *bytes = room.sums_bytes + largest;
  return HASTE_OK;
}

int32_t ChunkedGradients::Begin(const HasteExecutor& executor, HasteStatus* status) const {
  if (layer_.dx == nullptr || !AddsInput()) return HASTE_OK;
  const size_t bytes = config_.batch * config_.time * layer_.features * Size();
  return CudaCopy(layer_.dx, nullptr, bytes, executor, status);
}

int32_t ChunkedGradients::Multiply(int64_t chunk, void* memory, const HasteExecutor& executor,
                                   HasteStatus* status) const {
  const Room room = RoomIn(memory);
  const bool one = layer_.dW != nullptr && layer_.dR != nullptr;
  return OfChunk(chunk, room, one, [&](const ProductChunk& product) {
    if (product.gemm.c == nullptr) return int32_t{HASTE_OK};  // not wanted
    return CudaProductChunk(product, kChunkRoom, room.product, executor, status);
  });
}

int32_t ChunkedGradients::Finish(void* memory, const HasteExecutor& executor,
                                 HasteStatus* status) const {
  if (!HasOwnSums()) return HASTE_OK;
  const Room room = RoomIn(memory);
  HASTE_TRY(Round(config_.dtype, WeightsOfInput(), room.W, layer_.dW, executor, status));
  return Round(config_.dtype, WeightsOfStates(), room.R, layer_.dR, executor, status);
}

ChunkedGradients::Room ChunkedGradients::RoomIn(void* memory) const {
  Workspace workspace(memory);
  Room room;
  const bool apart = HasOwnSums();
  room.W = workspace.Take<float>(apart ? WeightsOfInput() : 0);
  room.R = workspace.Take<float>(apart ? WeightsOfStates() : 0);
  if (!apart || layer_.dW == nullptr) room.W = static_cast<float*>(layer_.dW);
  if (!apart || layer_.dR == nullptr) room.R = static_cast<float*>(layer_.dR);
  room.product = workspace.Take<char>(0);
  room.sums_bytes = workspace.used();
  return room;
}

bool ChunkedGradients::HasOwnSums() const { return config_.dtype != HASTE_FLOAT32; }

int64_t ChunkedGradients::Size() const { return static_cast<int64_t>(DtypeSize(config_.dtype)); }

const void* ChunkedGradients::At(const void* tensor, int64_t element) const {
  return tensor == nullptr ? nullptr : static_cast<const char*>(tensor) + element * Size();
}

HasteRnnConfig ChunkedGradients::Of(const Times& times) const {
  HasteRnnConfig config = config_;
  config.time = times.count;
  return config;
}

ProductChunk ChunkedGradients::Input(const Times& times, int64_t k, int64_t end) const {
  ProductChunk input = {InputGradientProduct(Of(times), cell_, layer_.features), Runs(times), {}};
  input.adds = AddsInput();
  input.gemm.k = (end - k) * Lane();
  input.gemm.a = At(rnn_.dwx, times.first * Width() + k * Lane());
  input.gemm.b = At(layer_.W, k * Lane());
  if (layer_.dx == nullptr) return input;
  input.gemm.c = static_cast<char*>(layer_.dx) + times.first * layer_.features * Size();
  return input;
}

template <class Run>
int32_t ChunkedGradients::OfWeights(const Room& room, const Times& times, int64_t k, int64_t end,
                                    bool one, bool adds, const Run& run) const {
  const HasteRnnConfig config = Of(times);
  one = one && WeightsAreOne(cell_, end - k);
  ProductChunk kernel = {
      KernelGradientProduct(config, cell_, layer_.features), {}, Runs(times), adds, true};
  kernel.gemm.n = (end - k) * Lane();
  kernel.gemm.a = At(layer_.x, times.first * layer_.features);
  kernel.gemm.b = At(rnn_.dwx, times.first * Width() + k * Lane());
  kernel.gemm.c = Further(room.W, k * Lane());
  if (!one) HASTE_TRY(run(kernel));

  const void* const dq = cell_.splits_gradient ? rnn_.dq : rnn_.dwx;
  for (int64_t i = k; i < end; ++i) {
    ProductChunk recurrent = {RecurrentProduct(config, cell_, 0), {}, Runs(times), adds, true};
    HasteGemm& gemm = recurrent.gemm;
    gemm.a = At(rnn_.saved[0], (times.first * config.lanes + i) * config.hidden);
    gemm.b = At(dq, times.first * Width() + i * Lane());
    gemm.c = Further(room.R, i * config.hidden * Lane());
    if (one) kernel.more = {gemm.m, gemm.a_col, gemm.c_row, gemm.a, gemm.c};
    HASTE_TRY(run(one ? kernel : recurrent));
  }
  return HASTE_OK;
}

template <class Run>
int32_t ChunkedGradients::OfChunk(int64_t chunk, const Room& room, bool one, const Run& run) const {
  const int64_t from = chunk * overlap_.steps, count = overlap_.StepsOf(chunk, config_.time);
  if (InputComesWhole()) {
    for (const Times& times : CompletedTimes(from, from + count, config_.time)) {
      if (times.count > 0) HASTE_TRY(run(Input(times, 0, config_.lanes)));
    }
  }
  for (int64_t k = 0, end = 0; k < config_.lanes; k = end) {
    end = EndOfDirection(config_, k);
    const Times times = {Reverse(k) ? from : config_.time - from - count, count};
    if (!InputComesWhole()) HASTE_TRY(run(Input(times, k, end)));
    HASTE_TRY(OfWeights(room, times, k, end, one, from > 0, run));
  }
  return HASTE_OK;
}

}  // namespace haste
