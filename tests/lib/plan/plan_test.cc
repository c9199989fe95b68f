// Pins what PlanRecurrence decides on the CPU, and which engines it knows.
#include "lib/plan/plan.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "tests/lib/plan/plan_case.h"

namespace haste {
namespace {

Plan PlanOn(const HasteRnnConfig& config, int threads) {
  CpuProperties cpu;
  cpu.threads = threads;
  cpu.l2_bytes = 1 << 20;
  Plan plan;
  HasteStatus status = {};
  EXPECT_TRUE(PlanRecurrence(config, kLstm, cpu, {}, &plan, &status) == HASTE_OK, "%s",
              status.message);
  return plan;
}

void Cpu() {
  const struct {
    int64_t n, t, k, h;
    int threads;
    CpuSplit split;
    int want_threads;
    int64_t want_rows;
  } cases[] = {
      {32, 100, 1, 128, 1, CpuSplit::kRows, 1, 32},   // one thread: nothing to split
      {1, 1, 1, 128, 2, CpuSplit::kRows, 1, 1},       // one step of a streaming model
      {1, 100, 1, 256, 2, CpuSplit::kUnits, 2, 1},    // one row: units
      {32, 100, 1, 128, 2, CpuSplit::kRows, 2, 16},   // rows for both, R in each cache
      {16, 128, 1, 768, 2, CpuSplit::kUnits, 2, 16},  // R exceeds a core's cache
      {8, 500, 1, 64, 4, CpuSplit::kRows, 4, 2},      //
      {8, 500, 2, 64, 4, CpuSplit::kRows, 4, 4},      // two lanes share the threads
      {1, 3000000, 1, 1, 8, CpuSplit::kRows, 1, 1},   // long, but a step is nothing
      {3, 50, 1, 100, 2, CpuSplit::kRows, 2, 2},      // a ragged last group
  };
  for (const auto& c : cases) {
    const Plan plan = PlanOn(Sizes(c.n, c.t, c.k, c.h), c.threads);
    const std::string text = Describe(plan, Sizes(c.n, c.t, c.k, c.h), kLstm);
    EXPECT_TRUE(plan.engine == EngineKind::kCpu, "%s", text.c_str());
    EXPECT_TRUE(plan.split == c.split, "%s", text.c_str());
    EXPECT_TRUE(plan.threads == c.want_threads, "%s", text.c_str());
    if (c.split == CpuSplit::kRows) {
      EXPECT_TRUE(plan.rows_per_task == c.want_rows, "%s", text.c_str());
    }
  }
}

// Of bfloat16, AMX multiplies 16 rows in the time of one: forward, threads with up to 8 share R
// out, if it is large.
void Tiles() {
  const HasteCellInfo lstm = kLstm, reset_before = CellInfo<GruResetBefore>(),
                      normalized = CellInfo<LayerNormLstm>();
  const HasteDtype bf16 = HASTE_BFLOAT16;
  const struct {
    const HasteCellInfo& cell;
    int64_t n, h;
    int threads;
    int32_t dtype, weights_dtype;
    int64_t tile_rows;
    bool backward;
    CpuSplit split;
  } cases[] = {
      {lstm, 8, 256, 2, bf16, 0, 16, false, CpuSplit::kUnits},
      {lstm, 16, 256, 2, bf16, 0, 16, false, CpuSplit::kUnits},
      {lstm, 17, 256, 2, bf16, 0, 16, false, CpuSplit::kRows},          // 9 rows and 8
      {lstm, 8, 256, 2, bf16, 0, 16, true, CpuSplit::kRows},            // backward
      {lstm, 8, 208, 2, bf16, 0, 16, false, CpuSplit::kUnits},          // 173,056 weights
      {lstm, 8, 192, 2, bf16, 0, 16, false, CpuSplit::kRows},           // 147,456
      {lstm, 8, 256, 2, bf16, 0, 1, false, CpuSplit::kRows},            // no tiles
      {lstm, 8, 256, 2, HASTE_FLOAT32, 0, 16, false, CpuSplit::kRows},  // no tiles of floats
      {lstm, 8, 256, 2, bf16, HASTE_INT8, 16, false, CpuSplit::kRows},  // int8
      {reset_before, 8, 256, 2, bf16, 0, 16, false, CpuSplit::kRows},   // two products
      {normalized, 8, 256, 2, bf16, 0, 16, false, CpuSplit::kRows},     // and a second barrier
      {lstm, 64, 256, 16, bf16, 0, 16, false, CpuSplit::kUnits},        // 16 units for each
      {lstm, 128, 256, 32, bf16, 0, 16, false, CpuSplit::kRows},        // not for 32 threads
  };
  for (const auto& c : cases) {
    HasteRnnConfig config = Sizes(c.n, 100, 1, c.h);
    config.dtype = c.dtype;
    config.weights_dtype = c.weights_dtype;
    CpuProperties cpu;
    cpu.threads = c.threads;
    cpu.tile_rows = c.tile_rows;
    Plan plan;
    HasteStatus status = {};
    EXPECT_TRUE(PlanRecurrence(config, c.cell, cpu, {}, &plan, &status, c.backward) == HASTE_OK,
                "%s", status.message);
    EXPECT_TRUE(plan.split == c.split && plan.threads == c.threads, "%s",
                Describe(plan, config, c.cell).c_str());
  }
}

// Sizes that are each allowed, but whose product overflows 64 bits.
void HugeSizes() {
  const Plan one_group = PlanOn(Sizes(int64_t{1} << 10, 1 << 20, 1, 1 << 20), 8);
  EXPECT_TRUE(one_group.split == CpuSplit::kUnits && one_group.threads == 8, "%d threads",
              one_group.threads);
  const int64_t most = (int64_t{1} << 31) - 1;
  const Plan everything = PlanOn(Sizes(most, most, most, most), 8);
  EXPECT_TRUE(everything.split == CpuSplit::kUnits && everything.threads == 8, "%d threads",
              everything.threads);
}

void Engines() {
  HasteRnnConfig config = Sizes(16, 1024, 1, 768);
  config.device = HASTE_CUDA;
  Plan plan;
  HasteStatus status = {};
  config.engine = "stepwise";
  EXPECT_TRUE(PlanRecurrence(config, kLstm, {}, Hopper(), &plan, &status) == HASTE_OK, "%s",
              status.message);
  EXPECT_TRUE(plan.engine == EngineKind::kStepwise, "%s", EngineName(plan.engine));

  config.engine = "cluster";
  EXPECT_TRUE(PlanRecurrence(config, kLstm, {}, Hopper(), &plan, &status) == HASTE_INVALID_ARGUMENT,
              "768 units do not fit a cluster");
  EXPECT_TRUE(strstr(status.message, "engine") && strstr(status.message, "cluster"), "%s",
              status.message);
  config.engine = "warp";
  EXPECT_TRUE(CheckEngine(config, kLstm, &status) == HASTE_INVALID_ARGUMENT,
              "an engine that does not exist is refused");
  EXPECT_TRUE(strstr(status.message, "\"grid\"") && strstr(status.message, "\"warp\""), "%s",
              status.message);

  // float64 has no tensor cores, two products a step do not stay on the chip, and a Turing GPU has
  // neither.
  config.engine = "auto";
  config.dtype = HASTE_FLOAT64;
  EXPECT_TRUE(PlanRecurrence(config, kLstm, {}, Hopper(), &plan, &status) == HASTE_OK &&
                  plan.engine == EngineKind::kStepwise,
              "%s", EngineName(plan.engine));
  config.dtype = HASTE_FLOAT16;
  EXPECT_TRUE(PlanRecurrence(config, CellInfo<GruResetBefore>(), {}, Hopper(), &plan, &status) ==
                      HASTE_OK &&
                  plan.engine == EngineKind::kTiled,
              "%s", EngineName(plan.engine));
  CudaProperties turing = Hopper();
  turing.sm_major = 7;
  turing.sm_minor = 5;
  EXPECT_TRUE(PlanRecurrence(config, kLstm, {}, turing, &plan, &status) == HASTE_OK &&
                  plan.engine == EngineKind::kStepwise,
              "%s", EngineName(plan.engine));
  CudaProperties ampere = Hopper();
  ampere.sm_major = 8;
  std::fill(std::begin(ampere.clusters), std::end(ampere.clusters), 0);
  EXPECT_TRUE(PlanRecurrence(config, kLstm, {}, ampere, &plan, &status) == HASTE_OK &&
                  plan.engine == EngineKind::kGrid,
              "%s", EngineName(plan.engine));

  CudaProperties volta;
  volta.sm_major = 7;
  EXPECT_TRUE(PlanRecurrence(config, kLstm, {}, volta, &plan, &status) == HASTE_UNIMPLEMENTED,
              "a GPU that is too old is refused");
}

// Every cell without a matrix uses the scan engine, on both devices.
void Scan() {
  const HasteCellInfo cells[] = {CellInfo<IndRnn>(), CellInfo<QrnnFo>(), CellInfo<ForgetMult>()};
  const struct {
    int64_t n, t, h;
    int threads, want;
  } cases[] = {{16, 1024, 768, 4, 4}, {1, 1, 64, 4, 1}, {1, 100, 150, 4, 2}};
  for (const HasteCellInfo& cell : cells) {
    for (const auto& c : cases) {
      HasteRnnConfig config = Sizes(c.n, c.t, 1, c.h);
      CpuProperties cpu;
      cpu.threads = c.threads;
      CudaProperties hopper;
      hopper.sm_major = 9;
      Plan plan;
      HasteStatus status = {};
      for (const int32_t device : {HASTE_CPU, HASTE_CUDA}) {
        config.device = device;
        EXPECT_TRUE(PlanRecurrence(config, cell, cpu, hopper, &plan, &status) == HASTE_OK, "%s",
                    status.message);
        const std::string text = Describe(plan, config, cell);
        EXPECT_TRUE(plan.engine == EngineKind::kScan, "%s", text.c_str());
        EXPECT_TRUE(plan.threads == (device == HASTE_CPU ? c.want : 1), "%s", text.c_str());
      }
      config.engine = "stepwise";
      EXPECT_TRUE(
          PlanRecurrence(config, cell, cpu, hopper, &plan, &status) == HASTE_INVALID_ARGUMENT,
          "a pooling cell has no matrix engine");
    }
  }
}

}  // namespace
}  // namespace haste

int main() {
  haste::Cpu();
  haste::Tiles();
  haste::HugeSizes();
  haste::Engines();
  haste::Scan();
  return haste_test::Report("plan_test");
}
