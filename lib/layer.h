// The products around a recurrence, for callers of haste_layer_*.
#ifndef HASTE_LIB_LAYER_H_
#define HASTE_LIB_LAYER_H_

#include <stdint.h>

#include "lib/haste/c_api.h"

namespace haste {

// Whether x, W and their gradients have sizes that can be.
int32_t CheckFeatures(const HasteRnnConfig&, const HasteCellInfo&, int64_t features, HasteStatus*);

// layer.wx = x·W + b. Features were checked, here and below.
int32_t ProjectInput(const HasteRnnConfig&, const HasteCellInfo&,
                     const HasteLayerForwardArgs& layer, const HasteExecutor*, HasteStatus*);

// dx, dW, db and dR from rnn.dwx and the saved h.
int32_t LayerGradients(const HasteRnnConfig&, const HasteCellInfo&,
                       const HasteLayerBackwardArgs& layer, const HasteRnnBackwardArgs& rnn,
                       const HasteExecutor*, HasteStatus*);

}  // namespace haste

#endif  // HASTE_LIB_LAYER_H_
