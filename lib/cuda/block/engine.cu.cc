// The engine `block`: one launch of blocks that each walk all steps alone, with a lane's R on the
// chip. Compiled once for each cell and group of dtypes (lib/cuda/cell/engine_table.h).
#include <cstdint>

#include "lib/cuda/block/backward.cuh"
#include "lib/cuda/block/forward.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/cell/walk_setup.cuh"

namespace haste {
namespace {

template <class Cell, class T>
struct ForwardKernels {
  using CellType = Cell;
  using Storage = T;
  using Params = BlockForwardParams<T>;
  static uintptr_t Bits(const HasteRnnForwardArgs& a) {
    return AddressBits<Cell>(a, a.wx, a.y, a.gates);
  }
  template <bool kCluster, bool kOdd>
  static auto OfRows(const BlockTiling& t) {
    return t.rows == 4 ? BlockForward<Cell, T, 4, kCluster, kOdd>
                       : BlockForward<Cell, T, 8, kCluster, kOdd>;
  }
};
template <class Cell, class T>
struct BackwardKernels {
  using CellType = Cell;
  using Storage = T;
  using Params = BlockBackwardParams<T>;
  static uintptr_t Bits(const HasteRnnBackwardArgs& a) {
    return AddressBits<Cell>(a, a.gates, a.dy, a.dwx, a.dq);
  }
  template <bool kCluster, bool kOdd>
  static auto OfRows(const BlockTiling& t) {
    return t.rows == 4 ? BlockBackward<Cell, T, 4, kCluster, kOdd>
                       : BlockBackward<Cell, T, 8, kCluster, kOdd>;
  }
};

template <class Kernels>
auto KernelOf(const BlockTiling& t, bool odd) {
  if (odd) {
    return t.blocks > 1 ? Kernels::template OfRows<true, true>(t)
                        : Kernels::template OfRows<false, true>(t);
  }
  return t.blocks > 1 ? Kernels::template OfRows<true, false>(t)
                      : Kernels::template OfRows<false, false>(t);
}

// The largest piece, up to kPieceBytes, whose size divides what has these bits.
int PieceOf(uintptr_t bits) {
  bits |= kPieceBytes;
  return static_cast<int>(bits & (~bits + 1));
}

template <class Kernels, class Args>
int32_t Call(const HasteRnnConfig& config, const PlannedRnn& planned, const Args& args,
             void* workspace, const HasteExecutor& executor, HasteStatus* status) {
  const BlockPlan& plan = planned.plan.block;
  typename Kernels::Params p = {};
  Workspace pieces(workspace);
  FillOnChip<typename Kernels::CellType>(config, args, &pieces, &p);
  p.tiling = plan.tiling;
  p.row_groups = static_cast<int>(plan.blocks / p.tiling.blocks / config.lanes);
  const uintptr_t bits = Kernels::Bits(args),
                  row = config.hidden * sizeof(typename Kernels::Storage);
  p.piece = PieceOf(bits | row);
  p.wide_piece = p.tiling.blocks > 1 ? p.piece : PieceOf(bits | Kernels::CellType::kGates * row);
  // Without code for odd rows, tensors that begin oddly are copied number by number.
  const bool odd =
      p.piece < kPieceBytes && planned.cuda.sm_major == 9 && planned.cuda.clusters[2] > 0;
  if (p.piece < kPieceBytes && !odd) p.piece = sizeof(typename Kernels::Storage);
  HASTE_TRY(PrepareFirstLive(p, executor, status));
  const auto kernel = KernelOf<Kernels>(p.tiling, odd);
  LaunchShape shape;
  shape.blocks = plan.blocks;
  shape.threads = (p.tiling.warps + kCopyWarps) * 32;
  shape.shared_bytes = plan.shared_bytes;
  shape.cluster = p.tiling.blocks;
  HASTE_CUDA_TRY(AllowShape(kernel, shape), status);
  return HASTE_CUDA_STATUS(Launch(kernel, shape, executor, p), status);
}

template <class Cell, class T>
struct Block {
  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn&) {
    Workspace count(nullptr);
    count.Take<int64_t>(2 * config.batch);  // first_live, if there is a mask
    return count.used();
  }
  static int32_t Forward(const HasteRnnConfig& config, const PlannedRnn& planned,
                         const HasteRnnForwardArgs& args, void* workspace,
                         const HasteExecutor& executor, HasteStatus* status) {
    return WithForwardStorage<T>(config, CellInfo<Cell>(), [&](auto* storage) {
      using Kernels = ForwardKernels<Cell, std::decay_t<decltype(*storage)>>;
      return Call<Kernels>(config, planned, args, workspace, executor, status);
    });
  }
  static int32_t Backward(const HasteRnnConfig& config, const PlannedRnn& planned,
                          const HasteRnnBackwardArgs& args, void* workspace,
                          const HasteExecutor& executor, HasteStatus* status) {
    using Storage = std::conditional_t<(Cell::kGates > 1), ScaledStorage<T>, T>;
    HASTE_TRY(
        (Call<BackwardKernels<Cell, Storage>>(config, planned, args, workspace, executor, status)));
    return SumRecurrentBias<Cell>(config, args, executor, status);
  }
};

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(BlockEngine, HASTE_CELL, NAME, Block<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
