// The C ABI: checks arguments, looks up the engine of a cell and dtype, and calls it.
#include "haste/c_api.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "lib/api/guard.h"
#include "lib/api/layer.h"
#include "lib/api/registry.h"
#include "lib/api/validate.h"
#include "lib/base/dtypes.h"
#include "lib/engine/engine.h"
#include "lib/plan/plan.h"

namespace haste {
namespace {

bool HasSteps(const HasteRnnConfig& config) { return config.batch > 0 && config.time > 0; }

// states to = from, or 0: the result of a walk over no steps.
int32_t CopyStates(const HasteRnnConfig& config, int states, const void* const* from,
                   void* const* to, const HasteExecutor& executor, HasteStatus* status) {
  const size_t bytes = config.batch * config.lanes * config.hidden * DtypeSize(config.dtype);
  for (int s = 0; s < states; ++s) {
    HASTE_TRY(Copy(config.device, bytes, from[s], to[s], executor, status));
  }
  return HASTE_OK;
}

int32_t CheckProjection(const HasteRnnConfig& config, const HasteLayerForwardArgs& layer,
                        HasteStatus* status) {
  if (layer.features == 0) return HASTE_OK;
  if (config.weights_dtype == HASTE_INT8) {
    HASTE_TRY(CheckPointer(layer.W_scale, "W_scale", status));
  }
  HASTE_TRY(CheckPointer(layer.W, "W", status));
  return CheckPointer(layer.x, "x", status);
}

// The tensors that the products of the gradients read.
int32_t CheckOperands(const HasteLayerBackwardArgs& layer, HasteStatus* status) {
  if (layer.features == 0) return HASTE_OK;
  if (layer.dx != nullptr) HASTE_TRY(CheckPointer(layer.W, "W", status));
  return layer.dW == nullptr ? HASTE_OK : CheckPointer(layer.x, "x", status);
}

// Backward of a walk over no steps: the gradients of parameters are 0.
int32_t NoStepsBackward(const HasteRnnConfig& config, const HasteCellInfo& cell,
                        const HasteRnnBackwardArgs& args, const HasteExecutor& executor,
                        HasteStatus* status) {
  const size_t unit = config.lanes * config.hidden * DtypeSize(config.dtype);
  if (cell.recurrence == HASTE_DIAGONAL) {
    HASTE_TRY(Copy(config.device, unit * cell.gates, nullptr, args.dR, executor, status));
  }
  for (int e = 0; e < cell.extras; ++e) {
    const size_t bytes = unit * (strcmp(cell.extra_dims[e], "KGH") == 0 ? cell.gates : 1);
    HASTE_TRY(Copy(config.device, bytes, nullptr, args.dextra[e], executor, status));
  }
  return CopyStates(config, cell.states, args.dsT, args.ds0, executor, status);
}

// Of layer forward: bytes of the recurrence's workspace and of the input product's, which stand
// before wx where the workspace holds that too.
int32_t BytesBeforeInput(const HasteRnnConfig& config, const CellEntry& cell,
                         const PlannedRnn& planned, const HasteLayerForwardArgs& layer,
                         size_t* bytes, HasteStatus* status) {
  const size_t walk = planned.engine->workspace_bytes(config, planned);
  *bytes = walk;
  HASTE_TRY(ProjectInputBytes(config, cell.info, layer.features, bytes, status));
  if (config.device == HASTE_CUDA) {
    size_t overlap = walk;
    HASTE_TRY(
        Cuda().overlapped_input_bytes(config, CellIndex(cell), planned, layer, &overlap, status));
    *bytes = std::max(*bytes, overlap);
  }
  return HASTE_OK;
}

// The text of haste_plan and haste_plan_for: forward, and backward for a training step, on a CPU if
// that is another.
template <class PlanOf>
int32_t WritePlan(const HasteRnnConfig& config, const HasteCellInfo& cell, const PlanOf& plan_of,
                  char* text, size_t capacity) {
  Plan plan;
  HASTE_TRY(plan_of(/*backward=*/false, &plan));
  std::string said = Describe(plan, config, cell);
  if (config.training) {
    HASTE_TRY(plan_of(/*backward=*/true, &plan));
    const std::string backward = Describe(plan, config, cell);
    if (config.device == HASTE_CUDA || backward != said) said += "; backward: " + backward;
  }
  snprintf(text, capacity, "%s", said.c_str());
  return HASTE_OK;
}

}  // namespace
}  // namespace haste

using haste::CellEntry;
using haste::PlannedRnn;

extern "C" {

int32_t haste_cell_count(void) { return haste::CellCount(); }

const HasteCellInfo* haste_cell(int32_t index) {
  return index >= 0 && index < haste::CellCount() ? &haste::CellAt(index).info : nullptr;
}

const char* haste_version(void) { return HASTE_VERSION; }

int32_t haste_rnn_workspace_bytes(const HasteRnnConfig* config, int32_t backward,
                                  const HasteExecutor* executor, size_t* bytes,
                                  HasteStatus* status) {
  const auto body = [&](auto& config, auto& executor) -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(config, &cell, status));
    if (backward != 0) HASTE_TRY(haste::CheckHasGradient(config, status));
    *bytes = 0;
    if (!haste::HasSteps(config)) return HASTE_OK;
    PlannedRnn planned;
    HASTE_TRY(haste::PlanRnn(config, *cell, backward != 0, executor, &planned, status));
    *bytes = planned.engine->workspace_bytes(config, planned);
    return HASTE_OK;
  };
  return haste::WithKnown(status, body, config, executor);
}

int32_t haste_rnn_forward(const HasteRnnConfig* config, const HasteRnnForwardArgs* args,
                          void* workspace, const HasteExecutor* executor, HasteStatus* status) {
  const auto body = [&](auto& config, auto& args, auto& executor) -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(config, &cell, status));
    HASTE_TRY(haste::CheckSeed(config, cell->info, args.seed, status));
    if (!haste::HasSteps(config)) {
      return haste::CopyStates(config, cell->info.states, args.s0, args.sT, executor, status);
    }
    HASTE_TRY(haste::CheckForward(config, cell->info, args, workspace, status));
    PlannedRnn planned;
    HASTE_TRY(haste::PlanRnn(config, *cell, false, executor, &planned, status));
    return planned.engine->forward({config, planned, workspace, executor}, args, status);
  };
  return haste::WithKnown(status, body, config, args, executor);
}

int32_t haste_rnn_backward(const HasteRnnConfig* config, const HasteRnnBackwardArgs* args,
                           void* workspace, const HasteExecutor* executor, HasteStatus* status) {
  const auto body = [&](auto& config, auto& args, auto& executor) -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(config, &cell, status));
    HASTE_TRY(haste::CheckHasGradient(config, status));
    HASTE_TRY(haste::CheckSeed(config, cell->info, args.seed, status));
    if (!haste::HasSteps(config)) {
      return haste::NoStepsBackward(config, cell->info, args, executor, status);
    }
    HASTE_TRY(haste::CheckBackward(config, cell->info, args, workspace, status));
    PlannedRnn planned;
    HASTE_TRY(haste::PlanRnn(config, *cell, true, executor, &planned, status));
    return planned.engine->backward({config, planned, workspace, executor}, args, status);
  };
  return haste::WithKnown(status, body, config, args, executor);
}

int32_t haste_layer_forward_workspace_bytes(const HasteRnnConfig* config,
                                            const HasteLayerForwardArgs* layer,
                                            const HasteExecutor* executor, size_t* bytes,
                                            HasteStatus* status) {
  const auto body = [&](auto& config, auto& layer, auto& executor) -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(config, &cell, status));
    HASTE_TRY(haste::CheckLayer(config, cell->info, layer.features, status));
    *bytes = 0;
    if (!haste::HasSteps(config)) return HASTE_OK;
    PlannedRnn planned;
    HASTE_TRY(haste::PlanRnn(config, *cell, false, executor, &planned, status));
    if (layer.wx == nullptr && haste::FormsInput(config, *planned.engine, layer)) {
      *bytes = planned.engine->layer_workspace_bytes(config, planned, layer);
      return HASTE_OK;
    }
    HASTE_TRY(haste::BytesBeforeInput(config, *cell, planned, layer, bytes, status));
    if (layer.wx == nullptr) {
      *bytes = haste::InputOffset(*bytes) + haste::InputBytes(config, cell->info);
    }
    return HASTE_OK;
  };
  return haste::WithKnown(status, body, config, layer, executor);
}

int32_t haste_layer_forward(const HasteRnnConfig* config, const HasteLayerForwardArgs* layer,
                            const HasteRnnForwardArgs* rnn, void* workspace,
                            const HasteExecutor* executor, HasteStatus* status) {
  const auto body = [&](auto& config, auto& layer, auto& rnn, auto& executor) -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(config, &cell, status));
    HASTE_TRY(haste::CheckLayer(config, cell->info, layer.features, status));
    rnn.wx = layer.wx;
    if (!haste::HasSteps(config)) {
      HASTE_TRY(haste::ProjectInput(config, cell->info, layer, workspace, executor, status));
      return haste_rnn_forward(&config, &rnn, workspace, &executor, status);
    }
    HASTE_TRY(haste::CheckSeed(config, cell->info, rnn.seed, status));
    HASTE_TRY(haste::CheckPointer(workspace, "workspace", status));
    HASTE_TRY(haste::CheckProjection(config, layer, status));
    PlannedRnn planned;
    HASTE_TRY(haste::PlanRnn(config, *cell, false, executor, &planned, status));
    const haste::Engine& engine = *planned.engine;
    const haste::RnnCall call = {config, planned, workspace, executor};
    if (layer.wx == nullptr) {
      rnn.wx = workspace;  // all of wx, or a few steps at a time
      HASTE_TRY(haste::CheckForward(config, cell->info, rnn, workspace, status));
      if (haste::FormsInput(config, engine, layer)) {
        return engine.layer_forward(call, layer, rnn, status);
      }
      size_t bytes = 0;
      HASTE_TRY(haste::BytesBeforeInput(config, *cell, planned, layer, &bytes, status));
      rnn.wx = layer.wx = static_cast<char*>(workspace) + haste::InputOffset(bytes);
    } else {
      HASTE_TRY(haste::CheckForward(config, cell->info, rnn, workspace, status));
    }
    if (config.device == HASTE_CUDA) {
      bool done = false;
      HASTE_TRY(haste::Cuda().overlapped_layer_forward(call, haste::CellIndex(*cell), layer, rnn,
                                                       &done, status));
      if (done) return HASTE_OK;
    }
    HASTE_TRY(haste::ProjectInput(config, cell->info, layer, workspace, executor, status));
    return engine.forward(call, rnn, status);
  };
  return haste::WithKnown(status, body, config, layer, rnn, executor);
}

int32_t haste_layer_backward_workspace_bytes(const HasteRnnConfig* config,
                                             const HasteLayerBackwardArgs* layer,
                                             const HasteExecutor* executor, size_t* bytes,
                                             HasteStatus* status) {
  const auto body = [&](auto& config, auto& layer, auto& executor) -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(config, &cell, status));
    HASTE_TRY(haste::CheckHasGradient(config, status));
    HASTE_TRY(haste::CheckLayer(config, cell->info, layer.features, status));
    *bytes = 0;
    if (haste::HasSteps(config)) {
      PlannedRnn planned;
      HASTE_TRY(haste::PlanRnn(config, *cell, true, executor, &planned, status));
      *bytes = planned.engine->workspace_bytes(config, planned);
      if (config.device == HASTE_CUDA) {
        HASTE_TRY(haste::Cuda().overlapped_gradients_bytes(config, haste::CellIndex(*cell), planned,
                                                           layer, bytes, status));
      }
    }
    // One after the other.
    HASTE_TRY(haste::GradientsBytes(config, cell->info, layer.features, bytes, status));
    if (layer.gamma == nullptr) return HASTE_OK;
    const HasteLayerNormGrad norm = haste::InputNormGrad(config, cell->info, layer, nullptr);
    size_t more = 0;
    HASTE_TRY(haste_layer_norm_workspace_bytes(&norm, &executor, &more, status));
    *bytes = std::max(*bytes, more);
    return HASTE_OK;
  };
  return haste::WithKnown(status, body, config, layer, executor);
}

int32_t haste_layer_backward(const HasteRnnConfig* config, const HasteLayerBackwardArgs* layer,
                             const HasteRnnBackwardArgs* rnn, void* workspace,
                             const HasteExecutor* executor, HasteStatus* status) {
  const auto body = [&](auto& config, auto& layer, auto& rnn, auto& executor) -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(config, &cell, status));
    HASTE_TRY(haste::CheckHasGradient(config, status));
    HASTE_TRY(haste::CheckLayer(config, cell->info, layer.features, status));
    if (haste::HasSteps(config)) {
      HASTE_TRY(haste::CheckSeed(config, cell->info, rnn.seed, status));
      HASTE_TRY(haste::CheckBackward(config, cell->info, rnn, workspace, status));
      HASTE_TRY(haste::CheckOperands(layer, status));
      PlannedRnn planned;
      HASTE_TRY(haste::PlanRnn(config, *cell, true, executor, &planned, status));
      const haste::RnnCall call = {config, planned, workspace, executor};
      if (config.device == HASTE_CUDA) {
        bool done = false;
        HASTE_TRY(haste::Cuda().overlapped_layer_backward(call, haste::CellIndex(*cell), layer, rnn,
                                                          &done, status));
        if (done) return HASTE_OK;
      }
      HASTE_TRY(planned.engine->backward(call, rnn, status));
    } else {
      HASTE_TRY(haste_rnn_backward(&config, &rnn, workspace, &executor, status));
    }
    HASTE_TRY(haste::BiasGradients(config, cell->info, layer, rnn, executor, status));
    HASTE_TRY(
        haste::RecurrentGradient(config, cell->info, layer, rnn, workspace, executor, status));
    if (layer.gamma != nullptr) {
      const HasteLayerNormGrad norm = haste::InputNormGrad(config, cell->info, layer, rnn.dwx);
      HASTE_TRY(haste_layer_norm_grad(&norm, workspace, &executor, status));
    }
    return haste::WeightGradients(config, cell->info, layer, rnn, workspace, executor, status);
  };
  return haste::WithKnown(status, body, config, layer, rnn, executor);
}

int32_t haste_plan(const HasteRnnConfig* config, const HasteExecutor* executor, char* text,
                   size_t capacity, HasteStatus* status) {
  const auto body = [&](auto& config, auto& executor) -> int32_t {
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(config, &cell, status));
    const auto plan_of = [&](bool backward, haste::Plan* plan) {
      PlannedRnn planned;
      const int32_t code = haste::PlanRnn(config, *cell, backward, executor, &planned, status);
      *plan = planned.plan;
      return code;
    };
    return haste::WritePlan(config, cell->info, plan_of, text, capacity);
  };
  return haste::WithKnown(status, body, config, executor);
}

int32_t haste_plan_for(const HasteRnnConfig* config, const HasteDeviceProperties* device,
                       char* text, size_t capacity, HasteStatus* status) {
  const auto body = [&](auto& config, auto& device) -> int32_t {
    if (config.device != HASTE_CUDA) {
      return haste::SetStatus(status, HASTE_INVALID_ARGUMENT,
                              "device: expected 1 (CUDA), got %" PRId32, config.device);
    }
    // Checked as a call for the CPU, so neither a GPU nor CUDA code is needed.
    HasteRnnConfig here = config;
    here.device = HASTE_CPU;
    here.engine = "auto";
    const CellEntry* cell;
    HASTE_TRY(haste::CheckConfig(here, &cell, status));
    haste::CudaProperties cuda;
    cuda.sm_major = device.sm_major;
    cuda.sm_minor = device.sm_minor;
    cuda.multiprocessors = device.multiprocessors;
    cuda.shared_bytes_per_block = device.shared_bytes_per_block;
    cuda.l2_bytes = device.l2_bytes;
    static_assert(sizeof cuda.clusters == sizeof device.clusters, "HASTE_MAX_CLUSTER");
    memcpy(cuda.clusters, device.clusters, sizeof cuda.clusters);
    cuda.has_cublas = true;
    const auto plan_of = [&](bool backward, haste::Plan* plan) {
      return haste::PlanRecurrence(config, cell->info, {}, cuda, plan, status, backward);
    };
    return haste::WritePlan(config, cell->info, plan_of, text, capacity);
  };
  return haste::WithKnown(status, body, config, device);
}

}  // extern "C"
