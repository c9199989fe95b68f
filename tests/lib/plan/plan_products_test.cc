// Pins which products of a step PlanRecurrence gives to `tiled` and to `blas`, and how they are
// divided; and what is said of a step of `tiled`.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string>

#include "lib/base/int_math.h"
#include "lib/plan/internal.h"
#include "lib/plan/plan.h"
#include "tests/lib/plan/plan_case.h"

namespace haste {
namespace {

// Which problems go to `tiled`, and how they are divided.
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
    int sharers = 0, turns = 1;  // where R is stationary
  } cases[] = {
      {&kLstm, 128, 1, 2048, HASTE_BFLOAT16, false, EngineKind::kTiled, 64, 1, true, 2, 2},
      {&kLstm, 128, 1, 1024, HASTE_BFLOAT16, false, EngineKind::kTiled, 64, 1, true, 1, 1},
      {&kLstm, 64, 1, 1536, HASTE_BFLOAT16, false, EngineKind::kTiled, 64, 1, true, 4, 1},
      {&kLstm, 128, 1, 1024, HASTE_BFLOAT16, true, EngineKind::kTiled, 32, 2, true, 1, 1},
      {&kLstm, 256, 1, 1024, HASTE_BFLOAT16, true, EngineKind::kTiled, 32, 2, true, 1, 2},
      {&gru, 128, 1, 1536, HASTE_BFLOAT16, true, EngineKind::kTiled, 64, 4, true, 1, 2},
      {&kLstm, 128, 1, 2048, HASTE_BFLOAT16, true, EngineKind::kTiled, 64, 4, true, 2, 2},
      {&gru, 64, 1, 2048, HASTE_FLOAT16, true, EngineKind::kTiled, 64, 4, true, 2, 1},
      {&kLstm, 128, 1, 2048, HASTE_FLOAT32, false, EngineKind::kTiled, 64, 1, true},
      {&kLstm, 16, 1, 2048, HASTE_FLOAT32, false, EngineKind::kTiled, 32, 2, true},
      {&kLstm, 16, 1, 2048, HASTE_FLOAT32, true, EngineKind::kTiled, 32, 4, true},
      {&kLstm, 128, 1, 2048, HASTE_FLOAT32, true, EngineKind::kTiled, 32, 2, true},
      {&kLstm, 64, 1, 1536, HASTE_FLOAT32, true, EngineKind::kTiled, 64, 8, true},
      {&gru, 32, 1, 1000, HASTE_FLOAT32, true, EngineKind::kTiled, 32, 8, true},
      {&kLstm, 1, 1, 2048, HASTE_FLOAT32, false, EngineKind::kStepwise, 0, 0, false},
      {&kLstm, 64, 1, 1536, HASTE_BFLOAT16, true, EngineKind::kTiled, 64, 4, true, 1, 1},
      {&kLstm, 16, 1, 768, HASTE_BFLOAT16, false, EngineKind::kGrid, 0, 0, false},
      {&gru, 128, 1, 2048, HASTE_FLOAT16, false, EngineKind::kTiled, 64, 1, true, 2, 2},
      {&elman, 128, 1, 2048, HASTE_FLOAT16, false, EngineKind::kTiled, 64, 1, true, 2, 2},
      {&slstm, 128, 1, 2048, HASTE_BFLOAT16, true, EngineKind::kTiled, 128, 4, true},
      {&slstm, 128, 1, 2048, HASTE_BFLOAT16, false, EngineKind::kTiled, 64, 1, true, 1, 2},
      {&reset_before, 64, 1, 1024, HASTE_BFLOAT16, false, EngineKind::kTiled, 64, 1, true, 4, 1},
      {&reset_before, 64, 1, 1024, HASTE_BFLOAT16, true, EngineKind::kTiled, 32, 2, true, 1, 1},
      {&reset_before, 128, 1, 2048, HASTE_FLOAT16, false, EngineKind::kTiled, 64, 1, true, 2, 2},
      {&reset_before, 128, 1, 2048, HASTE_FLOAT16, true, EngineKind::kTiled, 64, 4, true, 2, 2},
      {&reset_before, 256, 1, 2048, HASTE_BFLOAT16, false, EngineKind::kTiled, 128, 2, false},
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
    EXPECT_TRUE(t.sharers == c.sharers && t.turns == c.turns, "%s", text.c_str());
  }
}

// What `tiled` plans covers the problem and fits the GPU.
void CheckTiles(HasteRnnConfig config, const HasteCellInfo& cell, bool backward) {
  config.engine = "tiled";
  const Plan plan = PlanOnHopper(config, cell, backward);
  const std::string text = Describe(plan, config, cell);
  const CudaProperties hopper = Hopper();
  const int terms = config.dtype == HASTE_FLOAT32 ? 3 : 1;
  const int chunk = TiledDepth(terms, cell.exponential ? std::max(2, terms) : terms);
  // If gates have scales, a chunk of the depth belongs to one gate.
  const bool scales = backward && terms > 1 && ScalesTiledGradients(cell);
  const int64_t units = scales ? PadTo(config.hidden, chunk) : config.hidden;
  const bool one = cell.reset_gates == 0 || plan.tiled[0].tiling.stationary();
  for (int i = 0; i < (one ? 1 : 2); ++i) {
    const TiledTiling& t = plan.tiled[i].tiling;
    const int gates = one ? cell.gates : i == 0 ? cell.reset_gates : cell.gates - cell.reset_gates;
    const int64_t depth = units * (backward ? gates : 1);
    EXPECT_TRUE(plan.tiled[i].shared_bytes <= 232448, "%s", text.c_str());
    EXPECT_TRUE(t.padded_rows() >= config.batch, "%s", text.c_str());
    EXPECT_TRUE(t.unit_tiles * int64_t{t.units} >= config.hidden, "%s", text.c_str());
    const int of_chunk = t.stationary() ? t.stationary_depth() : chunk;
    EXPECT_TRUE(t.total_chunks() * int64_t{of_chunk} >= depth, "%s", text.c_str());
    EXPECT_TRUE(t.stationary() || (t.own_rows() >= 2 && t.own_rows() * t.splits == t.rows), "%s",
                text.c_str());
    const int at_once =
        t.cluster() == 1 ? hopper.multiprocessors : hopper.clusters[t.cluster()] * t.cluster();
    if (t.stationary()) {
      EXPECT_TRUE(config.dtype == HASTE_FLOAT16 && t.persistent, "%s", text.c_str());
    }
    EXPECT_TRUE(!t.persistent || t.blocks(config.lanes) <= at_once, "%s", text.c_str());
  }
}

// Every cut in which R stays on the chip can run: what its warps agree on without telling each
// other.
void StationaryCutsCanRun() {
  const HasteCellInfo cells[] = {kLstm,
                                 CellInfo<Gru>(),
                                 CellInfo<Elman>(),
                                 CellInfo<SLstm>(),
                                 CellInfo<GruResetBefore>(),
                                 CellInfo<LayerNormLstm>(),
                                 CellInfo<LayerNormGru>()};
  int cuts = 0, few = 0, scaled = 0, divided = 0, exponential = 0;
  for (const HasteCellInfo& cell : cells) {
    for (int64_t n : {1, 33, 64, 100, 128, 200, 256, 300}) {
      for (int64_t h = 16; h < 4000; h += h / 16) {
        for (int i = 0; i < 4; ++i) {
          const bool backward = i % 2 != 0, floats = i / 2 != 0;
          HasteRnnConfig config = CudaSizes(n, 1, h, floats ? HASTE_FLOAT32 : HASTE_BFLOAT16);
          config.allow_tf32 = floats;
          VisitCuts(config, cell, Hopper(), backward, CostsOf(9), [&](const Plan& plan, double) {
            const TiledTiling& t = plan.tiled[0].tiling;
            if (plan.engine != EngineKind::kTiled || !t.stationary()) return;
            const std::string text = Describe(plan, config, cell);
            EXPECT_TRUE(plan.tiled[0].shared_bytes <= 232448, "%s", text.c_str());
            EXPECT_TRUE(backward ? t.rows == 16 * t.splits : t.splits == 1, "%s", text.c_str());
            // A slot is of one loading warp, and of one half of the warps that multiply, which
            // frees it after it has begun with its next.
            EXPECT_TRUE(t.slots % t.loaders() == 0 && t.slots % 2 == 0, "%s", text.c_str());
            EXPECT_TRUE(t.slots >= std::min(4, t.loads()), "%s", text.c_str());
            EXPECT_TRUE((t.scaled_makers > 0) == (floats && backward), "%s", text.c_str());
            scaled += t.scaled_makers > 0;
            divided += t.first_chunks > 0;
            exponential += cell.exponential && floats;
            // A chunk with scales has all gates' gradients of whole groups of 16 units; of two
            // products, where gates have scales of their own, those of 16 units of a gate.
            const bool two = cell.reset_gates > 0;
            const int gates = t.scaled_makers > 0 && !two ? ScaledGates(cell.gates) : cell.gates;
            EXPECT_TRUE(
                t.scaled_makers == 0 || t.scaled_makers * (two ? 1 : gates) == kStationaryMakers,
                "%s", text.c_str());
            const int64_t units = backward ? PadTo(h, t.units) : h;
            const int64_t depth = backward ? gates * units : units;
            EXPECT_TRUE(t.total_chunks() * int64_t{t.stationary_depth()} >= depth, "%s",
                        text.c_str());
            // Both halves of the warps have equally many chunks of each product.
            const int64_t of_first = int64_t{t.first_chunks} * t.splits * t.stationary_depth();
            EXPECT_TRUE(t.first_chunks % 2 == 0 && t.chunks % 2 == 0, "%s", text.c_str());
            EXPECT_TRUE((t.first_chunks > 0) == (two && backward), "%s", text.c_str());
            EXPECT_TRUE(t.first_chunks == 0 || of_first >= (cell.gates - cell.reset_gates) * units,
                        "%s", text.c_str());
            EXPECT_TRUE(t.total_chunks() * int64_t{t.stationary_depth()} - of_first >=
                            (t.first_chunks > 0 ? cell.reset_gates * units : depth),
                        "%s", text.c_str());
            // In turns, the warp that sets flags does not load.
            EXPECT_TRUE(t.loading > 0 && t.loading <= kStationaryServiceWarps - (t.turns > 1), "%s",
                        text.c_str());
            EXPECT_TRUE(t.loads() >= t.loaders() && t.unit_tiles % t.sharers == 0, "%s",
                        text.c_str());
            ++cuts;
            few += t.slots < 6;
          });
        }
      }
    }
  }
  EXPECT_TRUE(cuts > 1000 && few > 10 && scaled > 300, "%d cuts, %d with few slots, %d with scales",
              cuts, few, scaled);
  EXPECT_TRUE(divided > 300 && exponential > 300, "%d of two products, %d of an sLSTM's floats",
              divided, exponential);
}

// R of floats is stationary where float16 can stand for them.
void FloatsInTiles() {
  const HasteCellInfo gru = CellInfo<Gru>(), elman = CellInfo<Elman>(), slstm = CellInfo<SLstm>(),
                      reset_before = CellInfo<GruResetBefore>();
  const struct {
    const HasteCellInfo* cell;
    HasteActivation activation;
    bool tf32, forward, backward;  // whether R is stationary
    int makers;                    // of a chunk, backward
  } cases[] = {
      {&kLstm, HASTE_TANH, true, true, true, 1},  {&gru, HASTE_TANH, true, true, true, 1},
      {&elman, HASTE_TANH, true, true, true, 4},  {&kLstm, HASTE_RELU, true, false, true, 1},
      {&elman, HASTE_RELU, true, false, true, 4}, {&kLstm, HASTE_TANH, false, false, false},
      {&slstm, HASTE_TANH, true, true, true, 1},  {&reset_before, HASTE_TANH, true, true, true, 4},
      {&slstm, HASTE_RELU, true, false, true, 1}, {&reset_before, HASTE_RELU, true, false, true, 4},
  };
  for (const auto& c : cases) {
    for (const bool backward : {false, true}) {
      HasteRnnConfig config = CudaSizes(128, 1, 1024, HASTE_FLOAT32);
      config.engine = "tiled";
      config.allow_tf32 = c.tf32;
      config.activation = c.activation;
      config.recurrent_activation = HASTE_SIGMOID;
      const Plan plan = PlanOnHopper(config, *c.cell, backward);
      const TiledTiling& t = plan.tiled[0].tiling;
      const std::string text = Describe(plan, config, *c.cell);
      EXPECT_TRUE(t.stationary() == (backward ? c.backward : c.forward), "%s", text.c_str());
      EXPECT_TRUE(t.scaled_makers == (backward ? c.makers : 0), "%s", text.c_str());
    }
  }
}

// Cells that normalise h·R: in bfloat16, where R fits the chip.
void NormalisedInTiles() {
  const HasteCellInfo lstm = CellInfo<LayerNormLstm>(), gru = CellInfo<LayerNormGru>();
  for (const HasteCellInfo* cell : {&lstm, &gru}) {
    for (const bool backward : {false, true}) {
      for (HasteDtype dtype : {HASTE_BFLOAT16, HASTE_FLOAT16, HASTE_FLOAT32, HASTE_FLOAT64}) {
        const HasteRnnConfig config = CudaSizes(128, 1, 1024, dtype);
        const Plan plan = PlanOnHopper(config, *cell, backward);
        EXPECT_TRUE((plan.engine == EngineKind::kTiled) == (dtype == HASTE_BFLOAT16), "%s",
                    Describe(plan, config, *cell).c_str());
        EXPECT_TRUE(plan.engine != EngineKind::kTiled || plan.tiled[0].tiling.stationary(), "%s",
                    Describe(plan, config, *cell).c_str());
      }
      HasteRnnConfig large = CudaSizes(128, 1, 4096, HASTE_BFLOAT16);
      const Plan plan = PlanOnHopper(large, *cell, backward);
      EXPECT_TRUE(plan.engine == EngineKind::kStepwise, "%s", Describe(plan, large, *cell).c_str());
      large.engine = "tiled";
      Plan none;
      HasteStatus status = {};
      EXPECT_TRUE(PlanRecurrence(large, *cell, {}, Hopper(), &none, &status, backward) ==
                      HASTE_INVALID_ARGUMENT,
                  "%s", status.message);
    }
  }
}

// The parts of a step are its estimate, and each is the largest of some cuts.
void PartsAddUp() {
  const HasteCellInfo cells[] = {kLstm, CellInfo<GruResetBefore>(), CellInfo<SLstm>(),
                                 CellInfo<LayerNormLstm>()};
  int largest[kTiledParts] = {};
  const auto check = [&](const TiledStep& step, const std::string& text) {
    const double sum = std::accumulate(std::begin(step.parts), std::end(step.parts), 0.0);
    EXPECT_TRUE(step.clocks > 0 && std::abs(sum - step.clocks) < 1e-5 * step.clocks,
                "parts %.9g: %s", sum, text.c_str());
    const auto range = std::minmax_element(std::begin(step.parts), std::end(step.parts));
    EXPECT_TRUE(*range.first >= 0, "%s", text.c_str());
    ++largest[range.second - step.parts];
  };
  for (const HasteCellInfo& cell : cells) {
    for (int64_t n : {0, 16, 64, 128, 300, 20000}) {
      for (int64_t h : {100, 1024, 2047, 4096}) {
        for (HasteDtype dtype : {HASTE_FLOAT32, HASTE_BFLOAT16}) {
          for (const bool backward : {false, true}) {
            HasteRnnConfig config = CudaSizes(n, 1, h, dtype);
            config.engine = "tiled";
            VisitCuts(config, cell, Hopper(), backward, CostsOf(9),
                      [&](const Plan& plan, double clocks) {
                        const std::string text = Describe(plan, config, cell);
                        double sum = 0;
                        const bool one = plan.tiled[0].tiling.stationary();
                        for (int i = 0; i < (one ? 1 : PhasesOf(cell)); ++i) {
                          check(plan.tiled[i].step, text);
                          sum += plan.tiled[i].step.clocks;
                        }
                        EXPECT_TRUE(sum == clocks, "%.9g: %s", clocks, text.c_str());
                      });
          }
        }
      }
    }
  }
  for (const int cuts : largest) EXPECT_TRUE(cuts > 10, "%d cuts", cuts);
}

// What Describe says that a step spends most of its time on.
void NamesTheLargestPart() {
  const HasteCellInfo norm_lstm = CellInfo<LayerNormLstm>(), elman = CellInfo<Elman>(),
                      reset_before = CellInfo<GruResetBefore>();
  const struct {
    const HasteCellInfo* cell;
    int64_t n, h;
    HasteDtype dtype;
    bool backward;
    const char* says;
  } cases[] = {
      {&kLstm, 128, 2048, HASTE_BFLOAT16, false, "products take"},
      {&kLstm, 64, 1024, HASTE_BFLOAT16, false, "waits for other blocks take"},
      {&kLstm, 128, 1536, HASTE_BFLOAT16, true, "products take"},
      {&norm_lstm, 128, 1024, HASTE_BFLOAT16, false, "sums of rows take"},
      {&norm_lstm, 128, 1024, HASTE_BFLOAT16, true, "sums of rows take"},
      {&kLstm, 128, 2048, HASTE_FLOAT32, false, "products take"},
      {&kLstm, 16, 4096, HASTE_FLOAT32, false, "loads into shared memory take"},
      {&elman, 4000, 100, HASTE_FLOAT32, false, "elements take"},
      {&reset_before, 8, 100, HASTE_FLOAT32, false, "launches of blocks take"},
      {&reset_before, 64, 1024, HASTE_BFLOAT16, true, "waits for other blocks take"},
  };
  for (const auto& c : cases) {
    HasteRnnConfig config = CudaSizes(c.n, 1, c.h, c.dtype);
    config.engine = "tiled";
    const std::string text = Describe(PlanOnHopper(config, *c.cell, c.backward), config, *c.cell);
    const std::string says = std::string(" clocks a step: ") + c.says + " ";
    EXPECT_TRUE(text.find(says) != std::string::npos, "%s", text.c_str());
  }
  // Its share of a step.
  HasteRnnConfig config = CudaSizes(64, 1, 1024, HASTE_BFLOAT16);
  config.engine = "tiled";
  const Plan plan = PlanOnHopper(config, kLstm, false);
  const TiledStep& step = plan.tiled[0].step;
  const auto share =
      std::lround(100 * step.parts[static_cast<int>(TiledPart::kWaits)] / step.clocks);
  const std::string text = Describe(plan, config, kLstm);
  const std::string says = "other blocks take " + std::to_string(share) + "%, N=64 ";
  EXPECT_TRUE(text.find(says) != std::string::npos, "%s", text.c_str());
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

// Which problems go to cuBLAS if it is installed, and how their depth is divided.
void ByCublas() {
  const HasteCellInfo gru = CellInfo<Gru>(), reset_before = CellInfo<GruResetBefore>(),
                      norm_lstm = CellInfo<LayerNormLstm>();
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
      {&hopper, &kLstm, 128, 1, 2048, HASTE_BFLOAT16, false, false, EngineKind::kTiled, 0},
      {&hopper, &kLstm, 256, 1, 2048, HASTE_BFLOAT16, false, false, EngineKind::kBlas, 1},
      {&hopper, &kLstm, 128, 1, 2048, HASTE_BFLOAT16, false, true, EngineKind::kTiled, 0},
      {&hopper, &kLstm, 256, 1, 2048, HASTE_BFLOAT16, false, true, EngineKind::kBlas, 4},
      {&hopper, &kLstm, 128, 4, 1024, HASTE_BFLOAT16, false, true, EngineKind::kBlas, 4},
      {&hopper, &kLstm, 16, 1, 768, HASTE_BFLOAT16, false, false, EngineKind::kGrid, 0},
      {&hopper, &kLstm, 128, 1, 2048, HASTE_FLOAT32, false, false, EngineKind::kTiled, 0},
      {&hopper, &kLstm, 128, 1, 2048, HASTE_FLOAT32, true, false, EngineKind::kTiled, 0},
      {&hopper, &kLstm, 64, 1, 2048, HASTE_FLOAT32, true, false, EngineKind::kTiled, 0},
      {&hopper, &kLstm, 128, 1, 2048, HASTE_FLOAT32, true, true, EngineKind::kTiled, 0},
      {&hopper, &kLstm, 256, 1, 2048, HASTE_FLOAT32, true, true, EngineKind::kBlas, 4},
      {&hopper, &kLstm, 32, 1, 1024, HASTE_FLOAT64, false, false, EngineKind::kBlas, 1},
      {&hopper, &kLstm, 1, 1, 256, HASTE_FLOAT64, false, false, EngineKind::kStepwise, 0},
      {&hopper, &gru, 32, 1, 1280, HASTE_BFLOAT16, false, false, EngineKind::kGrid, 0},
      {&hopper, &gru, 32, 1, 1536, HASTE_BFLOAT16, false, false, EngineKind::kTiled, 0},
      {&hopper, &gru, 64, 1, 1536, HASTE_BFLOAT16, false, false, EngineKind::kTiled, 0},
      {&hopper, &gru, 128, 1, 2048, HASTE_BFLOAT16, false, false, EngineKind::kTiled, 0},
      {&hopper, &reset_before, 64, 1, 1024, HASTE_FLOAT16, false, false, EngineKind::kTiled, 0},
      {&hopper, &reset_before, 256, 1, 2048, HASTE_FLOAT16, false, false, EngineKind::kBlas, 1},
      // Two turns of `tiled` take 21 us a step, and this 15 (timed): four gates whose rows are
      // summed.
      {&hopper, &norm_lstm, 128, 1, 1280, HASTE_BFLOAT16, false, false, EngineKind::kBlas, 1},
      {&hopper, &norm_lstm, 128, 1, 1024, HASTE_BFLOAT16, false, false, EngineKind::kTiled, 0},
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
  // Without cuBLAS, `blas` is refused by name, and "auto" takes another engine.
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

}  // namespace
}  // namespace haste

int main() {
  haste::InTiles();
  haste::TilesFit();
  haste::StationaryCutsCanRun();
  haste::FloatsInTiles();
  haste::NormalisedInTiles();
  haste::PartsAddUp();
  haste::NamesTheLargestPart();
  haste::ByCublas();
  return haste_test::Report("plan_products_test");
}
