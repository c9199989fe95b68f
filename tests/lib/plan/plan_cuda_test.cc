// Pins how PlanRecurrence divides a recurrence over a GPU. Needs no GPU.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "lib/plan/costs/cost_table.h"
#include "lib/plan/plan.h"
#include "tests/lib/plan/plan_case.h"

namespace haste {
namespace {

// Which engine keeps R on the chip, and how it divides the work.
void OnChip() {
  const struct {
    int64_t n, k, h;
    HasteDtype dtype;
    bool backward;
    EngineKind engine;
    int blocks, unit_tiles, row_tiles, passes;
  } cases[] = {
      {16, 1, 768, HASTE_BFLOAT16, false, EngineKind::kGrid, 48, 1, 1, 1},
      {16, 1, 768, HASTE_FLOAT32, false, EngineKind::kGrid, 48, 1, 1, 1},
      {16, 1, 512, HASTE_BFLOAT16, false, EngineKind::kGrid, 32, 1, 1, 1},
      {32, 1, 256, HASTE_FLOAT32, true, EngineKind::kCluster, 16, 1, 1, 1},
      {16, 2, 768, HASTE_BFLOAT16, false, EngineKind::kGrid, 48, 1, 1, 2},    // both directions
      {16, 1, 2048, HASTE_BFLOAT16, false, EngineKind::kGrid, 128, 1, 2, 1},  // the whole GPU
  };
  for (const auto& c : cases) {
    const HasteRnnConfig config = CudaSizes(c.n, c.k, c.h, c.dtype);
    const Plan plan = PlanOnHopper(config, kLstm, c.backward);
    const std::string text = Describe(plan, config, kLstm);
    const PersistentTiling& t = plan.persistent.tiling;
    EXPECT_TRUE(plan.engine == c.engine, "%s", text.c_str());
    EXPECT_TRUE(t.blocks == c.blocks && t.unit_tiles == c.unit_tiles &&
                    t.row_tiles == c.row_tiles && t.passes == c.passes,
                "%s", text.c_str());
  }
}

// When elements have warps of their own: with several passes, large enough products, and one part.
void WarpsForElements() {
  const struct {
    int64_t n, k, h;
    HasteDtype dtype;
    bool tf32, backward, apart;
  } cases[] = {
      {16, 2, 768, HASTE_BFLOAT16, false, false, true},
      {32, 1, 768, HASTE_FLOAT16, false, false, true},
      {64, 1, 1024, HASTE_BFLOAT16, false, false, true},
      {32, 1, 768, HASTE_FLOAT32, true, false, true},
      {16, 1, 768, HASTE_BFLOAT16, false, false, false},   // one pass
      {32, 1, 768, HASTE_FLOAT32, false, false, false},    // two parts
      {64, 1, 512, HASTE_BFLOAT16, false, false, false},   // little to multiply
      {32, 1, 2048, HASTE_BFLOAT16, false, false, false},  // R from shared memory, mostly
      {32, 1, 1536, HASTE_FLOAT32, true, false, false},    // half of it from shared memory
      {16, 2, 768, HASTE_BFLOAT16, false, true, false},
  };
  CudaProperties ampere = Hopper();
  ampere.sm_major = 8;
  std::fill(std::begin(ampere.clusters), std::end(ampere.clusters), 0);
  for (const auto& c : cases) {
    HasteRnnConfig config = CudaSizes(c.n, c.k, c.h, c.dtype);
    config.allow_tf32 = c.tf32;
    config.recurrent_activation = HASTE_SIGMOID;
    const Plan plan = PlanOnHopper(config, kLstm, c.backward);
    const std::string text = Describe(plan, config, kLstm);
    EXPECT_TRUE((plan.persistent.tiling.element_warps > 0) == c.apart, "%s", text.c_str());
    EXPECT_TRUE((text.find("warps for elements") != std::string::npos) == c.apart, "%s",
                text.c_str());
    const Plan elsewhere = PlanOnGpu(config, kLstm, ampere, c.backward);
    EXPECT_TRUE(elsewhere.persistent.tiling.element_warps == 0, "no registers to give");
  }
  // A set has every other pass: the same ones in every step.
  int apart = 0;
  for (int64_t n = 1; n <= 160; ++n) {
    for (int64_t k : {1, 2}) {
      HasteRnnConfig config = CudaSizes(n, k, 768, HASTE_BFLOAT16);
      config.engine = "grid";
      Plan plan;
      HasteStatus status = {};
      if (PlanRecurrence(config, kLstm, {}, Hopper(), &plan, &status) != HASTE_OK) continue;
      if (plan.persistent.tiling.element_warps == 0) continue;
      ++apart;
      EXPECT_TRUE(plan.persistent.tiling.passes % kElementSets == 0, "%s",
                  Describe(plan, config, kLstm).c_str());
    }
  }
  EXPECT_TRUE(apart > 100, "only %d of 320", apart);
}

// For every size: blocks that wait for each other fit the GPU, their memory fits a block, and the
// blocks cover all rows and units.
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
            const PersistentTiling& t = plan.persistent.tiling;
            EXPECT_TRUE(plan.persistent.shared_bytes <= 232448, "%s", text.c_str());
            EXPECT_TRUE(t.padded_hidden() >= h && t.row_groups * t.group_rows() >= n, "%s",
                        text.c_str());
            EXPECT_TRUE(t.units() * t.rows() <= kPersistentElements, "%s", text.c_str());
            EXPECT_TRUE(plan.engine == EngineKind::kCluster ? t.blocks <= kMaxCluster
                                                            : t.blocks * t.row_groups * k <= 132,
                        "%s", text.c_str());
            EXPECT_TRUE(t.sharers == 1 ||
                            t.blocks / t.sharers * t.row_groups * k <= Hopper().clusters[t.sharers],
                        "%s", text.c_str());
          }
        }
      }
    }
  }
  EXPECT_TRUE(planned > 100, "only %d of 840 sizes stay on the chip", planned);
}

// Blocks that share their gates' gradients: which backward walks use them, and that their warps
// multiply every tile of dh over the whole depth exactly once.
void ClusterPeers() {
  const struct {
    int64_t n, h;
    HasteDtype dtype;
    bool shares;
  } cases[] = {
      {16, 768, HASTE_BFLOAT16, true},  {1, 1024, HASTE_FLOAT16, true},
      {32, 1536, HASTE_BFLOAT16, true}, {1, 2048, HASTE_BFLOAT16, false},  // 16 clusters of 8
      {16, 512, HASTE_FLOAT32, true},   {16, 768, HASTE_FLOAT32, false},   // slower than its own
  };
  CudaProperties no_clusters = Hopper();
  std::fill(std::begin(no_clusters.clusters), std::end(no_clusters.clusters), 0);
  for (const auto& c : cases) {
    HasteRnnConfig config = CudaSizes(c.n, 1, c.h, c.dtype);
    config.engine = "grid";
    const int sharers = PlanOnHopper(config, kLstm, true).persistent.tiling.sharers;
    EXPECT_TRUE((sharers > 1) == c.shares, "H=%d: %d sharers", static_cast<int>(c.h), sharers);
    EXPECT_TRUE(PlanOnHopper(config, kLstm, false).persistent.tiling.sharers == 1, "forward");
    EXPECT_TRUE(PlanOnGpu(config, kLstm, no_clusters, true).persistent.tiling.sharers == 1,
                "H=%d shares without clusters", static_cast<int>(c.h));
  }
  for (int clusters = 2; clusters <= 16; ++clusters) {
    for (int unit_tiles : {1, 2}) {
      for (int chunks : {4 * unit_tiles, 16 * unit_tiles}) {
        PersistentTiling t = {};
        t.blocks = kClusterPeers * clusters;
        t.unit_tiles = unit_tiles;
        t.sharers = kClusterPeers;
        t.chunks = chunks;
        t.Derive();
        const int tiles = clusters * unit_tiles, places = t.pair_chunks;
        std::vector<int> times(tiles * chunks);
        for (int warp = 0; warp < kPersistentWarps; ++warp) {
          const int pair = warp % t.pair_warps, part = warp / t.pair_warps;
          for (int i = 0; i < 2 * t.pairs; ++i) {
            const int tile = pair + t.pair_warps * i;
            for (int c = 0; tile < tiles && c < places; ++c) {
              ++times[tile * chunks + part * places + c];
            }
          }
        }
        EXPECT_TRUE(std::count(times.begin(), times.end(), 1) == tiles * chunks,
                    "%d clusters, %d unit tiles, %d chunks", clusters, unit_tiles, chunks);
      }
    }
  }
}

// Which problems go to `block`, and how they are divided: few rows a block while multiprocessors
// are idle, and clusters if R is too large for one block.
void InBlocks() {
  const HasteCellInfo gru = CellInfo<Gru>(), elman = CellInfo<Elman>(), slstm = CellInfo<SLstm>();
  const struct {
    const HasteCellInfo* cell;
    int64_t n, k, h;
    HasteDtype dtype;
    bool backward;
    int blocks, rows, warps, chunks;  // blocks 0: another engine
  } cases[] = {
      {&kLstm, 16, 12, 64, HASTE_BFLOAT16, false, 1, 4, 8, 2},  // heads
      {&kLstm, 16, 12, 64, HASTE_BFLOAT16, true, 1, 4, 8, 4},
      {&kLstm, 1024, 1, 64, HASTE_BFLOAT16, true, 1, 8, 8, 4},  // 4 rows would be two waves
      {&gru, 16, 1, 96, HASTE_FLOAT16, false, 1, 4, 12, 4},
      {&slstm, 16, 1, 40, HASTE_FLOAT16, true, 1, 4, 6, 4},  // two warps share a tile
      {&elman, 16, 1, 96, HASTE_BFLOAT16, false, 1, 4, 12, 2},
      {&kLstm, 16, 1, 64, HASTE_FLOAT32, false, 1, 4, 8, 2},
      {&kLstm, 8, 1, 256, HASTE_BFLOAT16, false, 8, 4, 4, 8},
      {&kLstm, 8, 1, 256, HASTE_BFLOAT16, true, 8, 4, 4, 16},
      {&gru, 64, 1, 256, HASTE_FLOAT16, true, 8, 8, 4, 16},
      {&kLstm, 16, 1, 104, HASTE_BFLOAT16, false, 4, 4, 4, 4},
      {&kLstm, 16, 1, 512, HASTE_BFLOAT16, true, 16, 4, 4, 32},  // half of R in shared memory
      {&kLstm, 32, 1, 512, HASTE_BFLOAT16, false, 0, 0, 0, 0},   // clusters of 16 are few
      {&kLstm, 16, 1, 520, HASTE_BFLOAT16, false, 0, 0, 0, 0},
      {&kLstm, 16, 1, 72, HASTE_FLOAT32, true, 3, 4, 4, 6},
      {&kLstm, 16, 1, 128, HASTE_FLOAT32, true, 4, 4, 4, 8},
      {&kLstm, 16, 1, 128, HASTE_FLOAT32, false, 4, 4, 4, 4},
      {&kLstm, 16, 1, 256, HASTE_FLOAT32, false, 0, 0, 0, 0},  // `grid` holds more in registers
      {&elman, 16, 1, 200, HASTE_FLOAT32, false, 7, 4, 4, 4},
      {&kLstm, 16, 1, 60, HASTE_BFLOAT16, false, 1, 4, 8, 2},  // rows of no 16 bytes
      {&kLstm, 8, 1, 250, HASTE_BFLOAT16, true, 8, 4, 4, 16},
      {&kLstm, 16, 6, 127, HASTE_FLOAT16, false, 4, 4, 4, 4},
      {&kLstm, 1, 1, 1, HASTE_FLOAT32, false, 1, 4, 1, 2},
      {&kLstm, 16, 1, 64, HASTE_FLOAT64, false, 0, 0, 0, 0},
  };
  for (const auto& c : cases) {
    const HasteRnnConfig config = CudaSizes(c.n, c.k, c.h, c.dtype);
    const Plan plan = PlanOnHopper(config, *c.cell, c.backward);
    const std::string text = Describe(plan, config, *c.cell);
    EXPECT_TRUE((plan.engine == EngineKind::kBlock) == (c.blocks > 0), "%s", text.c_str());
    if (c.blocks == 0) continue;
    const BlockTiling& t = plan.block.tiling;
    EXPECT_TRUE(
        t.blocks == c.blocks && t.rows == c.rows && t.warps == c.warps && t.chunks == c.chunks,
        "%s: %d chunks", text.c_str(), t.chunks);
    EXPECT_TRUE(plan.block.blocks == c.blocks * c.k * ((c.n + c.rows - 1) / c.rows), "%s",
                text.c_str());
  }
  // Ampere has no clusters.
  CudaProperties ampere = Hopper();
  ampere.sm_major = 8;
  std::fill(std::begin(ampere.clusters), std::end(ampere.clusters), 0);
  for (int64_t h : {96, 104}) {
    const HasteRnnConfig config = CudaSizes(16, 1, h, HASTE_BFLOAT16);
    EXPECT_TRUE((PlanOnGpu(config, kLstm, ampere, false).engine == EngineKind::kBlock) == (h == 96),
                "H=%d", static_cast<int>(h));
  }
  // `cluster` has no code for GPUs without clusters, not even for a single block.
  for (int64_t h : {14, 30, 32}) {
    for (int64_t n : {1, 1000}) {
      HasteRnnConfig config = CudaSizes(n, 1, h, HASTE_FLOAT32);
      EXPECT_TRUE(PlanOnGpu(config, kLstm, ampere, true).engine != EngineKind::kCluster, "H=%d",
                  static_cast<int>(h));
      config.engine = "cluster";
      Plan plan;
      HasteStatus status = {};
      EXPECT_TRUE(PlanRecurrence(config, kLstm, {}, ampere, &plan, &status) != HASTE_OK, "H=%d",
                  static_cast<int>(h));
    }
  }
}

// TensorFloat-32 has kernels of its own: R takes half or two thirds of the space.
void TensorFloat() {
  const struct {
    int64_t n, h;
    bool backward;
    EngineKind exact, relaxed;
  } cases[] = {
      {16, 1024, false, EngineKind::kGrid, EngineKind::kGrid},
      {16, 1024, true, EngineKind::kGrid, EngineKind::kGrid},
      {16, 128, true, EngineKind::kBlock, EngineKind::kBlock},
      {16, 320, true, EngineKind::kGrid, EngineKind::kBlock},
      {16, 1536, false, EngineKind::kTiled, EngineKind::kGrid},
  };
  for (const auto& c : cases) {
    HasteRnnConfig config = CudaSizes(c.n, 1, c.h, HASTE_FLOAT32);
    const Plan exact = PlanOnHopper(config, kLstm, c.backward);
    config.allow_tf32 = 1;
    const Plan relaxed = PlanOnHopper(config, kLstm, c.backward);
    EXPECT_TRUE(exact.engine == c.exact && relaxed.engine == c.relaxed, "H=%d: %s, %s",
                static_cast<int>(c.h), EngineName(exact.engine), EngineName(relaxed.engine));
    if (c.exact != c.relaxed) continue;
    if (c.exact == EngineKind::kBlock) {
      EXPECT_TRUE(relaxed.block.shared_bytes < exact.block.shared_bytes, "H=%d",
                  static_cast<int>(c.h));
      EXPECT_TRUE(relaxed.block.clocks < exact.block.clocks, "H=%d", static_cast<int>(c.h));
      continue;
    }
    EXPECT_TRUE(relaxed.persistent.shared_bytes < exact.persistent.shared_bytes, "H=%d",
                static_cast<int>(c.h));
    EXPECT_TRUE(relaxed.persistent.clocks < exact.persistent.clocks, "H=%d", static_cast<int>(c.h));
  }
}

// Layer-normalised floats, backward: with 32 rows a block's registers are too few for its sums of
// rows, so that 64 are faster (by 10 to 30 %, timed), if all blocks fit.
void RowsOfSums() {
  const HasteCellInfo norm = CellInfo<LayerNormLstm>();
  for (int64_t h : {512, 640, 768}) {
    HasteRnnConfig config = CudaSizes(64, 1, h, HASTE_FLOAT32);
    config.cell = "layer_norm_lstm";
    config.allow_tf32 = 1;
    const Plan plan = PlanOnHopper(config, norm, true);
    EXPECT_TRUE(plan.engine == EngineKind::kTiled && plan.tiled[0].tiling.rows == 64,
                "H=%d: %s, %d rows", static_cast<int>(h), EngineName(plan.engine),
                plan.tiled[0].tiling.rows);
  }
}

// Backward, where the next row tile's product begins early, two turns of blocks that share
// gradients are faster than of blocks that do not (by 20 %, timed).
void EarlyProducts() {
  const HasteCellInfo lstm = CellInfo<Lstm>();
  for (int64_t n : {96, 128}) {
    const HasteRnnConfig config = CudaSizes(n, 1, 1536, HASTE_BFLOAT16);
    const Plan plan = PlanOnHopper(config, lstm, true);
    const TiledTiling& t = plan.tiled[0].tiling;
    EXPECT_TRUE(plan.engine == EngineKind::kTiled && t.sharers == 2 && t.turns == 2,
                "N=%d: %s, %d blocks share, %d turns", static_cast<int>(n), EngineName(plan.engine),
                t.sharers, t.turns);
  }
}

// Forward multiplies floats as float16 if h has a bound, in less space than as bfloat16.
void Bounds() {
  const HasteCellInfo gru = CellInfo<Gru>(), elman = CellInfo<Elman>(), slstm = CellInfo<SLstm>();
  const struct {
    const HasteCellInfo* cell;
    int32_t activation, recurrent;
    float dropout;
    bool bounded;
  } cases[] = {
      {&kLstm, HASTE_TANH, HASTE_SIGMOID, 0.0f, true},
      {&kLstm, HASTE_TANH, HASTE_HARD_SIGMOID, 0.5f, true},
      {&kLstm, HASTE_RELU, HASTE_SIGMOID, 0.0f, false},
      {&kLstm, HASTE_TANH, HASTE_LINEAR, 0.0f, false},
      {&kLstm, HASTE_TANH, HASTE_TANH, 0.0f, true},
      {&gru, HASTE_TANH, HASTE_SIGMOID, 0.0f, true},
      {&gru, HASTE_TANH, HASTE_TANH, 0.0f, false},  // -h + 2 g, at worst
      {&gru, HASTE_TANH, HASTE_SIGMOID, 0.5f, true},
      {&elman, HASTE_SIGMOID, HASTE_LINEAR, 0.5f, true},
      {&elman, HASTE_RELU, HASTE_SIGMOID, 0.0f, false},
      {&slstm, HASTE_TANH, HASTE_EXPONENTIAL, 0.5f, true},
      {&slstm, HASTE_LINEAR, HASTE_SIGMOID, 0.0f, false},
  };
  for (const auto& c : cases) {
    HasteRnnConfig config = CudaSizes(16, 1, 512, HASTE_FLOAT32);
    config.activation = c.activation;
    config.recurrent_activation = c.recurrent;
    config.recurrent_dropout = c.dropout;
    config.training = 1;
    config.engine = "grid";
    EXPECT_TRUE(HasBoundedStates(config, *c.cell) == c.bounded, "%s", c.cell->name);
    const Plan plan = PlanOnHopper(config, *c.cell, false);
    config.activation = HASTE_LINEAR;
    const Plan unbounded = PlanOnHopper(config, *c.cell, false);
    EXPECT_TRUE((plan.persistent.clocks < unbounded.persistent.clocks) == c.bounded, "%s: %f, %f",
                c.cell->name, plan.persistent.clocks, unbounded.persistent.clocks);
    config.training = 0;
    config.activation = c.activation;
    EXPECT_TRUE(HasBoundedStates(config, *c.cell) == c.bounded, "%s", c.cell->name);
  }
}

// Every unit has a warp, every depth index has a place in memory, and all of it fits a block.
void BlocksFit() {
  CudaProperties device;
  device.multiprocessors = 132;
  device.shared_bytes_per_block = 232448;
  std::fill(std::begin(device.clusters), std::end(device.clusters), 7);
  for (int gates : {1, 3, 4}) {
    for (int terms : {1, 2, 3}) {
      const BlockCell cell = {gates, terms == 1 ? 2 : 4, terms, 5, gates == 3};
      for (bool backward : {false, true}) {
        // Of floats as many as fit, at least.
        const int64_t least = gates == 1 || terms == 1 ? 512 : terms == 2 ? 320 : 184;
        for (int64_t h = 1; h <= cell.max_hidden(true); ++h) {
          BlockPlan plan = {};
          VisitBlocks({cell, 9, 1, h, backward}, device, CostsOf(9).block,
                      [&](const BlockPlan& cut) { plan = cut; });
          const bool planned = plan.blocks > 0;
          EXPECT_TRUE(planned || h > least, "%d gates, %d parts, H=%d", gates, terms,
                      static_cast<int>(h));
          if (!planned) continue;
          const BlockTiling& t = plan.tiling;
          const int units = t.blocks * t.warps * kBlockUnits, depths = backward ? cell.slots() : 1;
          EXPECT_TRUE(units >= h && t.warps <= cell.max_warps(t.blocks > 1), "H=%d",
                      static_cast<int>(h));
          EXPECT_TRUE((t.blocks - 1) * t.units(h) < h, "H=%d", static_cast<int>(h));
          EXPECT_TRUE(units * depths <= t.chunks * cell.depth_warps(backward) * 32, "H=%d",
                      static_cast<int>(h));
          EXPECT_TRUE(plan.shared_bytes <= device.shared_bytes_per_block, "H=%d",
                      static_cast<int>(h));
        }
      }
    }
  }
}

}  // namespace
}  // namespace haste

int main() {
  haste::OnChip();
  haste::WarpsForElements();
  haste::OnChipFits();
  haste::ClusterPeers();
  haste::InBlocks();
  haste::TensorFloat();
  haste::RowsOfSums();
  haste::EarlyProducts();
  haste::Bounds();
  haste::BlocksFit();
  return haste_test::Report("plan_cuda_test");
}
