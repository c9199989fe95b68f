// The persistent engines, `cluster` and `grid`: one launch walks all steps, and R stays on the
// chip. Compiled once for each cell and group of dtypes (lib/cuda/cell/engine_table.h).
//
// Blocks that wait for each other must all be resident. The blocks of a cluster are so by
// definition, those of a grid by cooperative launch. PlanRecurrence decides what runs where and how
// it is cut.
#include <cstdint>

#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/cell/walk_setup.cuh"
#include "lib/cuda/persistent/backward.cuh"
#include "lib/cuda/persistent/forward.cuh"

namespace haste {
namespace {

template <class Cell, class T>
struct ForwardKernels {
  using CellType = Cell;
  using Params = PersistentForwardParams<T>;
  using Kernel = void (*)(const Params);
  static constexpr bool kBackward = false;
  static int Threads(const PersistentTiling& t) {
    return t.element_warps > 0 ? ForwardRoles<ForwardWay::kGridWarpSpecialized>::kThreads
                               : ForwardRoles<ForwardWay::kGrid>::kThreads;
  }
  static Kernel Of(const Params& p, bool cluster) {
    if constexpr (kMmaTerms<T> == 1) {
      if (p.tiling.element_warps > 0)
        return PersistentForward<Cell, T, 1, ForwardWay::kGridWarpSpecialized>;
    }
    return cluster ? OfTiles<ForwardWay::kCluster>(p.tiling) : OfTiles<ForwardWay::kGrid>(p.tiling);
  }
  static size_t ExchangeBytes(const PersistentTiling& t) {
    return static_cast<size_t>(kForwardSlots<false>) * t.passes *
           ReceivedStates(t, kOperandBytes<T>);
  }

 private:
  template <ForwardWay kWay>
  static Kernel OfTiles(const PersistentTiling& t) {
    return t.row_tiles == 1 ? PersistentForward<Cell, T, 1, kWay>
                            : PersistentForward<Cell, T, 2, kWay>;
  }
};
template <class Cell, class T>
struct BackwardKernels {
  using CellType = Cell;
  using Params = PersistentBackwardParams<T>;
  using Kernel = void (*)(const Params);
  static constexpr bool kBackward = true;
  static int Threads(const PersistentTiling&) { return kPersistentWarps * 32; }
  // The variants that a plan may ask for (WithBackwardStorage).
  static constexpr bool kShares = Cell::kGates == 1 || sizeof(T) == 2 || kScaledTerms<T> > 0;
  static constexpr bool kOwns = kScaledTerms<T> == 0;
  static Kernel Of(const Params& p, bool cluster) {
    const PersistentTiling& t = p.tiling;
    if constexpr (kShares) {
      if (t.sharers > 1) return OfTiles<false, true>(t);
    }
    if constexpr (kOwns) return cluster ? OfTiles<true, false>(t) : OfTiles<false, false>(t);
    return nullptr;
  }
  static size_t ExchangeBytes(const PersistentTiling& t) {
    return static_cast<size_t>(kBackwardSlots) * t.passes * t.blocks * ReceivedSums(t);
  }

 private:
  template <bool kCluster, bool kShared>
  static Kernel OfTiles(const PersistentTiling& t) {
    return t.row_tiles == 1 ? PersistentBackward<Cell, T, 1, kCluster, kShared>
                            : PersistentBackward<Cell, T, 2, kCluster, kShared>;
  }
};

// Calls run with a pointer to the type as which a backward walk multiplies T: gates' gradients that
// clusters share are scaled.
template <class Cell, class T, class Run>
auto WithBackwardStorage(const Plan& plan, const Run& run) {
  if constexpr (Cell::kGates > 1 && sizeof(T) == 4) {
    if (plan.persistent.tiling.sharers > 1) return run(static_cast<ScaledStorage<T>*>(nullptr));
  }
  return run(static_cast<T*>(nullptr));
}

// Fills in what FillOnChip does not. `workspace` counts the bytes.
template <class Kernels>
void Place(const Plan& plan, const HasteRnnConfig& config, Workspace* workspace,
           typename Kernels::Params* p) {
  const PersistentTiling& t = p->tiling = plan.persistent.tiling;
  p->exchange = nullptr;
  if (plan.engine == EngineKind::kGrid) {
    p->exchange = workspace->Take<uint4>(config.lanes * t.row_groups *
                                         (Kernels::ExchangeBytes(t) / sizeof(uint4)));
  }
}

template <class Kernels>
size_t BytesOf(const Plan& plan, const HasteRnnConfig& config) {
  Workspace count(nullptr);
  typename Kernels::Params p = {};
  count.Take<int64_t>(2 * config.batch);  // first_live, if there is a mask
  Place<Kernels>(plan, config, &count, &p);
  return count.used();
}

template <class Kernels>
int32_t LaunchWalk(const Plan& plan, const typename Kernels::Params& p,
                   const HasteExecutor& executor, HasteStatus* status) {
  const PersistentTiling& t = p.tiling;
  const bool cluster = plan.engine == EngineKind::kCluster;
  const auto kernel = Kernels::Of(p, cluster);
  LaunchShape shape;
  shape.blocks = p.K * t.row_groups * t.blocks;
  shape.threads = Kernels::Threads(t);
  shape.shared_bytes = plan.persistent.shared_bytes;
  shape.cluster = cluster ? t.blocks : t.sharers;
  shape.cooperative = !cluster;
  HASTE_CUDA_TRY(AllowShape(kernel, shape), status);
  return HASTE_CUDA_STATUS(Launch(kernel, shape, executor, p), status);
}

// The size of a copied piece, in bytes.
template <class Kernels>
int PieceOf(const HasteRnnConfig& config, const HasteRnnForwardArgs& args) {
  constexpr int kElement = sizeof(typename Kernels::Params::Storage);
  const uintptr_t bits = config.hidden * kElement |
                         AddressBits<typename Kernels::CellType>(args, args.wx, args.y, args.gates);
  return bits % kPieceBytes == 0 ? kPieceBytes : kElement;
}

template <class Kernels, class Args>
int32_t Run(const RnnCall& call, const Args& args, const OverlapFlags& flags, HasteStatus* status) {
  const auto& [config, planned, workspace, executor] = call;
  typename Kernels::Params p = {};
  p.flags = flags;
  Workspace pieces(workspace);
  FillOnChip<typename Kernels::CellType>(config, args, &pieces, &p);
  Place<Kernels>(planned.plan, config, &pieces, &p);
  if (p.exchange != nullptr) {
    HASTE_CUDA_TRY(
        cudaMemsetAsync(p.exchange, 0xFF,
                        config.lanes * p.tiling.row_groups * Kernels::ExchangeBytes(p.tiling),
                        static_cast<cudaStream_t>(executor.stream)),
        status);
  }
  if constexpr (!Kernels::kBackward) p.piece = PieceOf<Kernels>(config, args);
  HASTE_TRY(PrepareFirstLive(p, executor, status));
  return LaunchWalk<Kernels>(planned.plan, p, executor, status);
}

template <class Cell, class T>
struct Persistent {
  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    const Plan& plan = planned.plan;
    if (planned.backward) {
      return WithBackwardStorage<Cell, T>(plan, [&](auto* storage) {
        return BytesOf<BackwardKernels<Cell, std::decay_t<decltype(*storage)>>>(plan, config);
      });
    }
    return WithForwardStorage<T>(config, CellInfo<Cell>(), [&](auto* storage) {
      return BytesOf<ForwardKernels<Cell, std::decay_t<decltype(*storage)>>>(plan, config);
    });
  }

  static int32_t Forward(const RnnCall& call, const HasteRnnForwardArgs& args,
                         HasteStatus* status) {
    return OverlappedForward(call, args, OverlapFlags(), status);
  }
  static int32_t Backward(const RnnCall& call, const HasteRnnBackwardArgs& args,
                          HasteStatus* status) {
    return OverlappedBackward(call, args, OverlapFlags(), status);
  }

  static int32_t OverlappedForward(const RnnCall& call, const HasteRnnForwardArgs& args,
                                   const OverlapFlags& flags, HasteStatus* status) {
    return WithForwardStorage<T>(call.config, CellInfo<Cell>(), [&](auto* storage) {
      using Kernels = ForwardKernels<Cell, std::decay_t<decltype(*storage)>>;
      return Run<Kernels>(call, args, flags, status);
    });
  }
  static int32_t OverlappedBackward(const RnnCall& call, const HasteRnnBackwardArgs& args,
                                    const OverlapFlags& flags, HasteStatus* status) {
    HASTE_TRY((WithBackwardStorage<Cell, T>(call.planned.plan, [&](auto* storage) {
      using Kernels = BackwardKernels<Cell, std::decay_t<decltype(*storage)>>;
      return Run<Kernels>(call, args, flags, status);
    })));
    return SumRecurrentBias<Cell>(call.config, args, call.executor, status);
  }
};

}  // namespace

#define HASTE_ENGINE(NAME, T) \
  HASTE_DEFINE_OVERLAPPED_ENGINE(PersistentEngine, HASTE_CELL, NAME, Persistent<HASTE_CELL, T>)
HASTE_UNIT(HASTE_ENGINE)

}  // namespace haste
