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
  using Params = BlockForwardParams<T>;
  static uintptr_t Bits(const HasteRnnForwardArgs& a) {
    return AddressBits<Cell>(a, a.wx, a.y, a.gates);
  }
  template <int kRows, bool kCluster, bool kOdd>
  static constexpr auto kKernel = BlockForward<Cell, T, kRows, kCluster, kOdd>;
};
template <class Cell, class T>
struct BackwardKernels {
  using CellType = Cell;
  using Params = BlockBackwardParams<T>;
  static uintptr_t Bits(const HasteRnnBackwardArgs& a) {
    return AddressBits<Cell>(a, a.gates, a.dy, a.dwx, a.dq);
  }
  template <int kRows, bool kCluster, bool kOdd>
  static constexpr auto kKernel = BlockBackward<Cell, T, kRows, kCluster, kOdd>;
};

template <class Kernels, bool kOdd>
auto KernelOf(const BlockTiling& t) {
  if (t.blocks > 1) {
    return t.rows == 4 ? Kernels::template kKernel<4, true, kOdd>
                       : Kernels::template kKernel<8, true, kOdd>;
  }
  return t.rows == 4 ? Kernels::template kKernel<4, false, kOdd>
                     : Kernels::template kKernel<8, false, kOdd>;
}

// The largest piece, up to kPieceBytes, whose size divides what has these bits.
int PieceOf(uintptr_t bits) {
  bits |= kPieceBytes;
  return static_cast<int>(bits & (~bits + 1));
}

template <class Kernels, class Args>
int32_t Run(const RnnCall& call, const Args& args, HasteStatus* status) {
  const auto& [config, planned, workspace, executor] = call;
  const BlockPlan& plan = planned.plan.block;
  typename Kernels::Params p = {};
  Workspace pieces(workspace);
  FillOnChip<typename Kernels::CellType>(config, args, &pieces, &p);
  p.tiling = plan.tiling;
  p.row_groups = static_cast<int>(plan.blocks / p.tiling.blocks / config.lanes);
  const uintptr_t bits = Kernels::Bits(args),
                  row = config.hidden * sizeof(typename Kernels::Params::Storage);
  p.piece = PieceOf(bits | row);
  p.wide_piece = p.tiling.blocks > 1 ? p.piece : PieceOf(bits | Kernels::CellType::kGates * row);
  // Without code for odd rows, tensors that begin oddly are copied number by number.
  const bool odd =
      p.piece < kPieceBytes && planned.cuda.sm_major == 9 && planned.cuda.clusters[2] > 0;
  if (p.piece < kPieceBytes && !odd) p.piece = sizeof(typename Kernels::Params::Storage);
  HASTE_TRY(PrepareFirstLive(p, executor, status));
  const auto kernel = odd ? KernelOf<Kernels, true>(p.tiling) : KernelOf<Kernels, false>(p.tiling);
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
  static int32_t Forward(const RnnCall& call, const HasteRnnForwardArgs& args,
                         HasteStatus* status) {
    return WithForwardStorage<T>(call.config, CellInfo<Cell>(), [&](auto* storage) {
      return Run<ForwardKernels<Cell, std::decay_t<decltype(*storage)>>>(call, args, status);
    });
  }
  static int32_t Backward(const RnnCall& call, const HasteRnnBackwardArgs& args,
                          HasteStatus* status) {
    using Storage = std::conditional_t<(Cell::kGates > 1), ScaledStorage<T>, T>;
    HASTE_TRY((Run<BackwardKernels<Cell, Storage>>(call, args, status)));
    return SumRecurrentBias<Cell>(call.config, args, call.executor, status);
  }
};

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_ENGINE(BlockEngine, HASTE_CELL, NAME, Block<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
