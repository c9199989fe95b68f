// The C ABI: checks arguments, looks up the engine of a cell and dtype, and calls it.
#include "lib/haste/c_api.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "lib/cells/cells.h"
#include "lib/cpu/cpu.h"
#include "lib/dtypes.h"
#include "lib/engine.h"
#include "lib/layer.h"
#include "lib/plan.h"
#ifdef HASTE_HAVE_CUDA
#include "lib/cuda/cuda.h"
#endif

namespace haste {

int32_t SetStatus(HasteStatus* status, int32_t code, const char* format, ...) {
  if (status != nullptr) {
    status->code = code;
    va_list values;
    va_start(values, format);
    vsnprintf(status->message, sizeof status->message, format, values);
    va_end(values);
  }
  return code;
}

#define HASTE_DECLARE(DTYPE, CELL)                \
  extern const Engine CpuEngine_##CELL##_##DTYPE; \
  extern const Engine StepwiseEngine_##CELL##_##DTYPE;
#define HASTE_DECLARE_CELL(CELL) \
  HASTE_DECLARE(f32, CELL)       \
  HASTE_DECLARE(f64, CELL) HASTE_DECLARE(f16, CELL) HASTE_DECLARE(bf16, CELL)
HASTE_CELLS(HASTE_DECLARE_CELL)

namespace {

// In the order of HasteDtype.
struct CellEntry {
  HasteCellInfo info;
  const Engine* cpu[4];
  const Engine* stepwise[4];
};

template <class Cell>
constexpr HasteCellInfo Info() {
  HasteCellInfo info = {Cell::kName, Cell::kGates, Cell::kStates, {}};
  for (int s = 0; s < Cell::kStates; ++s) info.state_names[s] = Cell::kStateNames[s];
  return info;
}

#define HASTE_ENGINES(ENGINE, CELL) \
  {&ENGINE##_##CELL##_f32, &ENGINE##_##CELL##_f64, &ENGINE##_##CELL##_f16, &ENGINE##_##CELL##_bf16}
#ifdef HASTE_HAVE_CUDA
#define HASTE_CELL_ENTRY(CELL) \
  {Info<CELL>(), HASTE_ENGINES(CpuEngine, CELL), HASTE_ENGINES(StepwiseEngine, CELL)},
#else
#define HASTE_CELL_ENTRY(CELL) {Info<CELL>(), HASTE_ENGINES(CpuEngine, CELL), {}},
#endif
// Constant, so that initialisers of other files may read it.
constexpr CellEntry kCells[] = {HASTE_CELLS(HASTE_CELL_ENTRY)};
constexpr int kCellCount = sizeof kCells / sizeof kCells[0];

const HasteExecutor kDefaultExecutor = {};
const HasteExecutor& OrDefault(const HasteExecutor* executor) {
  return executor == nullptr ? kDefaultExecutor : *executor;
}

int32_t Invalid(HasteStatus* status, const char* name, const char* expected, double got) {
  return SetStatus(status, HASTE_INVALID_ARGUMENT, "%s: expected %s, got %g", name, expected, got);
}

int32_t CheckDevice(int32_t device, HasteStatus* status) {
  if (device == HASTE_CPU) return HASTE_OK;
  if (device != HASTE_CUDA) return Invalid(status, "device", "0 (CPU) or 1 (CUDA)", device);
#ifdef HASTE_HAVE_CUDA
  return CudaDeviceStatus(status);
#else
  return SetStatus(status, HASTE_UNIMPLEMENTED,
                   "device: this build of haste has no CUDA code; build it where a CUDA toolkit is "
                   "installed (`make wheel CUDA_HOME=/usr/local/cuda`)");
#endif
}

// Finds the cell and checks everything that both directions share.
int32_t CheckConfig(const HasteRnnConfig& config, const CellEntry** cell, HasteStatus* status) {
  *cell = nullptr;
  for (const CellEntry& entry : kCells) {
    if (config.cell != nullptr && strcmp(config.cell, entry.info.name) == 0) *cell = &entry;
  }
  if (*cell == nullptr) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT, "cell: no cell is named \"%s\"",
                     config.cell == nullptr ? "(null)" : config.cell);
  }
  if (config.dtype < HASTE_FLOAT32 || config.dtype > HASTE_BFLOAT16) {
    return Invalid(status, "dtype", "a HasteDtype", config.dtype);
  }
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
  if (k * h * (*cell)->info.gates * std::max(n * t, h) * sizeof(double) > kMaxBytes) {
    return SetStatus(status, HASTE_INVALID_ARGUMENT,
                     "batch, time, lanes, hidden: wx [batch, time, lanes, gates, hidden] or "
                     "R [lanes, hidden, gates, hidden] exceeds 2^60 bytes with %" PRId64
                     ", %" PRId64 ", %" PRId64 ", %" PRId64,
                     config.batch, config.time, config.lanes, config.hidden);
  }
  const struct {
    const char* name;
    int32_t value;
  } activations[] = {{"activation", config.activation},
                     {"recurrent_activation", config.recurrent_activation}};
  for (const auto& activation : activations) {
    if (activation.value < HASTE_TANH || activation.value > HASTE_LINEAR) {
      return Invalid(status, activation.name, "a HasteActivation", activation.value);
    }
  }
  for (int s = 0; s < (*cell)->info.states; ++s) {
    if (!(config.zoneout[s] >= 0.0f && config.zoneout[s] <= 1.0f)) {
      return Invalid(status, "zoneout", "rates in [0, 1]", config.zoneout[s]);
    }
  }
  if (!(config.recurrent_dropout >= 0.0f && config.recurrent_dropout < 1.0f)) {
    return Invalid(status, "recurrent_dropout", "a rate in [0, 1)", config.recurrent_dropout);
  }
  Plan plan;
  const int32_t code =
      PlanRecurrence(config, (*cell)->info, CpuProperties(), CudaProperties(), &plan, status);
  return code != HASTE_OK ? code : CheckDevice(config.device, status);
}

int32_t CheckPointer(const void* pointer, const char* name, HasteStatus* status) {
  if (pointer != nullptr) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT, "%s: expected memory, got NULL", name);
}

int32_t CheckSeed(const HasteRnnConfig& config, const CellEntry& cell, const int64_t* seed,
                  HasteStatus* status) {
  bool draws = config.recurrent_dropout > 0.0f;
  for (int s = 0; s < cell.info.states; ++s) draws |= config.zoneout[s] > 0.0f;
  if (!config.training || !draws || seed != nullptr) return HASTE_OK;
  return SetStatus(
      status, HASTE_INVALID_ARGUMENT,
      "seed: expected two int64 for Zoneout or recurrent dropout in training, got NULL");
}

const Engine& EngineOf(const CellEntry& cell, const HasteRnnConfig& config) {
  return *(config.device == HASTE_CUDA ? cell.stepwise : cell.cpu)[config.dtype];
}

// states to = from, or 0: what is left of a walk over no steps.
int32_t CopyStates(const HasteRnnConfig& config, int states, const void* const* from,
                   void* const* to, const HasteExecutor& executor, HasteStatus* status) {
  const size_t bytes = config.batch * config.lanes * config.hidden * DtypeSize(config.dtype);
  for (int s = 0; s < states; ++s) {
    if (to[s] == nullptr || bytes == 0) continue;
    if (config.device == HASTE_CUDA) {
#ifdef HASTE_HAVE_CUDA
      const int32_t code = CudaCopy(to[s], from[s], bytes, executor, status);
      if (code != HASTE_OK) return code;
#endif
    } else if (from[s] == nullptr) {
      memset(to[s], 0, bytes);
    } else {
      memcpy(to[s], from[s], bytes);
    }
  }
  (void)executor;
  (void)status;
  return HASTE_OK;
}

// Runs a function of the C ABI; exceptions end here.
template <class Call>
int32_t Guarded(HasteStatus* status, const Call& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return SetStatus(status, HASTE_INTERNAL, "out of memory on the host");
  } catch (const std::exception& error) {
    return SetStatus(status, HASTE_INTERNAL, "unexpected failure: %s", error.what());
  } catch (...) {
    return SetStatus(status, HASTE_INTERNAL, "unexpected failure of an unknown kind");
  }
}

}  // namespace
}  // namespace haste

using haste::CellEntry;
using haste::CheckPointer;

#define HASTE_TRY(CALL)                            \
  do {                                             \
    const int32_t haste_code = (CALL);             \
    if (haste_code != HASTE_OK) return haste_code; \
  } while (0)

extern "C" {

int32_t haste_cell_count(void) { return haste::kCellCount; }

const HasteCellInfo* haste_cell(int32_t index) {
  return index >= 0 && index < haste::kCellCount ? &haste::kCells[index].info : nullptr;
}

const char* haste_version(void) { return HASTE_VERSION; }

int32_t haste_has_cuda(void) {
#ifdef HASTE_HAVE_CUDA
  return 1;
#else
  return 0;
#endif
}

int32_t haste_cuda_status(HasteStatus* status) {
  return haste::Guarded(status, [&] { return haste::CheckDevice(HASTE_CUDA, status); });
}

int32_t haste_rnn_workspace_bytes(const HasteRnnConfig* config, int32_t backward,
                                  const HasteExecutor* executor, size_t* bytes,
                                  HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(*config, &cell, status));
    *bytes = config->batch == 0 || config->time == 0
                 ? 0
                 : haste::EngineOf(*cell, *config)
                       .workspace_bytes(*config, backward != 0, haste::OrDefault(executor));
    return HASTE_OK;
  });
}

int32_t haste_rnn_forward(const HasteRnnConfig* config, const HasteRnnForwardArgs* args,
                          void* workspace, const HasteExecutor* executor, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(*config, &cell, status));
    HASTE_TRY(haste::CheckSeed(*config, *cell, args->seed, status));
    if (config->batch == 0 || config->time == 0) {
      return haste::CopyStates(*config, cell->info.states, args->s0, args->sT,
                               haste::OrDefault(executor), status);
    }
    HASTE_TRY(CheckPointer(args->wx, "wx", status));
    HASTE_TRY(CheckPointer(args->R, "R", status));
    HASTE_TRY(CheckPointer(args->y, "y", status));
    HASTE_TRY(CheckPointer(workspace, "workspace", status));
    for (int s = 0; args->gates != nullptr && s < cell->info.states; ++s) {
      HASTE_TRY(CheckPointer(args->states[s], "states", status));
    }
    return haste::EngineOf(*cell, *config)
        .forward(*config, *args, workspace, haste::OrDefault(executor), status);
  });
}

int32_t haste_rnn_backward(const HasteRnnConfig* config, const HasteRnnBackwardArgs* args,
                           void* workspace, const HasteExecutor* executor, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(*config, &cell, status));
    HASTE_TRY(haste::CheckSeed(*config, *cell, args->seed, status));
    if (config->batch == 0 || config->time == 0) {
      return haste::CopyStates(*config, cell->info.states, args->dsT, args->ds0,
                               haste::OrDefault(executor), status);
    }
    HASTE_TRY(CheckPointer(args->R, "R", status));
    HASTE_TRY(CheckPointer(args->gates, "gates", status));
    HASTE_TRY(CheckPointer(args->dwx, "dwx", status));
    HASTE_TRY(CheckPointer(workspace, "workspace", status));
    for (int s = 0; s < cell->info.states; ++s) {
      HASTE_TRY(CheckPointer(args->states[s], "states", status));
    }
    return haste::EngineOf(*cell, *config)
        .backward(*config, *args, workspace, haste::OrDefault(executor), status);
  });
}

int32_t haste_gemm(const HasteGemm* gemm, const HasteExecutor* executor, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    HASTE_TRY(haste::CheckDevice(gemm->device, status));
    if (gemm->dtype < HASTE_FLOAT32 || gemm->dtype > HASTE_BFLOAT16) {
      return haste::Invalid(status, "dtype", "a HasteDtype", gemm->dtype);
    }
    if (gemm->m < 0 || gemm->n < 0 || gemm->k < 0) {
      return haste::SetStatus(status, HASTE_INVALID_ARGUMENT,
                              "m, n, k: expected sizes, got %" PRId64 ", %" PRId64 ", %" PRId64,
                              gemm->m, gemm->n, gemm->k);
    }
    const double m = static_cast<double>(gemm->m), n = static_cast<double>(gemm->n);
    const double k = static_cast<double>(gemm->k);
    if (std::max({m * n, m * k, k * n}) * sizeof(double) > haste::kMaxBytes) {
      return haste::SetStatus(status, HASTE_INVALID_ARGUMENT,
                              "m, n, k: a matrix exceeds 2^60 bytes with %" PRId64 ", %" PRId64
                              ", %" PRId64,
                              gemm->m, gemm->n, gemm->k);
    }
    if (gemm->m == 0 || gemm->n == 0) return HASTE_OK;
    HASTE_TRY(CheckPointer(gemm->c, "c", status));
    if (gemm->k > 0) {
      HASTE_TRY(CheckPointer(gemm->a, "a", status));
      HASTE_TRY(CheckPointer(gemm->b, "b", status));
    }
#ifdef HASTE_HAVE_CUDA
    if (gemm->device == HASTE_CUDA) {
      return haste::CudaGemm(*gemm, haste::OrDefault(executor), status);
    }
#endif
    haste::CpuGemm(*gemm, haste::OrDefault(executor));
    return HASTE_OK;
  });
}

int32_t haste_layer_forward(const HasteRnnConfig* config, const HasteLayerForwardArgs* layer,
                            HasteRnnForwardArgs* rnn, void* workspace,
                            const HasteExecutor* executor, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(*config, &cell, status));
    HASTE_TRY(haste::CheckFeatures(*config, cell->info, layer->features, status));
    HASTE_TRY(haste::ProjectInput(*config, cell->info, *layer, executor, status));
    rnn->wx = layer->wx;
    return haste_rnn_forward(config, rnn, workspace, executor, status);
  });
}

int32_t haste_layer_backward(const HasteRnnConfig* config, const HasteLayerBackwardArgs* layer,
                             const HasteRnnBackwardArgs* rnn, void* workspace,
                             const HasteExecutor* executor, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(*config, &cell, status));
    HASTE_TRY(haste::CheckFeatures(*config, cell->info, layer->features, status));
    HASTE_TRY(haste_rnn_backward(config, rnn, workspace, executor, status));
    return haste::LayerGradients(*config, cell->info, *layer, *rnn, executor, status);
  });
}

int32_t haste_plan(const HasteRnnConfig* config, const HasteExecutor* executor, char* text,
                   size_t capacity, HasteStatus* status) {
  return haste::Guarded(status, [&]() -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(*config, &cell, status));
    haste::CudaProperties cuda;
#ifdef HASTE_HAVE_CUDA
    if (config->device == HASTE_CUDA) HASTE_TRY(haste::GetCudaProperties(&cuda, status));
#endif
    haste::Plan plan;
    HASTE_TRY(haste::PlanRecurrence(*config, cell->info,
                                    haste::GetCpuProperties(haste::OrDefault(executor)), cuda,
                                    &plan, status));
    snprintf(text, capacity, "%s", haste::Describe(plan, *config, cell->info).c_str());
    return HASTE_OK;
  });
}

}  // extern "C"
