// Which products overlap a walk on an H200: forward x·W, backward those of the gradients.
#include <algorithm>
#include <vector>

#include "lib/plan/gemm/layer_gemms.h"
#include "lib/plan/overlap.h"
#include "tests/lib/plan/plan_case.h"

namespace haste {
namespace {

CudaProperties HopperWithCublas() {
  CudaProperties hopper = Hopper();
  hopper.has_cublas = true;
  return hopper;
}

HasteRnnConfig Layer(int64_t n, int64_t t, int64_t k, int64_t h, HasteDtype dtype) {
  HasteRnnConfig config = CudaSizes(n, k, h, dtype);
  config.time = t;
  return config;
}

OverlappedInput InputOf(const HasteRnnConfig& config, int64_t features,
                        const CudaProperties& gpu = HopperWithCublas(),
                        const HasteCellInfo& cell = kLstm) {
  return PlanOverlappedInput(config, cell, features, PlanOnGpu(config, cell, gpu, false), gpu);
}
ProductPlan Input(const HasteRnnConfig& config, int64_t features,
                  const CudaProperties& gpu = HopperWithCublas()) {
  return InputOf(config, features, gpu).product;
}
OverlappedGradients Gradients(const HasteRnnConfig& config, int64_t features,
                              const CudaProperties& gpu = HopperWithCublas(),
                              const HasteCellInfo& cell = kLstm) {
  return PlanOverlappedGradients(config, cell, features, PlanOnGpu(config, cell, gpu, true), gpu);
}

void FirstCase() {
  for (const auto& [dtype, tf32] :
       {std::pair{HASTE_FLOAT32, 0}, {HASTE_FLOAT32, 1}, {HASTE_FLOAT16, 0}, {HASTE_BFLOAT16, 0}}) {
    HasteRnnConfig config = Layer(16, 1024, 1, 768, dtype);
    config.allow_tf32 = tf32;
    const bool exact = dtype == HASTE_FLOAT32 && tf32 == 0;
    const ProductPlan input = Input(config, 768);
    EXPECT_TRUE(input.ours && input.pairs == 18, "dtype %d: %d pairs", dtype, input.pairs);
    EXPECT_TRUE(input.terms == (exact ? 2 : 1), "dtype %d: %d terms", dtype, input.terms);
    EXPECT_TRUE(
        input.slots == 0 && input.rows >= 16384 && input.columns >= 3072 && input.depth >= 768,
        "dtype %d: not one chunk", dtype);
    const OverlappedGradients overlap = Gradients(config, 768);
    EXPECT_TRUE(overlap.steps == 128 && overlap.blocks == 96, "dtype %d: %d steps, %d blocks",
                dtype, static_cast<int>(overlap.steps), overlap.blocks);
    EXPECT_TRUE(overlap.cublas == !exact, "dtype %d", dtype);
    // Exact floats: a little over half of it, because the walk would wait for the rest.
    const int least = exact ? 4 : 7, most = exact ? 7 : 8;
    EXPECT_TRUE(overlap.chunks >= least && overlap.chunks <= most, "dtype %d: %d parts", dtype,
                static_cast<int>(overlap.chunks));
  }
}

// Those of tests/gpu/products/test_layer_beside.py, which checks on a GPU that they overlap. Costs
// that are fitted anew may end that; then both need other sizes.
void CasesOfTheGpuTests() {
  const uint8_t forward_first[] = {0, 1, 1}, backward_first[] = {1, 0};
  const struct {
    HasteCellInfo cell;
    int64_t n, t, k, h, c;
    const uint8_t* reverse;
    const char* engine;
  } cases[] = {
      {kLstm, 16, 600, 1, 768, 768, nullptr, "auto"},
      {kLstm, 16, 600, 2, 640, 768, nullptr, "auto"},
      {kLstm, 13, 777, 1, 688, 1000, nullptr, "grid"},
      {kLstm, 16, 600, 2, 640, 768, forward_first, "grid"},
      {kLstm, 16, 521, 2, 640, 512, backward_first, "grid"},
      {kLstm, 16, 1501, 3, 512, 512, forward_first, "grid"},
      {CellInfo<Gru>(), 16, 1000, 1, 768, 1024, nullptr, "auto"},
      {CellInfo<SLstm>(), 16, 600, 1, 768, 1024, nullptr, "auto"},
  };
  for (const auto& c : cases) {
    for (const auto& [dtype, tf32] : {std::pair{HASTE_FLOAT32, 0},
                                      {HASTE_FLOAT32, 1},
                                      {HASTE_FLOAT16, 0},
                                      {HASTE_BFLOAT16, 0}}) {
      HasteRnnConfig config = Layer(c.n, c.t, c.k, c.h, dtype);
      config.cell = c.cell.name;
      config.allow_tf32 = tf32;
      config.reverse = c.reverse;
      config.engine = c.engine;
      const CudaProperties gpu = HopperWithCublas();
      EXPECT_TRUE(InputOf(config, c.c, gpu, c.cell).product.ours,
                  "%s T=%d K=%d H=%d, dtype %d, tf32 %d: forward", c.cell.name,
                  static_cast<int>(c.t), static_cast<int>(c.k), static_cast<int>(c.h), dtype, tf32);
      EXPECT_TRUE(Gradients(config, c.c, gpu, c.cell).chunks > 0,
                  "%s T=%d K=%d H=%d, dtype %d, tf32 %d: backward", c.cell.name,
                  static_cast<int>(c.t), static_cast<int>(c.k), static_cast<int>(c.h), dtype, tf32);
    }
  }
}

void PartsCoverTheWalk(HasteDtype dtype) {
  for (int64_t n : {1, 7, 16, 20, 32}) {
    for (int64_t t : {257, 1000, 1024, 5000}) {
      const HasteRnnConfig config = Layer(n, t, 1, 768, dtype);
      const OverlappedGradients overlap = Gradients(config, 1024);
      if (overlap.chunks == 0) continue;
      EXPECT_TRUE((overlap.steps & (overlap.steps - 1)) == 0, "%d steps",
                  static_cast<int>(overlap.steps));
      int64_t steps = 0;
      for (int64_t chunk = 0; chunk < overlap.chunks; ++chunk) {
        const int64_t of_part = overlap.StepsOf(chunk, t);
        EXPECT_TRUE(of_part > 0, "N=%d T=%d: part %d has %d steps", static_cast<int>(n),
                    static_cast<int>(t), static_cast<int>(chunk), static_cast<int>(of_part));
        steps += of_part;
      }
      EXPECT_TRUE(steps == t, "N=%d T=%d: %d steps", static_cast<int>(n), static_cast<int>(t),
                  static_cast<int>(steps));
    }
  }
  EXPECT_TRUE(Gradients(Layer(16, 1024, 1, 768, dtype), 768).chunks > 0, "no case at all");
}

// Each time belongs to one chunk, which starts when the walks from both ends have passed it.
void TimesAreCompletedOnce() {
  for (int64_t time : {1, 2, 3, 16, 17, 520, 521, 777}) {
    for (int64_t steps : {1, 2, 8, 128, 1024}) {
      for (int64_t chunks = 1; chunks <= CeilDiv(time, steps); ++chunks) {
        OverlappedGradients overlap;
        overlap.steps = steps;
        overlap.chunks = chunks;
        std::vector<int> made(time);
        for (int64_t chunk = 0, from = 0; chunk < chunks; ++chunk) {
          const int64_t to = from + overlap.StepsOf(chunk, time);
          for (const Times& times : CompletedTimes(from, to, time)) {
            for (int64_t t = times.first; t < times.first + times.count; ++t) {
              EXPECT_TRUE(t >= time - to && t < to, "T=%d: time %d after %d steps",
                          static_cast<int>(time), static_cast<int>(t), static_cast<int>(to));
              ++made.at(t);
            }
          }
          // All that is complete was multiplied.
          for (int64_t t = time - to; t < to; ++t) EXPECT_TRUE(made[t] == 1, "too late");
          from = to;
        }
        EXPECT_TRUE(std::all_of(made.begin(), made.end(), [](int n) { return n == 1; }),
                    "T=%d, %d parts of %d steps", static_cast<int>(time), static_cast<int>(chunks),
                    static_cast<int>(steps));
      }
    }
  }
}

// Products that the walk would wait for run before it, and no others.
void InputBeforeTheWalk() {
  const uint8_t both[] = {0, 1};
  const HasteRnnConfig one = Layer(16, 1024, 1, 768, HASTE_BFLOAT16);
  EXPECT_TRUE(InputOf(one, 768).rows_before == 0, "%d rows of tiles",
              InputOf(one, 768).rows_before);
  HasteRnnConfig two = Layer(16, 1024, 2, 768, HASTE_BFLOAT16);
  two.reverse = both;
  int before = 0;
  for (int64_t features : {1280, 1536, 1792}) {
    const OverlappedInput overlap = InputOf(two, features);
    EXPECT_TRUE(overlap.product.ours && overlap.all_pairs == 66, "%d features",
                static_cast<int>(features));
    EXPECT_TRUE(
        overlap.order.rows == 64 && overlap.rows_before > before && overlap.rows_before <= 32,
        "%d features: %d rows of tiles", static_cast<int>(features), overlap.rows_before);
    before = overlap.rows_before;
  }
  two.time = 256;
  EXPECT_TRUE(!Input(two, 2240).ours, "most of it");
  for (int64_t n : {4, 8}) {
    EXPECT_TRUE(!Input(Layer(n, 32, 1, 1024, HASTE_BFLOAT16), 5000).ours, "all there is");
  }
}

void OneAfterTheOther() {
  const auto neither = [](const HasteRnnConfig& config, int64_t features, const char* why,
                          const CudaProperties& gpu = HopperWithCublas()) {
    EXPECT_TRUE(!Input(config, features, gpu).ours, "forward: %s", why);
    EXPECT_TRUE(Gradients(config, features, gpu).chunks == 0, "backward: %s", why);
  };
  neither(Layer(16, 100, 1, 256, HASTE_FLOAT32), 128, "small products");
  neither(Layer(16, 1024, 1, 768, HASTE_FLOAT64), 768, "float64");
  neither(Layer(64, 1024, 1, 1024, HASTE_BFLOAT16), 1024, "no multiprocessor is free");
  neither(Layer(16, 1024, 1, 768, HASTE_FLOAT32), 0, "no input");
  CudaProperties ampere = HopperWithCublas();
  ampere.sm_major = 8;
  for (int& count : ampere.clusters) count = 0;
  neither(Layer(16, 1024, 1, 768, HASTE_FLOAT32), 768, "no wgmma", ampere);
  const HasteRnnConfig small = Layer(16, 1024, 1, 512, HASTE_BFLOAT16);
  EXPECT_TRUE(PlanOnGpu(small, kLstm, ampere, true).engine == EngineKind::kGrid, "no case");
  neither(small, 1024, "never measured", ampere);

  CudaProperties alone = Hopper();
  EXPECT_TRUE(Gradients(Layer(16, 1024, 1, 768, HASTE_BFLOAT16), 768, alone).chunks == 0,
              "no cuBLAS");
  EXPECT_TRUE(Gradients(Layer(16, 1024, 1, 768, HASTE_FLOAT32), 768, alone).chunks > 0,
              "no need of cuBLAS");
  CudaProperties apart = HopperWithCublas();
  for (int& count : apart.clusters) count = 0;
  neither(Layer(16, 1024, 1, 768, HASTE_BFLOAT16), 768, "no clusters", apart);
  EXPECT_TRUE(!Input(Layer(16, 1024, 1, 771, HASTE_FLOAT32), 768).ours,
              "rows of wx that begin anywhere");
  EXPECT_TRUE(!Input(Layer(300, 600, 1, 64, HASTE_FLOAT32), 2048).ours,
              "a step is more than a row of tiles");
  EXPECT_TRUE(!Input(Layer(16, 4000, 1, 768, HASTE_FLOAT32), 768).ours, "more than there is room");
}

void Directions() {
  const uint8_t apart[] = {0, 1}, same[] = {1, 1};
  HasteRnnConfig config = Layer(16, 1024, 2, 768, HASTE_FLOAT32);
  EXPECT_TRUE(OneDirection(config), "none walks backwards");
  config.reverse = same;
  EXPECT_TRUE(OneDirection(config), "all walk backwards");
  config.reverse = apart;
  EXPECT_TRUE(!OneDirection(config), "one walks backwards");
  EXPECT_TRUE(Input(config, 768).ours, "x·W has an order for each");
  EXPECT_TRUE(Gradients(config, 768).chunks > 0, "gradients are added up");
  HasteRnnConfig coarse = config;
  coarse.allow_tf32 = 1;
  // Seven of eight overlapped was the fastest when measured, six hardly slower.
  const OverlappedGradients overlap = Gradients(coarse, 768);
  EXPECT_TRUE(overlap.chunks >= 6 && overlap.chunks <= 7, "TensorFloat-32: %d parts",
              static_cast<int>(overlap.chunks));
  HasteRnnConfig half = config;
  half.dtype = HASTE_BFLOAT16;
  // cuBLAS is as fast after the walk.
  EXPECT_TRUE(Gradients(half, 768).chunks == 0, "in 16 bits");

  const uint8_t runs[] = {0, 0, 1, 0};
  config = Layer(16, 8, 4, 64, HASTE_FLOAT32);
  EXPECT_TRUE(EndOfDirection(config, 1) == 4, "one way");
  config.reverse = runs;
  const int ends[] = {2, 2, 3, 4};
  for (int k = 0; k < 4; ++k) {
    EXPECT_TRUE(EndOfDirection(config, k) == ends[k], "lane %d", k);
  }
}

// Every tile once, those of lanes that walk backwards from the last row on, and each count of as
// many tiles as their columns.
void OrderOfTiles() {
  const HasteGemm gemm = [] {
    HasteGemm g = HASTE_INIT(HasteGemm);
    g.m = 5 * kProductRows - 3;
    g.n = 6 * kProductColumns;
    return g;
  }();
  const struct {
    uint8_t reverse[3];
    int from, to;
  } cases[] = {{{0, 0, 0}, 0, 0}, {{0, 1, 1}, 2, 6}, {{1, 0, 0}, 0, 2}, {{1, 1, 1}, 0, 0}};
  for (const auto& c : cases) {
    HasteRnnConfig config = Layer(1, 1, 3, 64, HASTE_FLOAT32);
    config.reverse = c.reverse;
    TileOrder order;
    EXPECT_TRUE(InputOrder(config, gemm, &order), "to %d", c.to);
    EXPECT_TRUE(order.turned_from == c.from && order.turned_to == c.to, "%d to %d",
                order.turned_from, order.turned_to);
    int made[5][6] = {}, counts[10] = {};
    // Two rows of tiles before the others.
    for (int i = 0; i < 30; ++i) {
      order.first = i < 12 ? 0 : 2;
      const int tile = i < 12 ? i : i - 12;
      ++made[order.Row(tile)][order.Column(tile)];
      const bool turned = order.Column(tile) >= c.from && order.Column(tile) < c.to;
      EXPECT_TRUE(order.Row(tile) == (turned ? 4 - i / 6 : i / 6), "tile %d", i);
      ++counts[order.CountOf(tile)];
    }
    for (const auto& row : made) {
      for (int times : row) EXPECT_TRUE(times == 1, "made %d times", times);
    }
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(counts[i] == (i < 5 ? 6 - (c.to - c.from) : c.to - c.from), "count %d", i);
    }
  }
  HasteRnnConfig config = Layer(1, 1, 3, 64, HASTE_FLOAT32);
  const uint8_t by_turns[] = {0, 1, 0}, one[] = {0, 0, 1};
  TileOrder order;
  config.reverse = by_turns;
  EXPECT_TRUE(!InputOrder(config, gemm, &order), "by turns");
  config.reverse = one;
  HasteGemm narrow = gemm;
  narrow.n = 6 * kProductColumns - 48;
  EXPECT_TRUE(!InputOrder(config, narrow, &order), "a tile of both directions");
  config.batch = 12;
  EXPECT_TRUE(!InputOrder(config, gemm, &order), "a fraction of a step");
}

// Each step of a walk in either direction waits for all that it reads, and for no chunk that does
// not exist.
void StepsAreWaitedFor() {
  const uint8_t both[] = {0, 1};
  for (int n : {1, 2, 12, 16, 100, 128, 256}) {
    for (int t : {1, 2, 15, 16, 17, 100, 257, 777}) {
      HasteRnnConfig config = Layer(n, t, 2, 64, HASTE_FLOAT32);
      HasteGemm gemm = HASTE_INIT(HasteGemm);
      gemm.m = int64_t{n} * t;
      gemm.n = 2 * int64_t{kProductColumns};
      TileOrder order;
      config.reverse = both;
      if (!InputOrder(config, gemm, &order)) {
        config.reverse = nullptr;
        InputOrder(config, gemm, &order);
      }
      const OverlapFlags flags = InputFlags(config, order);
      for (bool backwards : {false, true}) {
        if (backwards && config.reverse == nullptr) continue;
        // A tile of the columns of this way: the first, or the last.
        const int column = backwards ? order.columns - 1 : 0;
        std::vector<bool> there(order.rows);
        int32_t steps_there = 0;
        for (int step = 0; step < t; ++step) {
          flags.Await(n, backwards, step, &steps_there, [&](int chunk, uint32_t) {
            for (int i = 0; i < order.rows; ++i) {
              const int tile = i * order.columns + column;
              if (order.CountOf(tile) == chunk) there[order.Row(tile)] = true;
            }
            EXPECT_TRUE(chunk >= 0 && chunk < (backwards ? 2 : 1) * order.rows, "part %d", chunk);
          });
          const int time = backwards ? t - 1 - step : step;
          for (int row = time * n; row < (time + 1) * n; ++row) {
            EXPECT_TRUE(there[row / kProductRows], "N=%d T=%d, step %d %s: row %d", n, t, step,
                        backwards ? "backwards" : "forwards", row);
          }
        }
      }
    }
  }
}

void WeightsInOneProduct() {
  const HasteCellInfo gru = CellInfo<Gru>();
  EXPECT_TRUE(WeightsAreOne(kLstm, 1), "one lane");
  EXPECT_TRUE(!WeightsAreOne(kLstm, 2), "lanes have their own R");
  EXPECT_TRUE(!WeightsAreOne(gru, 1), "dq is not dwx");
}

// Where rows of [N, T] lie, one by one and all the way.
void Rows() {
  const int64_t n = 3, t = 7;
  const RowRuns walk = {n, -1, t}, some = {2, t, 1};
  RowCursor cursor(some, 1);
  for (int64_t row = 0; row < n * t; ++row) {
    EXPECT_TRUE(walk.At(row) == row % n * t - row / n, "walk, row %d", static_cast<int>(row));
    if (row < 1 || row >= 2 * n) continue;
    EXPECT_TRUE(cursor.at() == row / 2 * t + row % 2 && some.At(row) == cursor.at(),
                "some steps, row %d", static_cast<int>(row));
    cursor.Next();
  }
  RowCursor plain(RowRuns(), 5);
  for (int64_t row = 5; row < 9; ++row, plain.Next()) {
    EXPECT_TRUE(plain.at() == row && RowRuns().At(row) == row, "row %d", static_cast<int>(row));
  }
}

}  // namespace
}  // namespace haste

int main() {
  haste::FirstCase();
  haste::CasesOfTheGpuTests();
  haste::PartsCoverTheWalk(HASTE_FLOAT32);
  haste::PartsCoverTheWalk(HASTE_BFLOAT16);
  haste::TimesAreCompletedOnce();
  haste::InputBeforeTheWalk();
  haste::OneAfterTheOther();
  haste::Directions();
  haste::OrderOfTiles();
  haste::StepsAreWaitedFor();
  haste::WeightsInOneProduct();
  haste::Rows();
  return haste_test::Report("overlap_plan_test");
}
