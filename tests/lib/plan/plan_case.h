// The problems and GPUs of the tests of PlanRecurrence.
#ifndef HASTE_TESTS_LIB_PLAN_PLAN_CASE_H_
#define HASTE_TESTS_LIB_PLAN_PLAN_CASE_H_

#include <algorithm>
#include <iterator>

#include "lib/cells/cells.h"
#include "lib/cells/info.h"
#include "lib/plan/plan.h"
#include "tests/lib/check.h"

namespace haste {

inline const HasteCellInfo kLstm = CellInfo<Lstm>();

inline HasteRnnConfig Sizes(int64_t n, int64_t t, int64_t k, int64_t h) {
  HasteRnnConfig config = HASTE_INIT(HasteRnnConfig);
  config.cell = "lstm";
  config.batch = n;
  config.time = t;
  config.lanes = k;
  config.hidden = h;
  return config;
}

// An H200 with its clusters.
inline CudaProperties Hopper() {
  CudaProperties hopper;
  hopper.sm_major = 9;
  hopper.multiprocessors = 132;
  hopper.shared_bytes_per_block = 232448;
  hopper.l2_bytes = 60 << 20;
  const int clusters[] = {0, 0, 66, 41, 30, 24, 18, 15, 15, 11, 11, 9, 9, 7, 7, 7, 7};
  std::copy(std::begin(clusters), std::end(clusters), hopper.clusters);
  return hopper;
}

inline HasteRnnConfig CudaSizes(int64_t n, int64_t k, int64_t h, HasteDtype dtype) {
  HasteRnnConfig config = Sizes(n, 100, k, h);
  config.device = HASTE_CUDA;
  config.dtype = dtype;
  return config;
}

inline Plan PlanOnGpu(const HasteRnnConfig& config, const HasteCellInfo& cell,
                      const CudaProperties& gpu, bool backward) {
  Plan plan;
  HasteStatus status = {};
  EXPECT_TRUE(PlanRecurrence(config, cell, {}, gpu, &plan, &status, backward) == HASTE_OK, "%s",
              status.message);
  return plan;
}
inline Plan PlanOnHopper(const HasteRnnConfig& config, const HasteCellInfo& cell, bool backward) {
  return PlanOnGpu(config, cell, Hopper(), backward);
}

}  // namespace haste

#endif  // HASTE_TESTS_LIB_PLAN_PLAN_CASE_H_
