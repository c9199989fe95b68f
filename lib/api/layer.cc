#include "lib/api/layer.h"

#include <algorithm>
#include <cinttypes>

#include "lib/api/guard.h"
#include "lib/base/dtypes.h"
#include "lib/cpu/cpu.h"

namespace haste {
namespace {

int RecurrentProducts(const HasteCellInfo& cell) { return cell.reset_gates == 0 ? 1 : 2; }

// Raises *bytes to the product's scratch memory if that is more.
int32_t AtLeastThatOf(const HasteGemm& gemm, size_t* bytes, HasteStatus* status) {
  size_t wanted = 0;
  HASTE_TRY(haste_gemm_workspace_bytes(&gemm, &wanted, status));
  *bytes = std::max(*bytes, wanted);
  return HASTE_OK;
}

// c = a·b, of these sizes and strides.
int32_t Multiply(HasteGemm gemm, const void* a, const void* b, void* c, void* workspace,
                 const HasteExecutor& executor, HasteStatus* status) {
  gemm.a = a;
  gemm.b = b;
  gemm.c = c;
  return haste_gemm(&gemm, workspace, &executor, status);
}

// The normalisation of x·W, or its gradient, but for tensors.
template <class Norm>
Norm InputNorm(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  Norm norm = HASTE_INIT(Norm);
  norm.dtype = config.dtype;
  norm.device = config.device;
  norm.rows = config.batch * config.time;
  norm.lanes = config.lanes;
  norm.features = cell.gates * config.hidden;
  norm.epsilon = config.epsilon;
  return norm;
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
  if (config.weights_dtype == HASTE_INT8) {
    HASTE_TRY(CheckInt8(config.dtype, "features", features, status));
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

bool FormsInput(const HasteRnnConfig& config, const Engine& engine,
                const HasteLayerForwardArgs& layer) {
  if (engine.layer_forward == nullptr || layer.gamma != nullptr) return false;
  const bool narrow = config.weights_dtype == HASTE_INT8 ||
                      (config.dtype == HASTE_BFLOAT16 && CpuMultipliesBfloat16());
  return narrow || DtypeSize(config.dtype) > 2;
}

size_t InputBytes(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return config.batch * config.time * config.lanes * cell.gates * config.hidden *
         DtypeSize(config.dtype);
}

size_t InputOffset(size_t bytes) { return (bytes + 63) / 64 * 64; }

int32_t ProjectInputBytes(const HasteRnnConfig& config, const HasteCellInfo& cell, int64_t features,
                          size_t* bytes, HasteStatus* status) {
  HasteGemm gemm = InputProduct(config, cell, features);
  static const float some = 1;  // not looked at, but by whether it is given
  if (config.weights_dtype == HASTE_INT8) gemm.b_scale = &some;
  return AtLeastThatOf(gemm, bytes, status);
}

int32_t ProjectInput(const HasteRnnConfig& config, const HasteCellInfo& cell,
                     const HasteLayerForwardArgs& layer, void* workspace,
                     const HasteExecutor& executor, HasteStatus* status) {
  HasteGemm gemm = InputProduct(config, cell, layer.features);
  if (config.weights_dtype == HASTE_INT8) gemm.b_scale = layer.W_scale;
  if (layer.gamma == nullptr) {
    gemm.bias = layer.b;
    return Multiply(gemm, layer.x, layer.W, layer.wx, workspace, executor, status);
  }
  void* const xw = layer.xw != nullptr ? layer.xw : layer.wx;
  HASTE_TRY(Multiply(gemm, layer.x, layer.W, xw, workspace, executor, status));
  HasteLayerNorm norm = InputNorm<HasteLayerNorm>(config, cell);
  norm.x = xw;
  norm.gamma = layer.gamma;
  norm.beta = layer.b;
  norm.y = layer.wx;
  return haste_layer_norm(&norm, &executor, status);
}

int32_t BiasGradients(const HasteRnnConfig& config, const HasteCellInfo& cell,
                      const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                      const HasteExecutor& executor, HasteStatus* status) {
  // The normalisation gives it with the gradient of gamma.
  if (layer.db == nullptr || layer.gamma != nullptr) return HASTE_OK;
  return OpsOf(config.device)
      .reduce_rows(config.dtype, config.batch * config.time,
                   config.lanes * cell.gates * config.hidden, rnn.dwx, layer.db, executor, status);
}

int32_t RecurrentGradient(const HasteRnnConfig& config, const HasteCellInfo& cell,
                          const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                          void* workspace, const HasteExecutor& executor, HasteStatus* status) {
  if (layer.dR == nullptr || cell.recurrence != HASTE_DENSE) return HASTE_OK;
  const int64_t lane = cell.gates * config.hidden;
  const int64_t size = static_cast<int64_t>(DtypeSize(config.dtype));
  const char* const dq = static_cast<const char*>(cell.splits_gradient ? rnn.dq : rnn.dwx);
  for (int operand = 0; operand < RecurrentProducts(cell); ++operand) {
    const char* const h = static_cast<const char*>(rnn.saved[operand]);
    // Gates [first, last) of all lanes were made of saved[operand].
    const int64_t first = operand == 0 ? 0 : cell.reset_gates;
    for (int64_t k = 0; k < config.lanes; ++k) {
      char* const dR = static_cast<char*>(layer.dR) + (k * lane + first) * config.hidden * size;
      HASTE_TRY(Multiply(RecurrentProduct(config, cell, operand), h + k * config.hidden * size,
                         dq + (k * lane + first * config.hidden) * size, dR, workspace, executor,
                         status));
    }
  }
  return HASTE_OK;
}

int32_t GradientsBytes(const HasteRnnConfig& config, const HasteCellInfo& cell, int64_t features,
                       size_t* bytes, HasteStatus* status) {
  for (int i = 0; cell.recurrence == HASTE_DENSE && i < RecurrentProducts(cell); ++i) {
    HASTE_TRY(AtLeastThatOf(RecurrentProduct(config, cell, i), bytes, status));
  }
  HASTE_TRY(AtLeastThatOf(InputGradientProduct(config, cell, features), bytes, status));
  return AtLeastThatOf(KernelGradientProduct(config, cell, features), bytes, status);
}

HasteLayerNormGrad InputNormGrad(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                 const HasteLayerBackwardArgs& layer, void* dwx) {
  HasteLayerNormGrad norm = InputNorm<HasteLayerNormGrad>(config, cell);
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
                        void* workspace, const HasteExecutor& executor, HasteStatus* status) {
  if (layer.dx != nullptr) {
    HASTE_TRY(Multiply(InputGradientProduct(config, cell, layer.features), rnn.dwx, layer.W,
                       layer.dx, workspace, executor, status));
  }
  if (layer.dW == nullptr) return HASTE_OK;
  return Multiply(KernelGradientProduct(config, cell, layer.features), layer.x, rnn.dwx, layer.dW,
                  workspace, executor, status);
}

}  // namespace haste
