#include "lib/cuda/overlap/layer.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "lib/base/dtypes.h"
#include "lib/base/workspace.h"
#include "lib/cuda/gemm/split_fp16.h"
#include "lib/cuda/host/cublas.h"
#include "lib/cuda/host/device.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/side_stream.h"
#include "lib/cuda/overlap/chunked_gradients.h"
#include "lib/plan/layer_gemms.h"
#include "lib/plan/overlap.h"
#include "lib/plan/step_rows.h"

namespace haste {
namespace {

// One after the other, behind each other's alignment.
struct Memory {
  void* rnn;
  uint32_t* counts;
  char* product;
  size_t bytes;

  Memory(void* base, size_t rnn_bytes, int64_t parts, size_t product_bytes) {
    Workspace workspace(base);
    rnn = workspace.Take<char>(static_cast<int64_t>(rnn_bytes));
    counts = workspace.Take<uint32_t>(parts);
    product = workspace.Take<char>(static_cast<int64_t>(product_bytes));
    bytes = workspace.used();
  }
};

// Whether the environment allows what this file is for; asked once a process.
int32_t Allowed(bool* allowed, HasteStatus* status) {
  static const char* const kSetting = getenv("HASTE_OVERLAP");
  const char* const setting = kSetting == nullptr || *kSetting == '\0' ? "1" : kSetting;
  *allowed = strcmp(setting, "1") == 0;
  if (*allowed || strcmp(setting, "0") == 0) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "HASTE_OVERLAP: expected 0 or 1 in the environment, got %s", setting);
}

int32_t ClearCounts(const Memory& memory, int64_t parts, const HasteExecutor& executor,
                    HasteStatus* status) {
  HASTE_CUDA_TRY(cudaMemsetAsync(memory.counts, 0, parts * sizeof(uint32_t),
                                 static_cast<cudaStream_t>(executor.stream)),
                 status);
  return HASTE_OK;
}

// --- Forward

// Rows of tiles, of lanes that walk forwards and of those that walk backwards.
int64_t InputCounts(const HasteRnnConfig& config) {
  return 2 * CeilDiv(config.batch * config.time, int64_t{kProductRows});
}

int32_t PlanInput(const HasteRnnConfig& config, const CudaCell& cell, const PlannedRnn& planned,
                  int64_t features, InputBeside* beside, HasteStatus* status) {
  *beside = InputBeside();
  bool allowed;
  HASTE_TRY(Allowed(&allowed, status));
  if (!allowed) return HASTE_OK;
  *beside = PlanInputBeside(config, cell.info, features, planned.plan, planned.cuda);
  return HASTE_OK;
}

// Whether rows of all tensors that a step reads and leaves begin at multiples of 16 bytes.
bool Aligned(const HasteCellInfo& cell, const HasteRnnForwardArgs& args) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(args.wx) | reinterpret_cast<uintptr_t>(args.y) |
                   reinterpret_cast<uintptr_t>(args.gates);
  for (int i = 0; i < cell.saved; ++i) bits |= reinterpret_cast<uintptr_t>(args.saved[i]);
  return bits % kPieceBytes == 0;
}

// x·W + b, rows step by step; of the walk, where there is but one way.
ProductPart InputPart(const HasteRnnConfig& config, const HasteCellInfo& cell,
                      const HasteLayerForwardArgs& layer) {
  ProductPart part = {InputProduct(config, cell, layer.features), {}, {}};
  const bool reverse = OneDirection(config) && config.reverse != nullptr && config.reverse[0];
  const int64_t first = reverse ? config.time - 1 : 0;
  part.rows = {config.batch, reverse ? -1 : 1, config.time};
  const int64_t size = static_cast<int64_t>(DtypeSize(config.dtype));
  part.gemm.a = static_cast<const char*>(layer.x) + first * layer.features * size;
  part.gemm.b = layer.W;
  part.gemm.c = static_cast<char*>(layer.wx) + first * part.gemm.n * size;
  part.gemm.bias = layer.b;
  return part;
}

// --- Backward

int32_t PlanGradients(const HasteRnnConfig& config, const CudaCell& cell, const PlannedRnn& planned,
                      int64_t features, GradientsBeside* beside, HasteStatus* status) {
  bool allowed;
  HASTE_TRY(Allowed(&allowed, status));
  if (!allowed) return HASTE_OK;
  CudaProperties cuda = planned.cuda;
  cuda.has_cublas = true;  // and looked for if it would be wanted
  *beside = PlanGradientsBeside(config, cell.info, features, planned.plan, cuda);
  if (beside->parts > 0 && beside->cublas && !HaveCublasFor(config.dtype)) beside->parts = 0;
  return HASTE_OK;
}

// Of all parts that the walk counts, which does not know which of them are left to the last one.
int64_t Counts(const HasteRnnConfig& config, const GradientsBeside& beside) {
  return CeilDiv(config.time, beside.steps);
}

}  // namespace

int32_t InputBesideBytes(const HasteRnnConfig& config, const CudaCell& cell,
                         const PlannedRnn& planned, const HasteLayerForwardArgs& layer,
                         size_t* bytes, HasteStatus* status) {
  if (layer.gamma != nullptr) return HASTE_OK;
  InputBeside beside;
  HASTE_TRY(PlanInput(config, cell, planned, layer.features, &beside, status));
  if (!beside.product.ours) return HASTE_OK;
  const HasteGemm gemm = InputProduct(config, cell.info, layer.features);
  const size_t packed = ScaledGemmWorkspace(gemm, beside.product);
  *bytes = Memory(nullptr, *bytes, InputCounts(config), packed).bytes;
  return HASTE_OK;
}

int32_t LayerForwardBeside(const HasteRnnConfig& config, const CudaCell& cell,
                           const PlannedRnn& planned, const HasteLayerForwardArgs& layer,
                           const HasteRnnForwardArgs& rnn, void* workspace,
                           const HasteExecutor& executor, bool* done, HasteStatus* status) {
  *done = false;
  if (layer.gamma != nullptr || !Aligned(cell.info, rnn) || !SideStream::Possible(executor)) {
    return HASTE_OK;
  }
  InputBeside beside;
  HASTE_TRY(PlanInput(config, cell, planned, layer.features, &beside, status));
  const ProductPlan& product = beside.product;
  if (!product.ours) return HASTE_OK;
  *done = true;
  const Engine& engine = *planned.engine;
  const size_t bytes = engine.workspace_bytes(config, planned);
  const ProductPart part = InputPart(config, cell.info, layer);
  const int64_t counts = InputCounts(config);
  const Memory memory(workspace, bytes, counts, ScaledGemmWorkspace(part.gemm, product));
  HASTE_TRY(ClearCounts(memory, counts, executor, status));
  HASTE_TRY(PackOneChunk(part, product, memory.product, executor, status));
  TileOrder order = beside.order;
  if (beside.rows_before > 0) {
    ProductPlan before = product;
    before.pairs = beside.all_pairs;
    HASTE_TRY(MultiplyOneChunk(part, before, memory.product, order, beside.rows_before,
                               memory.counts, nullptr, executor, status));
    order.first = beside.rows_before;
  }
  SideStream side;
  HASTE_TRY(side.Begin(executor, status));
  HASTE_TRY(side.Follow(status));
  HASTE_TRY(MultiplyOneChunk(part, product, memory.product, order, order.rows - order.first,
                             memory.counts, side.event(), side.executor(), status));
  // The walk waits for the product, and so must not take the place of its blocks.
  HASTE_TRY(side.WaitForEvent(status));
  Watch watch = InputWatched(config, order);
  watch.counts = memory.counts;
  const int turned = order.turned();
  watch.wanted = ReadyCount(product, order.columns - turned);
  watch.wanted_backwards = ReadyCount(product, turned);
  HASTE_TRY(engine.watched_forward(config, planned, rnn, memory.rnn, watch, executor, status));
  return side.Join(status);
}

int32_t GradientsBesideBytes(const HasteRnnConfig& config, const CudaCell& cell,
                             const PlannedRnn& planned, const HasteLayerBackwardArgs& layer,
                             size_t* bytes, HasteStatus* status) {
  if (layer.gamma != nullptr) return HASTE_OK;
  GradientsBeside beside;
  HASTE_TRY(PlanGradients(config, cell, planned, layer.features, &beside, status));
  if (beside.parts == 0) return HASTE_OK;
  size_t product = 0;
  const HasteRnnBackwardArgs rnn = {};
  HASTE_TRY(PartGradients(config, cell.info, layer, rnn, beside).Bytes(&product, status));
  *bytes = Memory(nullptr, *bytes, Counts(config, beside), product).bytes;
  return HASTE_OK;
}

int32_t LayerBackwardBeside(const HasteRnnConfig& config, const CudaCell& cell,
                            const PlannedRnn& planned, const HasteLayerBackwardArgs& layer,
                            const HasteRnnBackwardArgs& rnn, void* workspace,
                            const HasteExecutor& executor, bool* done, HasteStatus* status) {
  *done = false;
  if (layer.gamma != nullptr || !SideStream::Possible(executor)) return HASTE_OK;
  GradientsBeside beside;
  HASTE_TRY(PlanGradients(config, cell, planned, layer.features, &beside, status));
  if (beside.parts == 0) return HASTE_OK;
  const Engine& engine = *planned.engine;
  const size_t bytes = engine.workspace_bytes(config, planned);
  size_t product = 0;
  const PartGradients products(config, cell.info, layer, rnn, beside);
  HASTE_TRY(products.Bytes(&product, status));
  *done = true;
  const Memory memory(workspace, bytes, Counts(config, beside), product);
  HASTE_TRY(ClearCounts(memory, Counts(config, beside), executor, status));
  SideStream side;
  HASTE_TRY(side.Begin(executor, status));
  HASTE_TRY(side.Follow(status));
  Watch watch;
  watch.counts = memory.counts;
  watch.mask = static_cast<int32_t>(beside.steps - 1);
  HASTE_TRY(engine.watched_backward(config, planned, rnn, memory.rnn, watch, executor, status));
  HASTE_TRY(products.Begin(side.executor(), status));
  for (int64_t part = 0; part < beside.parts; ++part) {
    HASTE_TRY(beside.IsLast(part) ? side.Follow(status)
                                  : side.WaitForCount(memory.counts + part, beside.blocks, status));
    HASTE_TRY(products.Multiply(part, memory.product, side.executor(), status));
  }
  HASTE_TRY(products.Finish(memory.product, side.executor(), status));
  // Beside the products of the last part.
  if (layer.db != nullptr) {
    const int64_t width = config.lanes * cell.info.gates * config.hidden;
    HASTE_TRY(CudaReduceRows(config.dtype, config.batch * config.time, width, rnn.dwx, layer.db,
                             executor, status));
  }
  return side.Join(status);
}

}  // namespace haste
