// The functions of the engine table, for the best SIMD target. Included at the end of the file of
// an engine that multiplies. That file defines in this namespace
//
//   Forward           a walk, made of (config, rows_per_task, args, workspace, layer, place);
//                     rows_per_task: of TaskRows; layer: x, W and b in place of args.wx, or
//                     nullptr, as it is unless Forward::kProjects; place: of packed weights
//   Backward          a walk, made of (config, rows_per_task, args, workspace)
//   Run(walk, config, plan, executor)
//
// and, for the build, HASTE_CELL and HASTE_DTYPE_NAME. Per-target header.
#if defined(HASTE_LIB_CPU_ENGINES_ENGINE_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef HASTE_LIB_CPU_ENGINES_ENGINE_TABLE_INL_H_
#else
#define HASTE_LIB_CPU_ENGINES_ENGINE_TABLE_INL_H_
#endif

#include "lib/base/workspace.h"
#include "lib/engine/engine.h"
#include "lib/engine/packed_weights.h"
#include "lib/plan/plan.h"

HASTE_TARGET_BEGIN

namespace {  // one of each target and each compilation of an engine

// 0: no two threads walk different rows.
int64_t RowsPerTask(const Plan& plan) {
  return plan.split == CpuSplit::kRows && plan.threads > 1 ? plan.rows_per_task : 0;
}

size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned,
                      const HasteLayerForwardArgs* layer) {
  const int64_t rows = RowsPerTask(planned.plan);
  Workspace count(nullptr);
  // The call may have a mask and a seed: reserve memory for both.
  const uint8_t some_mask = 0;
  if (planned.backward) {
    HasteRnnBackwardArgs args = HASTE_INIT(HasteRnnBackwardArgs);
    args.mask = &some_mask;
    Backward walk(config, rows, args, &count);
  } else {
    HasteRnnForwardArgs args = HASTE_INIT(HasteRnnForwardArgs);
    args.mask = &some_mask;
    Forward walk(config, rows, args, &count, layer, {&count});
  }
  return count.used();
}

size_t PackedBytes(const HasteRnnConfig& config, const HasteLayerForwardArgs* layer) {
  Workspace count(nullptr), packed(nullptr);
  const HasteRnnForwardArgs args = HASTE_INIT(HasteRnnForwardArgs);
  Forward walk(config, /*rows_per_task=*/0, args, &count, layer, {&packed, /*kept=*/true});
  return packed.used();
}

void RunForward(const RnnCall& call, const HasteLayerForwardArgs* layer,
                const HasteRnnForwardArgs& args) {
  HastePackedWeights::Use packed(args.packed,
                                 PackedKeyOf(call.planned.engine, call.config, args, layer),
                                 [&] { return PackedBytes(call.config, layer); });
  Workspace workspace(call.workspace), kept(packed.memory());
  const PackPlace place = packed.memory() == nullptr
                              ? PackPlace{&workspace}
                              : PackPlace{&kept, /*kept=*/true, packed.filled()};
  const Plan& plan = call.planned.plan;
  Forward walk(call.config, RowsPerTask(plan), args, &workspace, layer, place);
  Run(walk, call.config, plan, call.executor);
  packed.Filled();
}

void RunBackward(const RnnCall& call, const HasteRnnBackwardArgs& args) {
  Workspace workspace(call.workspace);
  const Plan& plan = call.planned.plan;
  Backward walk(call.config, RowsPerTask(plan), args, &workspace);
  Run(walk, call.config, plan, call.executor);
}

}  // namespace

HASTE_TARGET_END

#if HWY_ONCE
namespace haste {
namespace {

size_t DispatchWorkspace(const HasteRnnConfig& config, const PlannedRnn& planned) {
  return HASTE_DISPATCH(WorkspaceBytes)(config, planned, nullptr);
}

size_t DispatchLayerWorkspace(const HasteRnnConfig& config, const PlannedRnn& planned,
                              const HasteLayerForwardArgs& layer) {
  return HASTE_DISPATCH(WorkspaceBytes)(config, planned, &layer);
}

int32_t DispatchForward(const RnnCall& call, const HasteRnnForwardArgs& args, HasteStatus*) {
  HASTE_DISPATCH(RunForward)(call, nullptr, args);
  return HASTE_OK;
}

int32_t DispatchLayerForward(const RnnCall& call, const HasteLayerForwardArgs& layer,
                             const HasteRnnForwardArgs& args, HasteStatus*) {
  HASTE_DISPATCH(RunForward)(call, &layer, args);
  return HASTE_OK;
}

int32_t DispatchBackward(const RnnCall& call, const HasteRnnBackwardArgs& args, HasteStatus*) {
  HASTE_DISPATCH(RunBackward)(call, args);
  return HASTE_OK;
}

}  // namespace

#define HASTE_ENGINE_NAME2(CELL, DTYPE) CpuEngine_##CELL##_##DTYPE
#define HASTE_ENGINE_NAME(CELL, DTYPE) HASTE_ENGINE_NAME2(CELL, DTYPE)
extern const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME);
constexpr bool kProjects = HWY_NAMESPACE::Forward::kProjects;
const Engine HASTE_ENGINE_NAME(HASTE_CELL, HASTE_DTYPE_NAME) = {
    DispatchWorkspace, DispatchForward, DispatchBackward,
    kProjects ? DispatchLayerWorkspace : nullptr, kProjects ? DispatchLayerForward : nullptr};

}  // namespace haste
#endif  // HWY_ONCE

#endif
