#include "lib/plan/gemm/layer_gemms.h"

#include "lib/plan/costs/cost_table.h"

namespace haste {
namespace {

int64_t Rows(const HasteRnnConfig& config) { return config.batch * config.time; }
int64_t Width(const HasteRnnConfig& config, const HasteCellInfo& cell) {
  return config.lanes * cell.gates * config.hidden;
}

// a and b have their rows `a_row` and `b_row` apart; transposed, they are those of aᵀ and bᵀ.
struct Strides {
  int64_t a_row, b_row;
  bool a_transposed, b_transposed;
};
HasteGemm Product(const HasteRnnConfig& config, int64_t m, int64_t n, int64_t k,
                  const Strides& strides) {
  HasteGemm gemm = HASTE_INIT(HasteGemm);
  gemm.dtype = config.dtype;
  gemm.device = config.device;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.a_row = strides.a_transposed ? 1 : strides.a_row;
  gemm.a_col = strides.a_transposed ? strides.a_row : 1;
  gemm.b_row = strides.b_transposed ? 1 : strides.b_row;
  gemm.b_col = strides.b_transposed ? strides.b_row : 1;
  gemm.c_row = n;
  gemm.allow_tf32 = config.allow_tf32;
  return gemm;
}

}  // namespace

HasteGemm InputProduct(const HasteRnnConfig& config, const HasteCellInfo& cell, int64_t features) {
  const int64_t width = Width(config, cell);
  return Product(config, Rows(config), width, features, {features, width, false, false});
}

HasteGemm InputGradientProduct(const HasteRnnConfig& config, const HasteCellInfo& cell,
                               int64_t features) {
  const int64_t width = Width(config, cell);
  return Product(config, Rows(config), features, width, {width, width, false, true});
}

HasteGemm KernelGradientProduct(const HasteRnnConfig& config, const HasteCellInfo& cell,
                                int64_t features) {
  const int64_t width = Width(config, cell);
  return Product(config, features, width, Rows(config), {features, width, true, false});
}

HasteGemm RecurrentProduct(const HasteRnnConfig& config, const HasteCellInfo& cell, int operand) {
  const int64_t gates = cell.reset_gates == 0 ? cell.gates
                        : operand == 0        ? cell.reset_gates
                                              : cell.gates - cell.reset_gates;
  HasteGemm gemm = Product(config, config.hidden, gates * config.hidden, Rows(config),
                           {config.lanes * config.hidden, Width(config, cell), true, false});
  gemm.c_row = cell.gates * config.hidden;
  return gemm;
}

}  // namespace haste
