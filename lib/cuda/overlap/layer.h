// Products around a recurrence, overlapped with its walk (lib/plan/overlap.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/cuda/registry/engines.h"

namespace haste {

// Increases *bytes, the scratch memory of the recurrence, to that of both if products may be
// overlapped with it.
int32_t OverlappedInputBytes(const HasteRnnConfig&, const CudaCell&, const PlannedRnn&,
                             const HasteLayerForwardArgs&, size_t* bytes, HasteStatus*);
int32_t OverlappedGradientsBytes(const HasteRnnConfig&, const CudaCell&, const PlannedRnn&,
                                 const HasteLayerBackwardArgs&, size_t* bytes, HasteStatus*);

// haste_layer_forward and haste_layer_backward with checked arguments, including wx. *done = false:
// nothing was done, because nothing is to be overlapped with the walk.
int32_t OverlappedLayerForward(const RnnCall&, const CudaCell&, const HasteLayerForwardArgs&,
                               const HasteRnnForwardArgs&, bool* done, HasteStatus*);
int32_t OverlappedLayerBackward(const RnnCall&, const CudaCell&, const HasteLayerBackwardArgs&,
                                const HasteRnnBackwardArgs&, bool* done, HasteStatus*);

}  // namespace haste
