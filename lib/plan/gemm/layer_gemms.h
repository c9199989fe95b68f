// The products around a recurrence: sizes and strides, and estimates by any table of costs.
#pragma once

#include <stdint.h>

#include "haste/c_api.h"
#include "lib/plan/gemm/gemm.h"

namespace haste {

// lib/plan/costs/cost_table.h
struct CostTable;
struct GemmCosts;

// The products around a recurrence, but for where their matrices lie: x·W,
HasteGemm InputProduct(const HasteRnnConfig&, const HasteCellInfo&, int64_t features);
// dwx·Wᵀ,
HasteGemm InputGradientProduct(const HasteRnnConfig&, const HasteCellInfo&, int64_t features);
// xᵀ·dwx,
HasteGemm KernelGradientProduct(const HasteRnnConfig&, const HasteCellInfo&, int64_t features);
// and of a lane saved[operand]ᵀ·dq of the gates that were made of it.
HasteGemm RecurrentProduct(const HasteRnnConfig&, const HasteCellInfo&, int operand);

// PlanProduct by any costs, but for how a chunk's work is shared out.
ProductPlan PlanProduct(const HasteGemm&, int sm_major, int pairs, int64_t most, bool sums_in_float,
                        const GemmCosts&);
double MultiplyAdds(const HasteGemm&);
// Of float32 units, and of cuBLAS's TensorFloat-32 and 16 bits.
double FloatMicroseconds(const HasteGemm&, const GemmCosts&);
double CublasMicroseconds(const HasteGemm&, const CostTable&);
// Of our own: of a chunk's work, and of a product in chunks that all take as long as `chunk`.
double Microseconds(const ProductWork&, int terms, const GemmCosts&);
double ProductMicroseconds(const HasteGemm&, const ProductPlan&, const ProductWork& chunk,
                           const GemmCosts&);

}  // namespace haste
