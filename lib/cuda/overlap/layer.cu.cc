#include "lib/cuda/overlap/layer.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/dtypes.h"
#include "lib/base/workspace.h"
#include "lib/cuda/gemm/split_fp16.h"
#include "lib/cuda/host/cublas.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/launch.cuh"
#include "lib/cuda/host/side_stream.h"
#include "lib/cuda/ops/ops.h"
#include "lib/cuda/overlap/chunked_gradients.h"
#include "lib/plan/engines/step_rows.h"
#include "lib/plan/gemm/layer_gemms.h"
#include "lib/plan/overlap.h"

namespace haste {
namespace {

// Takes regions of memory one after the other, each aligned.
struct Memory {
  void* rnn;
  uint32_t* counts;
  char* product;
  size_t bytes;

  Memory(void* base, size_t rnn_bytes, int64_t chunks, size_t product_bytes) {
    Workspace workspace(base);
    rnn = workspace.Take<char>(static_cast<int64_t>(rnn_bytes));
    counts = workspace.Take<uint32_t>(chunks);
    product = workspace.Take<char>(static_cast<int64_t>(product_bytes));
    bytes = workspace.used();
  }
};

// Whether the environment allows overlapping. Read once in a process.
int32_t Allowed(bool* allowed, HasteStatus* status) {
  static const char* const kSetting = getenv("HASTE_OVERLAP");
  const char* const setting = kSetting == nullptr || *kSetting == '\0' ? "1" : kSetting;
  *allowed = strcmp(setting, "1") == 0;
  if (*allowed || strcmp(setting, "0") == 0) return HASTE_OK;
  return SetStatus(status, HASTE_INVALID_ARGUMENT,
                   "HASTE_OVERLAP: expected 0 or 1 in the environment, got %s", setting);
}

// --- Forward

// Tile-ready flags: rows of tiles, for lanes that walk forwards and for those that walk backwards.
int64_t InputCounts(const HasteRnnConfig& config) {
  return 2 * CeilDiv(config.batch * config.time, int64_t{kProductRows});
}

int32_t PlanInput(const HasteRnnConfig& config, const CudaCell& cell, const PlannedRnn& planned,
                  int64_t features, OverlappedInput* overlap, HasteStatus* status) {
  bool allowed;
  HASTE_TRY(Allowed(&allowed, status));
  *overlap = allowed ? PlanOverlappedInput(config, cell.info, features, planned.plan, planned.cuda)
                     : OverlappedInput();
  return HASTE_OK;
}

// Whether rows of all tensors that a step reads and writes begin at multiples of 16 bytes.
bool Aligned(const HasteCellInfo& cell, const HasteRnnForwardArgs& args) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(args.wx) | reinterpret_cast<uintptr_t>(args.y) |
                   reinterpret_cast<uintptr_t>(args.gates);
  for (int i = 0; i < cell.saved; ++i) bits |= reinterpret_cast<uintptr_t>(args.saved[i]);
  return bits % kPieceBytes == 0;
}

// x·W + b, rows step by step; of the walk, where there is but one way.
ProductChunk InputPart(const HasteRnnConfig& config, const HasteCellInfo& cell,
                       const HasteLayerForwardArgs& layer) {
  ProductChunk chunk = {InputProduct(config, cell, layer.features), {}, {}};
  const bool reverse = OneDirection(config) && config.reverse != nullptr && config.reverse[0];
  const int64_t first = reverse ? config.time - 1 : 0;
  chunk.rows = {config.batch, reverse ? -1 : 1, config.time};
  const int64_t size = static_cast<int64_t>(DtypeSize(config.dtype));
  chunk.gemm.a = static_cast<const char*>(layer.x) + first * layer.features * size;
  chunk.gemm.b = layer.W;
  chunk.gemm.c = static_cast<char*>(layer.wx) + first * chunk.gemm.n * size;
  chunk.gemm.bias = layer.b;
  return chunk;
}

// --- Backward

int32_t PlanGradients(const HasteRnnConfig& config, const CudaCell& cell, const PlannedRnn& planned,
                      int64_t features, OverlappedGradients* overlap, HasteStatus* status) {
  bool allowed;
  HASTE_TRY(Allowed(&allowed, status));
  if (!allowed) return HASTE_OK;
  CudaProperties cuda = planned.cuda;
  cuda.has_cublas = true;  // it is looked for only if the plan wants it
  *overlap = PlanOverlappedGradients(config, cell.info, features, planned.plan, cuda);
  if (overlap->chunks > 0 && overlap->cublas && !HaveCublasFor(config.dtype)) overlap->chunks = 0;
  return HASTE_OK;
}

// Flags of all time chunks that the walk counts. It does not know which of them are left to the
// last one.
int64_t Counts(const HasteRnnConfig& config, const OverlappedGradients& overlap) {
  return CeilDiv(config.time, overlap.steps);
}

}  // namespace

int32_t OverlappedInputBytes(const HasteRnnConfig& config, const CudaCell& cell,
                             const PlannedRnn& planned, const HasteLayerForwardArgs& layer,
                             size_t* bytes, HasteStatus* status) {
  if (layer.gamma != nullptr) return HASTE_OK;
  OverlappedInput overlap;
  HASTE_TRY(PlanInput(config, cell, planned, layer.features, &overlap, status));
  if (!overlap.product.ours) return HASTE_OK;
  const HasteGemm gemm = InputProduct(config, cell.info, layer.features);
  const size_t packed = ScaledGemmWorkspace(gemm, overlap.product);
  *bytes = Memory(nullptr, *bytes, InputCounts(config), packed).bytes;
  return HASTE_OK;
}

int32_t OverlappedLayerForward(const RnnCall& call, const CudaCell& cell,
                               const HasteLayerForwardArgs& layer, const HasteRnnForwardArgs& rnn,
                               bool* done, HasteStatus* status) {
  const auto& [config, planned, workspace, executor] = call;
  *done = false;
  if (layer.gamma != nullptr || !Aligned(cell.info, rnn) || !SideStream::Possible(executor)) {
    return HASTE_OK;
  }
  OverlappedInput overlap;
  HASTE_TRY(PlanInput(config, cell, planned, layer.features, &overlap, status));
  const ProductPlan& product = overlap.product;
  if (!product.ours) return HASTE_OK;
  *done = true;
  const Engine& engine = *planned.engine;
  const size_t bytes = engine.workspace_bytes(config, planned);
  const ProductChunk chunk = InputPart(config, cell.info, layer);
  const int64_t counts = InputCounts(config);
  const Memory memory(workspace, bytes, counts, ScaledGemmWorkspace(chunk.gemm, product));
  HASTE_CUDA_TRY(Clear(memory.counts, counts * sizeof(uint32_t), executor), status);
  HASTE_TRY(PackOneChunk(chunk, product, memory.product, executor, status));
  TileOrder order = overlap.order;
  if (overlap.rows_before > 0) {
    ProductPlan before = product;
    before.pairs = overlap.all_pairs;
    HASTE_TRY(MultiplyOneChunk(chunk, before, memory.product, order, overlap.rows_before,
                               memory.counts, nullptr, executor, status));
    order.first = overlap.rows_before;
  }
  SideStream side;
  HASTE_TRY(side.Begin(executor, status));
  HASTE_TRY(side.Follow(status));
  HASTE_TRY(MultiplyOneChunk(chunk, product, memory.product, order, order.rows - order.first,
                             memory.counts, side.event(), side.executor(), status));
  // The walk waits for the product, so it must not take the multiprocessors of the product's
  // blocks.
  HASTE_TRY(side.WaitForEvent(status));
  OverlapFlags flags = InputFlags(config, order);
  flags.counts = memory.counts;
  const int turned = order.turned();
  flags.wanted = ReadyCount(product, order.columns - turned);
  flags.wanted_backwards = ReadyCount(product, turned);
  HASTE_TRY(engine.overlapped_forward({config, planned, memory.rnn, executor}, rnn, flags, status));
  return side.Join(status);
}

int32_t OverlappedGradientsBytes(const HasteRnnConfig& config, const CudaCell& cell,
                                 const PlannedRnn& planned, const HasteLayerBackwardArgs& layer,
                                 size_t* bytes, HasteStatus* status) {
  if (layer.gamma != nullptr) return HASTE_OK;
  OverlappedGradients overlap;
  HASTE_TRY(PlanGradients(config, cell, planned, layer.features, &overlap, status));
  if (overlap.chunks == 0) return HASTE_OK;
  size_t product = 0;
  const HasteRnnBackwardArgs rnn = HASTE_INIT(HasteRnnBackwardArgs);
  HASTE_TRY(ChunkedGradients(config, cell.info, layer, rnn, overlap).Bytes(&product, status));
  *bytes = Memory(nullptr, *bytes, Counts(config, overlap), product).bytes;
  return HASTE_OK;
}

int32_t OverlappedLayerBackward(const RnnCall& call, const CudaCell& cell,
                                const HasteLayerBackwardArgs& layer,
                                const HasteRnnBackwardArgs& rnn, bool* done, HasteStatus* status) {
  const auto& [config, planned, workspace, executor] = call;
  *done = false;
  if (layer.gamma != nullptr || !SideStream::Possible(executor)) return HASTE_OK;
  OverlappedGradients overlap;
  HASTE_TRY(PlanGradients(config, cell, planned, layer.features, &overlap, status));
  if (overlap.chunks == 0) return HASTE_OK;
  const Engine& engine = *planned.engine;
  const size_t bytes = engine.workspace_bytes(config, planned);
  size_t product = 0;
  const ChunkedGradients products(config, cell.info, layer, rnn, overlap);
  HASTE_TRY(products.Bytes(&product, status));
  *done = true;
  const int64_t counts = Counts(config, overlap);
  const Memory memory(workspace, bytes, counts, product);
  HASTE_CUDA_TRY(Clear(memory.counts, counts * sizeof(uint32_t), executor), status);
  SideStream side;
  HASTE_TRY(side.Begin(executor, status));
  HASTE_TRY(side.Follow(status));
  OverlapFlags flags;
  flags.counts = memory.counts;
  flags.mask = static_cast<int32_t>(overlap.steps - 1);
  HASTE_TRY(
      engine.overlapped_backward({config, planned, memory.rnn, executor}, rnn, flags, status));
  HASTE_TRY(products.Begin(side.executor(), status));
  for (int64_t chunk = 0; chunk < overlap.chunks; ++chunk) {
    HASTE_TRY(overlap.IsLast(chunk)
                  ? side.Follow(status)
                  : side.WaitForCount(memory.counts + chunk, overlap.blocks, status));
    HASTE_TRY(products.Multiply(chunk, memory.product, side.executor(), status));
  }
  HASTE_TRY(products.Finish(memory.product, side.executor(), status));
  // Overlapped with the products of the last time chunk.
  if (layer.db != nullptr) {
    const int64_t width = config.lanes * cell.info.gates * config.hidden;
    HASTE_TRY(CudaReduceRows(config.dtype, config.batch * config.time, width, rnn.dwx, layer.db,
                             executor, status));
  }
  return side.Join(status);
}

}  // namespace haste
