#include "lib/layer.h"

#include <algorithm>
#include <cinttypes>

#include "lib/cpu/cpu.h"
#include "lib/dtypes.h"
#include "lib/engine.h"
#ifdef HASTE_HAVE_CUDA
#include "lib/cuda/cuda.h"
#endif

namespace haste {
namespace {

HasteGemm Product(const HasteRnnConfig& config, int64_t m, int64_t n, int64_t k) {
  HasteGemm gemm = {};
  gemm.dtype = config.dtype;
  gemm.device = config.device;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.c_row = n;
  gemm.allow_tf32 = config.allow_tf32;
  return gemm;
}

// a is [m, k] with rows `row` apart, or, transposed, [k, m].
void SetA(HasteGemm* gemm, const void* a, int64_t row, bool transposed) {
  gemm->a = a;
  gemm->a_row = transposed ? 1 : row;
  gemm->a_col = transposed ? row : 1;
}
void SetB(HasteGemm* gemm, const void* b, int64_t row, bool transposed) {
  gemm->b = b;
  gemm->b_row = transposed ? 1 : row;
  gemm->b_col = transposed ? row : 1;
}

int32_t ReduceRows(const HasteRnnConfig& config, int64_t rows, int64_t columns, const void* in,
                   void* out, const HasteExecutor* executor, HasteStatus* status) {
  const HasteExecutor none = {};
  const HasteExecutor& where = executor == nullptr ? none : *executor;
#ifdef HASTE_HAVE_CUDA
  if (config.device == HASTE_CUDA) {
    return CudaReduceRows(config.dtype, rows, columns, in, out, where, status);
  }
#endif
  (void)status;
  CpuReduceRows(config.dtype, rows, columns, in, out, where);
  return HASTE_OK;
}

}  // namespace

int32_t CheckLayer(const HasteRnnConfig& config, const HasteCellInfo& cell, int64_t features,
                   HasteStatus* status) {
  if (cell.separate_gates) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "cell: expected one that takes x·W, but %s takes its gates one by one",
                     cell.name);
  }
  if (features < 0) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT, "features: expected a size, got %" PRId64,
                     features);
  }
  const double rows = static_cast<double>(config.batch) * config.time;
  const double width = static_cast<double>(config.lanes) * cell.gates * config.hidden;
  if (features * std::max(rows, width) * sizeof(double) <= kMaxBytes) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "features: x [batch, time, features] or W [features, lanes, gates, hidden] "
                   "exceeds 2^60 bytes with features = %" PRId64 ", batch = %" PRId64
                   ", time = %" PRId64 ", lanes = %" PRId64 ", hidden = %" PRId64,
                   features, config.batch, config.time, config.lanes, config.hidden);
}

bool FormsInput(const Engine& engine, const HasteLayerForwardArgs& layer) {
  return engine.layer_forward != nullptr && layer.gamma == nullptr;
}

size_t InputBytes(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return config.batch * config.time * config.lanes * cell.gates * config.hidden *
         DtypeSize(config.dtype);
}

size_t InputOffset(size_t bytes) { return (bytes + 63) / 64 * 64; }

int32_t ProjectInput(const HasteRnnConfig& config, const HasteCellInfo& cell,
                     const HasteLayerForwardArgs& layer, const HasteExecutor* executor,
                     HasteStatus* status) {
  const int64_t width = config.lanes * cell.gates * config.hidden;
  HasteGemm gemm = Product(config, config.batch * config.time, width, layer.features);
  SetA(&gemm, layer.x, layer.features, false);
  SetB(&gemm, layer.W, width, false);
  gemm.c = layer.wx;
  if (layer.gamma == nullptr) {
    gemm.bias = layer.b;
    return haste_gemm(&gemm, executor, status);
  }
  if (layer.xw != nullptr) gemm.c = layer.xw;
  if (const int32_t code = haste_gemm(&gemm, executor, status)) return code;
  HasteLayerNorm norm = {};
  norm.dtype = config.dtype;
  norm.device = config.device;
  norm.rows = gemm.m;
  norm.lanes = config.lanes;
  norm.features = cell.gates * config.hidden;
  norm.epsilon = config.epsilon;
  norm.x = gemm.c;
  norm.gamma = layer.gamma;
  norm.beta = layer.b;
  norm.y = layer.wx;
  return haste_layer_norm(&norm, executor, status);
}

int32_t BiasGradients(const HasteRnnConfig& config, const HasteCellInfo& cell,
                      const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                      const HasteExecutor* executor, HasteStatus* status) {
  // The normalisation gives it with the gradient of gamma.
  if (layer.db == nullptr || layer.gamma != nullptr) return HASTE_OK;
  return ReduceRows(config, config.batch * config.time, config.lanes * cell.gates * config.hidden,
                    rnn.dwx, layer.db, executor, status);
}

int32_t RecurrentGradient(const HasteRnnConfig& config, const HasteCellInfo& cell,
                          const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                          const HasteExecutor* executor, HasteStatus* status) {
  const int64_t rows = config.batch * config.time;
  const int64_t lane = cell.gates * config.hidden;
  const int64_t width = config.lanes * lane;
  const int64_t size = static_cast<int64_t>(DtypeSize(config.dtype));
  if (layer.dR == nullptr || cell.recurrence != HASTE_DENSE) return HASTE_OK;
  // Gates [first, last) of all lanes were made of saved[operand].
  const auto product = [&](int operand, int64_t first, int64_t last) -> int32_t {
    const char* h = static_cast<const char*>(rnn.saved[operand]);
    const char* dq = static_cast<const char*>(cell.splits_gradient ? rnn.dq : rnn.dwx);
    for (int64_t k = 0; k < config.lanes; ++k) {
      HasteGemm gemm = Product(config, config.hidden, (last - first) * config.hidden, rows);
      SetA(&gemm, h + k * config.hidden * size, config.lanes * config.hidden, true);
      SetB(&gemm, dq + (k * lane + first * config.hidden) * size, width, false);
      gemm.c =
          static_cast<char*>(layer.dR) + (k * config.hidden * lane + first * config.hidden) * size;
      gemm.c_row = lane;
      if (const int32_t code = haste_gemm(&gemm, executor, status)) return code;
    }
    return HASTE_OK;
  };
  if (cell.reset_gates == 0) return product(0, 0, cell.gates);
  if (const int32_t code = product(0, 0, cell.reset_gates)) return code;
  return product(1, cell.reset_gates, cell.gates);
}

HasteLayerNormGrad InputNormGrad(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                 const HasteLayerBackwardArgs& layer, void* dwx) {
  HasteLayerNormGrad norm = {};
  norm.dtype = config.dtype;
  norm.device = config.device;
  norm.rows = config.batch * config.time;
  norm.lanes = config.lanes;
  norm.features = cell.gates * config.hidden;
  norm.epsilon = config.epsilon;
  norm.x = layer.xw;
  norm.gamma = layer.gamma;
  norm.dy = dwx;
  norm.dx = dwx;
  norm.dgamma = layer.dgamma;
  norm.dbeta = layer.db;
  return norm;
}

int32_t WeightGradients(const HasteRnnConfig& config, const HasteCellInfo& cell,
                        const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                        const HasteExecutor* executor, HasteStatus* status) {
  const int64_t rows = config.batch * config.time;
  const int64_t width = config.lanes * cell.gates * config.hidden;
  if (layer.dx != nullptr) {
    HasteGemm gemm = Product(config, rows, layer.features, width);
    SetA(&gemm, rnn.dwx, width, false);
    SetB(&gemm, layer.W, width, true);
    gemm.c = layer.dx;
    if (const int32_t code = haste_gemm(&gemm, executor, status)) return code;
  }
  if (layer.dW != nullptr) {
    HasteGemm gemm = Product(config, layer.features, width, rows);
    SetA(&gemm, layer.x, layer.features, true);
    SetB(&gemm, rnn.dwx, width, false);
    gemm.c = layer.dW;
    if (const int32_t code = haste_gemm(&gemm, executor, status)) return code;
  }
  return HASTE_OK;
}

}  // namespace haste
