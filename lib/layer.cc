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

int32_t CheckFeatures(const HasteRnnConfig& config, const HasteCellInfo& cell, int64_t features,
                      HasteStatus* status) {
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

int32_t ProjectInput(const HasteRnnConfig& config, const HasteCellInfo& cell,
                     const HasteLayerForwardArgs& layer, const HasteExecutor* executor,
                     HasteStatus* status) {
  const int64_t width = config.lanes * cell.gates * config.hidden;
  HasteGemm gemm = Product(config, config.batch * config.time, width, layer.features);
  SetA(&gemm, layer.x, layer.features, false);
  SetB(&gemm, layer.W, width, false);
  gemm.c = layer.wx;
  gemm.bias = layer.b;
  return haste_gemm(&gemm, executor, status);
}

int32_t LayerGradients(const HasteRnnConfig& config, const HasteCellInfo& cell,
                       const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                       const HasteExecutor* executor, HasteStatus* status) {
  const int64_t rows = config.batch * config.time;
  const int64_t lane = cell.gates * config.hidden;
  const int64_t width = config.lanes * lane;
  const int64_t size = static_cast<int64_t>(DtypeSize(config.dtype));
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
  if (layer.db != nullptr) {
    const int32_t code = ReduceRows(config, rows, width, rnn.dwx, layer.db, executor, status);
    if (code != HASTE_OK) return code;
  }
  for (int64_t k = 0; layer.dR != nullptr && k < config.lanes; ++k) {
    HasteGemm gemm = Product(config, config.hidden, lane, rows);
    const char* h = static_cast<const char*>(rnn.states[0]);
    const char* dwx = static_cast<const char*>(rnn.dwx);
    SetA(&gemm, h + k * config.hidden * size, config.lanes * config.hidden, true);
    SetB(&gemm, dwx + k * lane * size, width, false);
    gemm.c = static_cast<char*>(layer.dR) + k * config.hidden * lane * size;
    if (const int32_t code = haste_gemm(&gemm, executor, status)) return code;
  }
  return HASTE_OK;
}

}  // namespace haste
