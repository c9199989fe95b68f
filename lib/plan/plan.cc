#include "lib/plan/plan.h"

#include <string>

#include "lib/base/status.h"
#include "lib/plan/internal.h"

namespace haste {

const char* EngineName(EngineKind kind) {
  // In the order of EngineKind.
  static constexpr const char* kNames[] = {"cpu",   "stepwise", "blas", "tiled",
                                           "block", "cluster",  "grid", "scan"};
  return kNames[static_cast<int>(kind)];
}

int32_t CheckEngine(const HasteRnnConfig& config, const HasteCellInfo& cell, HasteStatus* status) {
  if (WantsAny(config)) return HASTE_OK;
  std::string names;
  const auto allow = [&](EngineKind kind) {
    names += std::string(", \"") + EngineName(kind) + "\"";
    return Wants(config, kind);
  };
  bool allowed;
  if (cell.recurrence != HASTE_DENSE) {
    allowed = allow(EngineKind::kScan);
  } else if (config.device == HASTE_CPU) {
    allowed = allow(EngineKind::kCpu);
  } else {
    allowed = allow(EngineKind::kStepwise);
    if (CanBeBlas(config, cell)) allowed |= allow(EngineKind::kBlas);
    if (CanBeTiled(config, cell)) allowed |= allow(EngineKind::kTiled);
    if (CanBePersistent(config, cell)) {
      allowed |= allow(EngineKind::kBlock);
      allowed |= allow(EngineKind::kCluster);
      allowed |= allow(EngineKind::kGrid);
    }
  }
  if (allowed) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "engine: expected one of \"auto\"%s for %s of this dtype on this device, got "
                   "\"%s\"",
                   names.c_str(), cell.name, config.engine);
}

int32_t PlanRecurrence(const HasteRnnConfig& config, const HasteCellInfo& cell,
                       const CpuProperties& cpu, const CudaProperties& cuda, Plan* plan,
                       HasteStatus* status, bool backward) {
  HASTE_TRY(CheckEngine(config, cell, status));
  *plan = Plan();
  if (config.device == HASTE_CUDA) return PlanCuda(config, cell, cuda, backward, plan, status);
  *plan =
      cell.recurrence == HASTE_DENSE ? PlanCpu(config, cell, cpu, backward) : PlanScan(config, cpu);
  return HASTE_OK;
}

}  // namespace haste
