#include "lib/api/validate.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <string>

#include "lib/cells/info.h"
#include "lib/cpu/narrow/narrow.h"
#include "lib/engine/cuda_backend.h"
#include "lib/plan/plan.h"

namespace haste {
namespace {

int32_t Invalid(HasteStatus* status, const char* name, const char* expected, double got) {
  return SetStatus(status, HASTE_INVALID_ARGUMENT, "%s: expected %s, got %g", name, expected, got);
}

int32_t CheckSizes(const HasteRnnConfig& config, const HasteCellInfo& cell, HasteStatus* status) {
  struct {
    const char* name;
    int64_t value;
    int64_t least;
  } const sizes[] = {{"batch", config.batch, 0},
                     {"time", config.time, 0},
                     {"lanes", config.lanes, 1},
                     {"hidden", config.hidden, 1}};
  for (const auto& size : sizes) {
    // Random draws count time, rows and units in 32 bits.
    if (size.value < size.least || size.value > INT32_MAX) {
      return SetStatus(status, HASTE_INVALID_ARGUMENT,
                       "%s: expected a size of at least %" PRId64 " and below 2^31, got %" PRId64,
                       size.name, size.least, size.value);
    }
  }
  const double n = static_cast<double>(config.batch);
  const double t = static_cast<double>(std::max<int64_t>(config.time, 1));  // of [N, K, H] too
  const double k = static_cast<double>(config.lanes), h = static_cast<double>(config.hidden);
  const double per_unit = cell.recurrence == HASTE_DENSE ? std::max(n * t, h) : n * t;
  if (k * h * cell.gates * per_unit * sizeof(double) > kMaxBytes) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "batch, time, lanes, hidden: wx [batch, time, lanes, gates, hidden] or "
                     "R [lanes, hidden, gates, hidden] exceeds 2^60 bytes with %" PRId64
                     ", %" PRId64 ", %" PRId64 ", %" PRId64,
                     config.batch, config.time, config.lanes, config.hidden);
  }
  return HASTE_OK;
}

int32_t CheckActivations(const HasteRnnConfig& config, const HasteCellInfo& cell,
                         HasteStatus* status) {
  const struct {
    const char* name;
    int32_t value;
  } activations[] = {{"activation", config.activation},
                     {"recurrent_activation", config.recurrent_activation}};
  for (const auto& activation : activations) {
    const bool gate = &activation == &activations[1];
    if (gate && activation.value == HASTE_EXPONENTIAL && cell.exponential) continue;
    if (activation.value < HASTE_TANH || activation.value > HASTE_LINEAR) {
      return Invalid(status, activation.name, "a HasteActivation of this cell", activation.value);
    }
  }
  if (cell.exponential && config.recurrent_activation != HASTE_EXPONENTIAL &&
      config.recurrent_activation != HASTE_SIGMOID) {
    return Invalid(status, "recurrent_activation", "HASTE_EXPONENTIAL or HASTE_SIGMOID",
                   config.recurrent_activation);
  }
  return HASTE_OK;
}

int32_t CheckRates(const HasteRnnConfig& config, const HasteCellInfo& cell, HasteStatus* status) {
  for (int s = 0; s < cell.states; ++s) {
    if (!(config.zoneout[s] >= 0.0f && config.zoneout[s] <= 1.0f)) {
      return Invalid(status, "zoneout", "rates in [0, 1]", config.zoneout[s]);
    }
    if (cell.tied_zoneout && s > 1 && config.zoneout[s] > 0.0f) {
      return Invalid(status, "zoneout",
                     "0 after the first two rates, as all states but h have the second",
                     config.zoneout[s]);
    }
  }
  if (!(config.recurrent_dropout >= 0.0f && config.recurrent_dropout < 1.0f)) {
    return Invalid(status, "recurrent_dropout", "a rate in [0, 1)", config.recurrent_dropout);
  }
  if (cell.recurrence == HASTE_NONE && config.recurrent_dropout > 0.0f) {
    return Invalid(status, "recurrent_dropout", "0 for a cell that has no recurrent kernel",
                   config.recurrent_dropout);
  }
  if (cell.normalizes && !(config.epsilon > 0.0f && std::isfinite(config.epsilon))) {
    return Invalid(status, "epsilon", "a positive number", config.epsilon);
  }
  return HASTE_OK;
}

int32_t CheckWeights(const HasteRnnConfig& config, const HasteCellInfo& cell, HasteStatus* status) {
  if (config.weights_dtype == 0 || config.weights_dtype == config.dtype) return HASTE_OK;
  if (config.weights_dtype != HASTE_INT8) {
    return Invalid(status, "weights_dtype", "0 (as dtype) or HASTE_INT8", config.weights_dtype);
  }
  if (cell.recurrence != HASTE_DENSE) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "weights_dtype: HASTE_INT8 is for cells with a dense recurrent kernel, got %s",
                     cell.name);
  }
  if (config.device != HASTE_CPU) {
    return SetStatus(status, HASTE_UNIMPLEMENTED,
                     "weights_dtype: HASTE_INT8 runs on a CPU alone, got device 1 (CUDA); there, "
                     "multiply q by its scale first");
  }
  return CheckInt8(config.dtype, "hidden", config.hidden, status);
}

// Tensors that forward and backward both read.
template <class Args>
int32_t CheckParameters(const HasteCellInfo& cell, const Args& args, HasteStatus* status) {
  for (int g = 0; cell.separate_gates && g < cell.gates; ++g) {
    HASTE_TRY(CheckPointer(args.x[g], cell.gate_names[g], status));
  }
  if (cell.recurrence != HASTE_NONE) HASTE_TRY(CheckPointer(args.R, "R", status));
  for (int e = 0; e < cell.extras; ++e) {
    HASTE_TRY(CheckPointer(args.extra[e], cell.extra_names[e], status));
  }
  return HASTE_OK;
}

// Tensors that forward writes and backward reads.
template <class Args>
int32_t CheckReserve(const HasteRnnConfig& config, const HasteCellInfo& cell, const Args& args,
                     HasteStatus* status) {
  if (!cell.separate_gates) HASTE_TRY(CheckPointer(args.gates, "gates", status));
  if (cell.normalizes) HASTE_TRY(CheckPointer(args.products, "products", status));
  for (int i = 0; i < SavedOf(config, cell); ++i) {
    HASTE_TRY(CheckPointer(args.saved[i], cell.saved_names[i], status));
  }
  return HASTE_OK;
}

}  // namespace

int32_t CheckDtype(int32_t dtype, HasteStatus* status) {
  if (dtype >= HASTE_FLOAT32 && dtype <= HASTE_BFLOAT16) return HASTE_OK;
  return Invalid(status, "dtype", "a HasteDtype", dtype);
}

int32_t CheckInt8(int32_t dtype, const char* name, int64_t depth, HasteStatus* status) {
  if (dtype == HASTE_FLOAT64) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "dtype: with int8 weights expected HASTE_FLOAT32, HASTE_FLOAT16 or "
                     "HASTE_BFLOAT16, got HASTE_FLOAT64");
  }
  if (depth <= kMaxInt8Depth) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "%s: with int8 weights expected at most %" PRId64 ", got %" PRId64, name,
                   kMaxInt8Depth, depth);
}

int32_t CheckDevice(int32_t device, HasteStatus* status) {
  if (device == HASTE_CPU) return HASTE_OK;
  if (device != HASTE_CUDA) return Invalid(status, "device", "0 (CPU) or 1 (CUDA)", device);
  std::string why;
  const CudaBackend* cuda = FindCudaBackend(&why);
  if (cuda != nullptr) return cuda->device_status(status);
  return SetStatus(status, HASTE_UNIMPLEMENTED, "device: expected 0 (CPU), got 1 (CUDA), but %s",
                   why.c_str());
}

int32_t CheckConfig(const HasteRnnConfig& config, const CellEntry** cell, HasteStatus* status) {
  *cell = nullptr;
  for (int i = 0; config.cell != nullptr && i < CellCount(); ++i) {
    if (strcmp(config.cell, CellAt(i).info.name) == 0) *cell = &CellAt(i);
  }
  if (*cell == nullptr) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT, "cell: no cell is named \"%s\"",
                     config.cell == nullptr ? "(null)" : config.cell);
  }
  const HasteCellInfo& info = (*cell)->info;
  HASTE_TRY(CheckDtype(config.dtype, status));
  HASTE_TRY(CheckSizes(config, info, status));
  HASTE_TRY(CheckActivations(config, info, status));
  HASTE_TRY(CheckRates(config, info, status));
  HASTE_TRY(CheckEngine(config, info, status));
  HASTE_TRY(CheckWeights(config, info, status));
  return CheckDevice(config.device, status);
}

int32_t CheckSeed(const HasteRnnConfig& config, const HasteCellInfo& cell, const int64_t* seed,
                  HasteStatus* status) {
  bool draws = config.recurrent_dropout > 0.0f;
  for (int s = 0; s < cell.states; ++s) draws |= config.zoneout[s] > 0.0f;
  if (!config.training || !draws || seed != nullptr) return HASTE_OK;
  return SetStatus(
      status, HASTE_INVALID_ARGUMENT,
      "seed: expected two int64 for Zoneout or recurrent dropout in training, got NULL");
}

int32_t CheckForward(const HasteRnnConfig& config, const HasteCellInfo& cell,
                     const HasteRnnForwardArgs& args, const void* workspace, HasteStatus* status) {
  if (!cell.separate_gates) HASTE_TRY(CheckPointer(args.wx, "wx", status));
  HASTE_TRY(CheckParameters(cell, args, status));
  HASTE_TRY(CheckPointer(args.y, "y", status));
  HASTE_TRY(CheckPointer(workspace, "workspace", status));
  if (config.weights_dtype == HASTE_INT8) {
    HASTE_TRY(CheckPointer(args.R_scale, "R_scale", status));
    if (!args.keep) return HASTE_OK;
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "keep: expected 0 with int8 weights, which have no gradient, got 1");
  }
  return args.keep ? CheckReserve(config, cell, args, status) : HASTE_OK;
}

int32_t CheckHasGradient(const HasteRnnConfig& config, HasteStatus* status) {
  if (config.weights_dtype != HASTE_INT8) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "weights_dtype: expected 0 (as dtype) in backward, as int8 weights have no "
                   "gradient, got HASTE_INT8");
}

int32_t CheckBackward(const HasteRnnConfig& config, const HasteCellInfo& cell,
                      const HasteRnnBackwardArgs& args, const void* workspace,
                      HasteStatus* status) {
  HASTE_TRY(CheckParameters(cell, args, status));
  HASTE_TRY(CheckReserve(config, cell, args, status));
  for (int g = 0; cell.separate_gates && g < cell.gates; ++g) {
    HASTE_TRY(CheckPointer(args.dx[g], "dx", status));
  }
  if (!cell.separate_gates) HASTE_TRY(CheckPointer(args.dwx, "dwx", status));
  if (cell.splits_gradient) HASTE_TRY(CheckPointer(args.dq, "dq", status));
  if (cell.recurrence == HASTE_DIAGONAL) HASTE_TRY(CheckPointer(args.dR, "dR", status));
  for (int e = 0; e < cell.extras; ++e) {
    HASTE_TRY(CheckPointer(args.dextra[e], "dextra", status));
  }
  return CheckPointer(workspace, "workspace", status);
}

}  // namespace haste
