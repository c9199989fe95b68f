// Checks lib/cpu/simd/rows-inl.h: a cell computed for some rows together gives each row the bits of
// its own vector, on every SIMD target that this machine can run.
#include "lib/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/lib/cells/rows_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <random>

#include "lib/cells/cells.h"
#include "lib/cpu/simd/rows-inl.h"
#include "tests/lib/check.h"

HASTE_TARGET_BEGIN
namespace {

// E: the vector of one row.
template <class Cell, class E, int kRows>
void CheckRows(std::mt19937_64* random, const char* vector) {
  using C = typename E::Scalar;
  using Rows = RowsOf<E, kRows>;
  constexpr int kGates = Cell::kGates, kStates = Cell::kStates;
  const Activations act{Cell::kActivation, Cell::kRecurrentActivation};
  std::normal_distribution<double> normal(0.0, 3.0);
  const auto draw = [&](E* v) {
    C values[HWY_MAX_BYTES / sizeof(C)];
    for (C& value : values) value = static_cast<C>(normal(*random));
    *v = E(Load(values));
  };
  Rows x[kGates], q[kGates], before[kStates], kept[Cell::kKept], after[kStates];
  for (int r = 0; r < kRows; ++r) {
    for (int g = 0; g < kGates; ++g) draw(&x[g].row[r]), draw(&q[g].row[r]);
    for (int s = 0; s < kStates; ++s) draw(&before[s].row[r]);
  }
  Cell::Forward(act, x, q, before, kept, after);
  for (int r = 0; r < kRows; ++r) {
    E x1[kGates], q1[kGates], before1[kStates], kept1[Cell::kKept], after1[kStates];
    for (int g = 0; g < kGates; ++g) x1[g] = x[g].row[r], q1[g] = q[g].row[r];
    for (int s = 0; s < kStates; ++s) before1[s] = before[s].row[r];
    Cell::Forward(act, x1, q1, before1, kept1, after1);
    for (int s = 0; s < kStates; ++s) {
      C together[HWY_MAX_BYTES / sizeof(C)], alone[HWY_MAX_BYTES / sizeof(C)];
      Store<C>(after[s].row[r], together);
      Store<C>(after1[s], alone);
      EXPECT_TRUE(memcmp(together, alone, Width<C>() * sizeof(C)) == 0,
                  "%s, %s: state %d of row %d of %d", Cell::kName, vector, s, r, kRows);
    }
  }
}

template <class Cell, class E>
void CheckVector(std::mt19937_64* random, const char* vector) {
  for (int i = 0; i < 50; ++i) {
    CheckRows<Cell, E, 2>(random, vector);
    CheckRows<Cell, E, 3>(random, vector);
    CheckRows<Cell, E, 4>(random, vector);
    CheckRows<Cell, E, 6>(random, vector);
  }
}

template <class Cell>
void CheckCell(std::mt19937_64* random) {
  CheckVector<Cell, Vec<float>>(random, "float");
  CheckVector<Cell, Vec<double>>(random, "double");
  CheckVector<Cell, ApproximateVec>(random, "approximate");
}

void Run(unsigned seed) {
  std::mt19937_64 random(seed);
#define CHECK_CELL(Cell) CheckCell<Cell>(&random);
  HASTE_ONE_PRODUCT_CELLS(CHECK_CELL)
#undef CHECK_CELL
}

}  // namespace
HASTE_TARGET_END

#if HWY_ONCE
int main() {
  using namespace haste;
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  HWY_STATIC_DISPATCH(Run)(seed);
#if defined(__x86_64__)
  const SimdTarget best = BestTarget();
  void (*const avx2)(unsigned) = HWY_CHOOSE_AVX2(Run);  // nullptr: it was not compiled
  void (*const avx3)(unsigned) = HWY_CHOOSE_AVX3(Run);
  if (best >= SimdTarget::kAvx2 && avx2 != nullptr) avx2(seed);
  if (best >= SimdTarget::kAvx3 && avx3 != nullptr) avx3(seed);
#endif
  return haste_test::Report("rows_test");
}
#endif  // HWY_ONCE
