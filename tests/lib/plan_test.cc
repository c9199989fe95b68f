// Pins what PlanRecurrence decides, on machines that this one need not be.
#include "lib/plan.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "lib/cells/cells.h"
#include "lib/cells/info.h"
#include "tests/lib/check.h"

namespace haste {
namespace {

const HasteCellInfo kLstm = CellInfo<Lstm>();

HasteRnnConfig Sizes(int64_t n, int64_t t, int64_t k, int64_t h) {
  HasteRnnConfig config = {};
  config.cell = "lstm";
  config.batch = n;
  config.time = t;
  config.lanes = k;
  config.hidden = h;
  return config;
}

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

// Products of sizes that are allowed one by one, but overflow 64 bits.
void HugeSizes() {
  const Plan one_group = PlanOn(Sizes(int64_t{1} << 10, 1 << 20, 1, 1 << 20), 8);
  EXPECT_TRUE(one_group.split == CpuSplit::kUnits && one_group.threads == 8, "%d threads",
              one_group.threads);
  const int64_t most = (int64_t{1} << 31) - 1;
  const Plan everything = PlanOn(Sizes(most, most, most, most), 8);
  EXPECT_TRUE(everything.split == CpuSplit::kUnits && everything.threads == 8, "%d threads",
              everything.threads);
}

// An H200, and clusters as it has them.
CudaProperties Hopper() {
  CudaProperties hopper;
  hopper.sm_major = 9;
  hopper.multiprocessors = 132;
  hopper.shared_bytes_per_block = 232448;
  hopper.l2_bytes = 60 << 20;
  const int clusters[] = {0, 0, 66, 41, 30, 24, 18, 15, 15, 11, 11, 9, 9, 7, 7, 7, 7};
  std::copy(std::begin(clusters), std::end(clusters), hopper.clusters);
  return hopper;
}

HasteRnnConfig CudaSizes(int64_t n, int64_t k, int64_t h, HasteDtype dtype) {
  HasteRnnConfig config = Sizes(n, 100, k, h);
  config.device = HASTE_CUDA;
  config.dtype = dtype;
  return config;
}

Plan PlanOnGpu(const HasteRnnConfig& config, const HasteCellInfo& cell, const CudaProperties& gpu,
               bool backward) {
  Plan plan;
  HasteStatus status = {};
  EXPECT_TRUE(PlanRecurrence(config, cell, {}, gpu, &plan, &status, backward) == HASTE_OK, "%s",
              status.message);
  return plan;
}
Plan PlanOnHopper(const HasteRnnConfig& config, const HasteCellInfo& cell, bool backward) {
  return PlanOnGpu(config, cell, Hopper(), backward);
}

// What keeps R on the chip, and how it is cut.
void OnChip() {
  const struct {
    int64_t n, k, h;
    HasteDtype dtype;
    bool backward;
    EngineKind engine;
    int blocks, unit_tiles, row_tiles, passes;
  } cases[] = {
      {8, 1, 256, HASTE_BFLOAT16, false, EngineKind::kCluster, 16, 1, 1, 1},
      {8, 1, 256, HASTE_BFLOAT16, true, EngineKind::kCluster, 16, 1, 1, 1},
      {16, 1, 768, HASTE_BFLOAT16, false, EngineKind::kGrid, 48, 1, 1, 1},
      {16, 1, 768, HASTE_FLOAT32, false, EngineKind::kGrid, 48, 1, 1, 1},
      {16, 12, 64, HASTE_FLOAT16, false, EngineKind::kCluster, 4, 1, 1, 1},   // heads
      {1, 1, 16, HASTE_FLOAT32, false, EngineKind::kCluster, 1, 1, 1, 1},     // no exchange at all
      {32, 1, 2048, HASTE_BFLOAT16, false, EngineKind::kGrid, 128, 1, 2, 2},  // the whole GPU
  };
  for (const auto& c : cases) {
    const HasteRnnConfig config = CudaSizes(c.n, c.k, c.h, c.dtype);
    const Plan plan = PlanOnHopper(config, kLstm, c.backward);
    const std::string text = Describe(plan, config, kLstm);
    const ResidentTiling& t = plan.resident.tiling;
    EXPECT_TRUE(plan.engine == c.engine, "%s", text.c_str());
    EXPECT_TRUE(t.blocks == c.blocks && t.unit_tiles == c.unit_tiles &&
                    t.row_tiles == c.row_tiles && t.passes == c.passes,
                "%s", text.c_str());
  }
}

// Whatever the size: blocks that wait for each other fit the GPU, their memory fits a block, and
// all rows and units have one.
void OnChipFits() {
  int planned = 0;
  for (int64_t n : {1, 7, 8, 9, 33, 128, 1000}) {
    for (int64_t k : {1, 2, 12}) {
      for (int64_t h : {1, 16, 17, 100, 128, 500, 768, 1030, 2048, 4096}) {
        for (HasteDtype dtype : {HASTE_FLOAT32, HASTE_FLOAT16}) {
          for (bool backward : {false, true}) {
            const HasteRnnConfig config = CudaSizes(n, k, h, dtype);
            const Plan plan = PlanOnHopper(config, kLstm, backward);
            if (plan.engine != EngineKind::kCluster && plan.engine != EngineKind::kGrid) continue;
            ++planned;
            const std::string text = Describe(plan, config, kLstm);
            const ResidentTiling& t = plan.resident.tiling;
            EXPECT_TRUE(plan.resident.shared_bytes <= 232448, "%s", text.c_str());
            EXPECT_TRUE(t.padded_hidden() >= h && t.row_groups * t.group_rows() >= n, "%s",
                        text.c_str());
            EXPECT_TRUE(t.units() * t.rows() <= kResidentElements, "%s", text.c_str());
            EXPECT_TRUE(plan.engine == EngineKind::kCluster ? t.blocks <= kMaxCluster
                                                            : t.blocks * t.row_groups * k <= 132,
                        "%s", text.c_str());
          }
        }
      }
    }
  }
  EXPECT_TRUE(planned > 300, "only %d of 840 sizes stay on the chip", planned);
}

// What goes to `tiled`, and how it is cut.
void InTiles() {
  const HasteCellInfo gru = CellInfo<Gru>(), reset_before = CellInfo<GruResetBefore>(),
                      elman = CellInfo<Elman>(), slstm = CellInfo<SLstm>();
  const struct {
    const HasteCellInfo* cell;
    int64_t n, k, h;
    HasteDtype dtype;
    bool backward;
    EngineKind engine;
    int rows, splits;
    bool persistent;
  } cases[] = {
      {&kLstm, 128, 1, 2048, HASTE_BFLOAT16, false, EngineKind::kTiled, 128, 2, true},
      {&kLstm, 128, 1, 2048, HASTE_BFLOAT16, true, EngineKind::kTiled, 128, 4, true},
      {&kLstm, 128, 1, 2048, HASTE_FLOAT32, false, EngineKind::kTiled, 64, 1, true},
      {&kLstm, 16, 1, 2048, HASTE_FLOAT32, false, EngineKind::kStepwise, 0, 0, false},
      {&kLstm, 1, 1, 2048, HASTE_FLOAT32, false, EngineKind::kStepwise, 0, 0, false},
      {&kLstm, 64, 1, 1536, HASTE_BFLOAT16, true, EngineKind::kTiled, 64, 8, true},
      {&kLstm, 16, 1, 768, HASTE_BFLOAT16, false, EngineKind::kGrid, 0, 0, false},
      {&gru, 128, 1, 2048, HASTE_FLOAT16, false, EngineKind::kTiled, 64, 2, true},
      {&elman, 128, 1, 2048, HASTE_FLOAT16, false, EngineKind::kTiled, 32, 2, true},
      {&slstm, 128, 1, 2048, HASTE_BFLOAT16, false, EngineKind::kTiled, 128, 2, true},
      {&reset_before, 64, 1, 1024, HASTE_BFLOAT16, false, EngineKind::kTiled, 64, 4, false},
  };
  for (const auto& c : cases) {
    const HasteRnnConfig config = CudaSizes(c.n, c.k, c.h, c.dtype);
    const Plan plan = PlanOnHopper(config, *c.cell, c.backward);
    const std::string text = Describe(plan, config, *c.cell);
    const TiledTiling& t = plan.tiled[0].tiling;
    EXPECT_TRUE(plan.engine == c.engine, "%s", text.c_str());
    if (c.engine != EngineKind::kTiled) continue;
    EXPECT_TRUE(t.rows == c.rows && t.splits == c.splits && t.persistent == c.persistent, "%s",
                text.c_str());
  }
}

// What `tiled` plans covers the problem and fits the GPU.
void CheckTiles(HasteRnnConfig config, const HasteCellInfo& cell, bool backward) {
  config.engine = "tiled";
  const Plan plan = PlanOnHopper(config, cell, backward);
  const std::string text = Describe(plan, config, cell);
  const CudaProperties hopper = Hopper();
  const int parts = config.dtype == HASTE_FLOAT32 ? 3 : 1;
  const int chunk = TiledDepth(parts, cell.exponential ? std::max(2, parts) : parts);
  for (int i = 0; i < (cell.reset_gates > 0 ? 2 : 1); ++i) {
    const TiledTiling& t = plan.tiled[i].tiling;
    const int gates = cell.reset_gates == 0 ? cell.gates
                      : i == 0              ? cell.reset_gates
                                            : cell.gates - cell.reset_gates;
    const int64_t depth = config.hidden * (backward ? gates : 1);
    EXPECT_TRUE(plan.tiled[i].shared_bytes <= 232448, "%s", text.c_str());
    EXPECT_TRUE(t.padded_rows() >= config.batch, "%s", text.c_str());
    EXPECT_TRUE(t.unit_tiles * int64_t{t.units} >= config.hidden, "%s", text.c_str());
    EXPECT_TRUE(t.total_chunks() * int64_t{chunk} >= depth, "%s", text.c_str());
    EXPECT_TRUE(t.own_rows() >= 2 && t.own_rows() * t.splits == t.rows, "%s", text.c_str());
    const int at_once =
        t.splits == 1 ? hopper.multiprocessors : hopper.clusters[t.splits] * t.splits;
    EXPECT_TRUE(!t.persistent || t.blocks(config.lanes) <= at_once, "%s", text.c_str());
  }
}

void TilesFit() {
  const HasteCellInfo cells[] = {CellInfo<Lstm>(), CellInfo<Gru>(), CellInfo<GruResetBefore>(),
                                 CellInfo<Elman>(), CellInfo<SLstm>()};
  for (const HasteCellInfo& cell : cells) {
    for (int64_t n : {0, 1, 31, 33, 128, 1000, 100000}) {
      for (int64_t k : {1, 2, 12}) {
        for (int64_t h : {1, 17, 128, 500, 1030, 4096}) {
          for (HasteDtype dtype : {HASTE_FLOAT32, HASTE_FLOAT16}) {
            CheckTiles(CudaSizes(n, k, h, dtype), cell, false);
            CheckTiles(CudaSizes(n, k, h, dtype), cell, true);
          }
        }
      }
    }
  }
}

// What goes to cuBLAS where there is one, and how its depth is cut.
void ByCublas() {
  const HasteCellInfo reset_before = CellInfo<GruResetBefore>();
  CudaProperties hopper = Hopper(), ampere = Hopper(), turing = Hopper();
  hopper.has_cublas = ampere.has_cublas = turing.has_cublas = true;
  ampere.sm_major = 8;
  turing.sm_major = 7;
  turing.sm_minor = 5;
  for (CudaProperties* gpu : {&ampere, &turing}) {
    std::fill(std::begin(gpu->clusters), std::end(gpu->clusters), 0);
  }
  const struct {
    const CudaProperties* gpu;
    const HasteCellInfo* cell;
    int64_t n, k, h;
    HasteDtype dtype;
    bool tf32, backward;
    EngineKind engine;
    int splits;
  } cases[] = {
      {&hopper, &kLstm, 128, 1, 2048, HASTE_BFLOAT16, false, false, EngineKind::kBlas, 1},
      {&hopper, &kLstm, 128, 1, 2048, HASTE_BFLOAT16, false, true, EngineKind::kBlas, 4},
      {&hopper, &kLstm, 128, 4, 1024, HASTE_BFLOAT16, false, true, EngineKind::kBlas, 4},
      {&hopper, &kLstm, 16, 1, 768, HASTE_BFLOAT16, false, false, EngineKind::kGrid, 0},
      {&hopper, &kLstm, 128, 1, 2048, HASTE_FLOAT32, false, false, EngineKind::kTiled, 0},
      {&hopper, &kLstm, 128, 1, 2048, HASTE_FLOAT32, true, false, EngineKind::kBlas, 1},
      {&hopper, &kLstm, 32, 1, 1024, HASTE_FLOAT64, false, false, EngineKind::kBlas, 1},
      {&hopper, &kLstm, 1, 1, 256, HASTE_FLOAT64, false, false, EngineKind::kStepwise, 0},
      {&hopper, &reset_before, 64, 1, 1024, HASTE_FLOAT16, false, false, EngineKind::kBlas, 1},
      {&ampere, &kLstm, 128, 1, 1024, HASTE_BFLOAT16, false, false, EngineKind::kBlas, 1},
      {&turing, &kLstm, 128, 1, 1024, HASTE_FLOAT16, false, false, EngineKind::kBlas, 1},
      // cuBLAS has no bfloat16 there.
      {&turing, &kLstm, 128, 1, 1024, HASTE_BFLOAT16, false, false, EngineKind::kStepwise, 0},
  };
  for (const auto& c : cases) {
    HasteRnnConfig config = CudaSizes(c.n, c.k, c.h, c.dtype);
    config.allow_tf32 = c.tf32;
    const Plan plan = PlanOnGpu(config, *c.cell, *c.gpu, c.backward);
    const std::string text = Describe(plan, config, *c.cell);
    EXPECT_TRUE(plan.engine == c.engine, "%s", text.c_str());
    if (c.engine != EngineKind::kBlas) continue;
    const int64_t depth = c.h * (c.backward ? 4 : 1);
    EXPECT_TRUE(plan.blas[0].splits == c.splits, "%s", text.c_str());
    EXPECT_TRUE(plan.blas[0].depth * c.splits >= depth && plan.blas[0].depth % 8 == 0, "%s",
                text.c_str());
  }
  // Without one it is refused by name, and else something other runs.
  HasteRnnConfig config = CudaSizes(128, 1, 2048, HASTE_BFLOAT16);
  EXPECT_TRUE(PlanOnHopper(config, kLstm, false).engine == EngineKind::kTiled, "no cuBLAS");
  config.engine = "blas";
  Plan plan;
  HasteStatus status = {};
  EXPECT_TRUE(PlanRecurrence(config, kLstm, {}, Hopper(), &plan, &status) == HASTE_UNIMPLEMENTED &&
                  strstr(status.message, "engine") != nullptr &&
                  strstr(status.message, "cuBLAS") != nullptr,
              "%s", status.message);
  EXPECT_TRUE(PlanOnGpu(config, kLstm, hopper, false).engine == EngineKind::kBlas, "by its name");
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
              "an engine that is not there is refused");
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
                  plan.engine == EngineKind::kStepwise,
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

// Every cell that is walked element by element goes to the scan engine, on both devices.
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
  haste::HugeSizes();
  haste::OnChip();
  haste::OnChipFits();
  haste::InTiles();
  haste::TilesFit();
  haste::ByCublas();
  haste::Engines();
  haste::Scan();
  return haste_test::Report("plan_test");
}
