// The sizes and strides of the products around a recurrence.
#pragma once

#include <stdint.h>

#include "haste/c_api.h"

namespace haste {

// The products around a recurrence, but for where their matrices lie: x·W,
HasteGemm InputProduct(const HasteRnnConfig&, const HasteCellInfo&, int64_t features);
// dwx·Wᵀ,
HasteGemm InputGradientProduct(const HasteRnnConfig&, const HasteCellInfo&, int64_t features);
// xᵀ·dwx,
HasteGemm KernelGradientProduct(const HasteRnnConfig&, const HasteCellInfo&, int64_t features);
// and of a lane saved[operand]ᵀ·dq of the gates that were made of it.
HasteGemm RecurrentProduct(const HasteRnnConfig&, const HasteCellInfo&, int operand);

}  // namespace haste
