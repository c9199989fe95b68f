// The `tiled` engine for float32 where TensorFloat-32 is allowed: R is stationary, and floats are
// scaled float16, of the same precision (Scaled). Where R is not stationary this is the engine of
// float32. Compiled once for each cell (lib/cuda/cell/engine_table.h).
#include <cstdint>

#include "lib/cuda/cell/engine_driver.cuh"
#include "lib/cuda/cell/engine_table.h"
#include "lib/cuda/tiled/setup.cuh"

namespace haste {
namespace {

template <class Cell>
using StationaryFloats =
    WalkEngine<Cell, StationaryPolicy<Cell, ForwardPhases<Cell, TiledForwardParams<Scaled<1>, 1>>>,
               StationaryPolicy<Cell, BackwardPhases<Cell, TiledBackwardParams<Scaled<1>, 1>>>>;

// Walk: where R is stationary. kOther: elsewhere.
template <class Walk, const Engine& kOther>
class StationaryOr {
  static bool IsStationary(const PlannedRnn& planned) {
    return planned.plan.tiled[0].tiling.stationary();
  }

 public:
  static size_t WorkspaceBytes(const HasteRnnConfig& config, const PlannedRnn& planned) {
    const auto of = IsStationary(planned) ? Walk::WorkspaceBytes : kOther.workspace_bytes;
    return of(config, planned);
  }
  static int32_t Forward(const RnnCall& call, const HasteRnnForwardArgs& args,
                         HasteStatus* status) {
    const auto run = IsStationary(call.planned) ? Walk::Forward : kOther.forward;
    return run(call, args, status);
  }
  static int32_t Backward(const RnnCall& call, const HasteRnnBackwardArgs& args,
                          HasteStatus* status) {
    const auto run = IsStationary(call.planned) ? Walk::Backward : kOther.backward;
    return run(call, args, status);
  }
};

}  // namespace

#define HASTE_FLOATS_ENGINE(CELL)                                                   \
  extern const Engine TiledEngine_##CELL##_f32;                                     \
  using Walk_##CELL =                                                               \
      StationaryOr<WalkOf<CELL, StationaryFloats<CELL>>, TiledEngine_##CELL##_f32>; \
  HASTE_DEFINE_EXPANDED_ENGINE(                                                     \
      TiledEngine, CELL, tf32,                                                      \
      {Walk_##CELL::WorkspaceBytes, Walk_##CELL::Forward, Walk_##CELL::Backward})
#define HASTE_EXPANDED_FLOATS_ENGINE(CELL) HASTE_FLOATS_ENGINE(CELL)
HASTE_EXPANDED_FLOATS_ENGINE(HASTE_CELL)

}  // namespace haste
