// The products around a recurrence, for callers of haste_layer_*.
#pragma once

#include <stdint.h>

#include "haste/c_api.h"
#include "lib/engine/engine.h"
#include "lib/plan/gemm/layer_gemms.h"

namespace haste {

// Checks that the cell takes x·W, and that the sizes of x, W and their gradients are in range.
int32_t CheckLayer(const HasteRnnConfig&, const HasteCellInfo&, int64_t features, HasteStatus*);

// Whether the engine computes x·W + b itself if the caller gives no wx.
// An engine that can in one dtype may not be able to in another: ask here, not the engine.
bool FormsInput(const HasteRnnConfig&, const Engine&, const HasteLayerForwardArgs& layer);
// Bytes of wx, and where it is in a workspace, after the `bytes` of the recurrence.
size_t InputBytes(const HasteRnnConfig&, const HasteCellInfo&);
size_t InputOffset(size_t bytes);

// layer.wx = x·W + b, with x·W normalised if layer.gamma. Arguments were checked, here and below.
// The workspace may be that of the recurrence.
int32_t ProjectInput(const HasteRnnConfig&, const HasteCellInfo&,
                     const HasteLayerForwardArgs& layer, void* workspace, const HasteExecutor&,
                     HasteStatus*);
// Raises *bytes to the workspace that this needs, if that is more.
int32_t ProjectInputBytes(const HasteRnnConfig&, const HasteCellInfo&, int64_t features,
                          size_t* bytes, HasteStatus*);

// In this order: db and dR; with layer.gamma haste_layer_norm_grad on InputNormGrad's arguments,
// which turns rnn.dwx into the gradient of x·W; dx and dW.
int32_t BiasGradients(const HasteRnnConfig&, const HasteCellInfo&,
                      const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                      const HasteExecutor&, HasteStatus*);
int32_t RecurrentGradient(const HasteRnnConfig&, const HasteCellInfo&,
                          const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                          void* workspace, const HasteExecutor&, HasteStatus*);
HasteLayerNormGrad InputNormGrad(const HasteRnnConfig&, const HasteCellInfo&,
                                 const HasteLayerBackwardArgs& layer, void* dwx);
int32_t WeightGradients(const HasteRnnConfig&, const HasteCellInfo&,
                        const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                        void* workspace, const HasteExecutor&, HasteStatus*);
// Like ProjectInputBytes, for these.
int32_t GradientsBytes(const HasteRnnConfig&, const HasteCellInfo&, int64_t features, size_t* bytes,
                       HasteStatus*);

}  // namespace haste
