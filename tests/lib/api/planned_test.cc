// PlanRnn on a CPU: plans that a thread keeps are those that PlanRecurrence makes.
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "haste/rnn.h"
#include "lib/api/registry.h"
#include "lib/cpu/cpu.h"
#include "tests/lib/check.h"

namespace haste {
namespace {

struct Call {
  RnnConfig config;
  HasteExecutor executor = HASTE_INIT(HasteExecutor);
  const CellEntry* cell;
};

Call RandomCall(std::mt19937& random) {
  const auto one_of = [&random](auto... values) {
    const int64_t all[] = {static_cast<int64_t>(values)...};
    return all[random() % sizeof...(values)];
  };
  Call call;
  call.cell = &CellAt(static_cast<int>(random() % CellCount()));
  call.config.dtype = static_cast<HasteDtype>(one_of(HASTE_FLOAT32, HASTE_FLOAT64, HASTE_BFLOAT16));
  const bool may_be_int8 = call.config.dtype != HASTE_FLOAT64;
  call.config.weights_dtype = may_be_int8 && random() % 2 ? HASTE_INT8 : 0;
  call.config.batch = one_of(1, 3, 8, 32);
  call.config.time = one_of(1, 100);
  call.config.lanes = one_of(1, 2);
  call.config.hidden = one_of(16, 128, 256, 1024);
  call.executor.threads = static_cast<int32_t>(one_of(1, 2, 8));
  return call;
}

bool Same(const Plan& a, const Plan& b) {
  return a.engine == b.engine && a.split == b.split && a.threads == b.threads &&
         a.rows_per_task == b.rows_per_task && strcmp(a.reason, b.reason) == 0;
}

void Kept(unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    const Call call = RandomCall(random);
    const bool backward = random() % 2;
    PlannedRnn planned;
    HasteStatus status = {};
    EXPECT_TRUE(
        PlanRnn(call.config, *call.cell, backward, call.executor, &planned, &status) == HASTE_OK,
        "%s", status.message);
    Plan want;
    EXPECT_TRUE(PlanRecurrence(call.config, call.cell->info, GetCpuProperties(call.executor), {},
                               &want, &status, backward) == HASTE_OK,
                "%s", status.message);
    EXPECT_TRUE(Same(planned.plan, want), "%s: %s, want %s; seed %u", call.cell->info.name,
                planned.plan.reason, want.reason, seed);
    EXPECT_TRUE(planned.engine == call.cell->cpu[call.config.dtype], "the engine; seed %u", seed);
    EXPECT_TRUE(planned.backward == backward, "backward; seed %u", seed);
  }
}

// The same with AMX, where forward and backward differ, and weights of bfloat16 and int8. Of each
// call all of these are planned in turn.
void KeptWithTiles(unsigned seed) {
  std::mt19937 random(seed);
  int64_t of_direction = 0, of_weights = 0;
  for (int i = 0; i < 20000; ++i) {
    Call call = RandomCall(random);
    CpuProperties cpu;
    cpu.threads = call.executor.threads;
    cpu.tile_rows = 16;
    Plan plans[2][2];
    for (const bool int8 : {false, true}) {
      call.config.weights_dtype = int8 && call.config.dtype != HASTE_FLOAT64 ? HASTE_INT8 : 0;
      for (const bool backward : {false, true}) {
        Plan& plan = plans[int8][backward];
        HasteStatus status = {};
        EXPECT_TRUE(PlanOnCpu(call.config, *call.cell, backward, cpu, &plan, &status) == HASTE_OK,
                    "%s", status.message);
        Plan want;
        EXPECT_TRUE(PlanRecurrence(call.config, call.cell->info, cpu, {}, &want, &status,
                                   backward) == HASTE_OK,
                    "%s", status.message);
        EXPECT_TRUE(Same(plan, want), "%s: %s, want %s; seed %u", call.cell->info.name, plan.reason,
                    want.reason, seed);
      }
    }
    of_direction += !Same(plans[0][0], plans[0][1]);
    of_weights += !Same(plans[0][0], plans[1][0]);
  }
  EXPECT_TRUE(of_direction > 0 && of_weights > 0, "no plan differs; seed %u", seed);
}

// The engine's name is no part of what is kept.
void Engines() {
  Call call;
  call.cell = &CellAt(0);
  call.config.batch = call.config.time = call.config.lanes = 1;
  call.config.hidden = 8;
  call.executor.threads = 1;
  const auto plan = [&call](const char* engine) {
    call.config.engine = engine;
    PlannedRnn planned;
    HasteStatus status = {};
    const int32_t code = PlanRnn(call.config, *call.cell, false, call.executor, &planned, &status);
    EXPECT_TRUE((code == HASTE_OK) == (status.message[0] == 0), "%s", status.message);
    return code;
  };
  EXPECT_TRUE(plan("auto") == HASTE_OK, "auto");
  EXPECT_TRUE(plan("grid") == HASTE_INVALID_ARGUMENT, "an engine of a GPU, after a kept plan");
  EXPECT_TRUE(plan("cpu") == HASTE_OK, "cpu");
}

}  // namespace
}  // namespace haste

int main() {
  const unsigned seed = std::random_device()();
  haste::Kept(seed);
  // A thread of its own keeps plans of its own.
  std::thread([seed] { haste::KeptWithTiles(seed); }).join();
  haste::Engines();
  return haste_test::Report("planned_test");
}
