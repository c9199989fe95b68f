// Host code of walks whose products are in tiles: workspace, R packed, and the launch of a walk
// where R is stationary.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/cuda/cell/walk_setup.cuh"
#include "lib/cuda/tiled/pack.cuh"
#include "lib/cuda/tiled/stationary_backward.cuh"
#include "lib/cuda/tiled/stationary_backward_walk.cuh"
#include "lib/cuda/tiled/stationary_forward.cuh"
#include "lib/cuda/tiled/stationary_reset.cuh"

namespace haste {

// Whether a direction has kernels for R that is stationary (TiledProblem::allows_stationary).
template <class D>
constexpr bool kCanBeStationary = kMmaTerms<typename D::Params::Storage> == 1;

// What an EnginePolicy for WalkEngine has of its products. kStationary, kOther: R can be
// stationary, or not.
template <class Cell, class D, bool kStationary, bool kOther = true>
class TiledProducts {
 public:
  using Direction = D;

  TiledProducts(const HasteRnnConfig& config, const PlannedRnn& planned)
      : config_(config), plan_(planned.plan), device_(planned.cuda) {}

  template <class Phase, class Params>
  auto FillPhase(Phase*, int i, Workspace* workspace, Params* p) const {
    if (IsPartOfFirst(i)) return p->operand;
    const TiledTiling& t = p->tiling = plan_.tiled[i].tiling;
    const TiledProductShape shape = ShapeOf<Phase>();
    const int64_t chunks = t.total_chunks();
    p->exact = config_.allow_tf32 == 0;
    const int kernel_bytes = t.stationary() ? t.kernel_chunk_bytes() : shape.kernel_bytes();
    p->kernel = workspace->Take<uint4>(p->K * t.unit_tiles * chunks * kernel_bytes / sizeof(uint4));
    p->operand.chunks = static_cast<int>(chunks * (t.stationary() ? t.terms : 1));
    p->operand.row_tiles = t.row_tiles;
    p->operand.width = t.stationary() ? t.slot_bytes() / 2 / t.rows : shape.operand_width();
    while (1 << p->operand.log_rows < t.rows) ++p->operand.log_rows;
    p->operand.a = workspace->Take<uint16_t>(p->operand.Size(p->K));
    p->arrived = workspace->Take<uint32_t>(Counters(*p));
    p->parts = workspace->Take<uint4>(Parts(*p));
    p->most = workspace->Take<float>(2);
    return p->operand;
  }

  template <class Phase, class Params>
  int32_t PreparePhase(Phase*, const Params& p, const void* r, const HasteExecutor& executor,
                       HasteStatus* status) const {
    using T = typename Params::Storage;
    const TiledTiling& t = p.tiling;
    if (t.units == 0) return HASTE_OK;  // FillPhase has left it out
    const T* from = static_cast<const T*>(r);
    if constexpr (kScaledTerms<T> > 0) {
      const int64_t weights = p.K * p.H * Phase::kAllGates * p.H;
      HASTE_CUDA_TRY(Clear(p.most, 2 * sizeof(float), executor), status);
      HASTE_CUDA_TRY(LaunchPrepare(FindMost<Cell, Phase>, weights, executor, p, weights, from),
                     status);
    }
    HASTE_CUDA_TRY(Pack<Phase>(p, from, executor), status);
    const size_t bytes = p.operand.Size(p.K) * sizeof(uint16_t);
    HASTE_CUDA_TRY(Clear(p.operand.a, bytes, executor), status);
    if (Parts(p) > 0) HASTE_CUDA_TRY(Clear(p.parts, Parts(p) * sizeof(uint4), executor), status);
    return HASTE_CUDA_STATUS(Clear(p.arrived, Counters(p) * sizeof(uint32_t), executor), status);
  }

 protected:
  // Elements: what a thread does with its elements (stationary_forward.cuh).
  template <class Elements, class Params>
  int32_t LaunchForward(const Params& p, int64_t steps, const HasteExecutor& executor,
                        HasteStatus* status) const {
    StepKernel<const Params, int64_t> kernel(p.tiling.turns > 1
                                                 ? StationarySteps<Elements, 2, Params>
                                                 : StationarySteps<Elements, 1, Params>);
    HASTE_TRY(CheckKept(p.tiling, Elements::kRegisterDepth, status));
    HASTE_TRY(kernel.Set(StationaryShape(p), device_, status));
    return kernel.Run(false, executor, status, p, steps);
  }
  // Wide, Narrow: of row tiles of 64 rows, and of 32 (stationary_backward.cuh).
  template <class Wide, class Narrow, class Params>
  int32_t LaunchBackward(const Params& p, int64_t first, int64_t steps,
                         const HasteExecutor& executor, HasteStatus* status) const {
    StepKernel<const Params, int64_t, int64_t> kernel(
        p.tiling.rows == kStationaryRows ? BackwardOf<Wide, Params>(p.tiling.turns)
                                         : BackwardOf<Narrow, Params>(p.tiling.turns));
    const int register_depth =
        p.tiling.rows == kStationaryRows ? Wide::kRegisterDepth : Narrow::kRegisterDepth;
    HASTE_TRY(CheckKept(p.tiling, register_depth, status));
    HASTE_TRY(kernel.Set(StationaryShape(p), device_, status));
    return kernel.Run(false, executor, status, p, first, steps);
  }

  const HasteRnnConfig& config_;
  const Plan& plan_;
  const CudaProperties& device_;

 private:
  // Whether a phase has no product of its own: where R is stationary the first has all of a step's.
  bool IsPartOfFirst(int phase) const { return phase > 0 && plan_.tiled[0].tiling.stationary(); }

  // The plan and the kernel divide R alike.
  static int32_t CheckKept(const TiledTiling& t, int register_depth, HasteStatus* status) {
    const int kept = std::min(t.chunks, 2 * register_depth / t.stationary_depth());
    if (t.kept == kept) return HASTE_OK;
    return SetStatus(status, HASTE_INTERNAL,
                     "tiled: the plan keeps %d chunks of R in registers, the "
                     "kernel %d",
                     t.kept, kept);
  }
  template <class Elements, class Params>
  static auto BackwardOf(int turns) {
    return turns > 1 ? StationaryBackwardSteps<Elements, 2, Params>
                     : StationaryBackwardSteps<Elements, 1, Params>;
  }
  template <class Params>
  LaunchShape StationaryShape(const Params& p) const {
    return {p.tiling.blocks(p.K), kStationaryThreads,
            static_cast<size_t>(plan_.tiled[0].shared_bytes), p.tiling.cluster(), true};
  }

  // What blocks count, or set flags for, that they have ended a step.
  template <class Params>
  static int64_t Counters(const Params& p) {
    const TiledTiling& t = p.tiling;
    return p.K * t.row_tiles * (t.stationary() ? t.flags() : 1);
  }

  template <class Params>
  static int64_t Parts(const Params& p) {
    const TiledTiling& t = p.tiling;
    return t.meets_in_memory() ? p.K * t.row_groups() * t.unit_tiles * MeetingParts(t) : 0;
  }

  template <class Phase, class Params, class T>
  static cudaError_t Pack(const Params& p, const T* from, const HasteExecutor& executor) {
    const TiledTiling& t = p.tiling;
    uint4* to = const_cast<uint4*>(p.kernel);
    if constexpr (kStationary) {
      if (t.stationary()) {
        const int64_t pieces =
            p.K * t.group_blocks() * t.chunks * (t.kernel_chunk_bytes() / sizeof(uint4));
        return LaunchPrepare(PackStationary<Phase>, pieces, executor, p, from, to);
      }
    }
    if constexpr (kOther) {
      const int64_t warps = p.K * t.unit_tiles * t.total_chunks() * ShapeOf<Phase>().tile_pieces();
      return LaunchPrepare(PackTiled<Phase>, warps * 32, executor, p, from, to);
    }
    return cudaErrorNotSupported;
  }
};

// An EnginePolicy for WalkEngine: R is stationary. kOther: of one whose R need not be.
template <class Cell, class D, bool kOther = false>
class StationaryPolicy : public TiledProducts<Cell, D, true, kOther> {
  using Products = TiledProducts<Cell, D, true, kOther>;
  using Params = typename D::Params;

 public:
  using Products::Products;

  int32_t Walk(const Phased<D>& phased, int64_t first, int64_t steps, const HasteExecutor& executor,
               HasteStatus* status) const {
    const Params& p = phased.of[0];
    if constexpr (D::First::kBackward) {
      if (p.tiling.meets_in_memory()) {
        if constexpr (Params::kTerms == 1) {
          using Sharing = StationaryBackwardOf<Cell, kStationaryRows, Params, true>;
          return this->template LaunchBackward<Sharing, Sharing>(p, first, steps, executor, status);
        } else {
          return SetStatus(status, HASTE_INTERNAL, "tiled: the plan shares gradients of two terms");
        }
      }
      using Wide = StationaryBackwardOf<Cell, kStationaryRows, Params>;
      using Narrow = StationaryBackwardOf<Cell, kStationaryRows / 2, Params>;
      return this->template LaunchBackward<Wide, Narrow>(p, first, steps, executor, status);
    } else {
      using Elements = StationaryForwardOf<Cell, Params>;
      return this->template LaunchForward<Elements>(p, steps, executor, status);
    }
  }
};

}  // namespace haste
