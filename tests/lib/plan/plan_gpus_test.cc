// Which engine runs typical layers on GPUs of each generation. Plans for compute capability 9.0
// were measured. Those for other GPUs come from the cost model; they are pinned to make changes
// visible.
#include <cstring>
#include <string>
#include <vector>

#include "lib/api/layer.h"
#include "lib/plan/overlap.h"
#include "tests/lib/plan/plan_case.h"

namespace haste {
namespace {

struct Gpu {
  const char* name;
  int major, minor, multiprocessors, shared_kilobytes, l2_megabytes;
  std::vector<int> clusters;  // of 0, 1, 2, … blocks

  CudaProperties properties() const {
    CudaProperties made;
    made.sm_major = major;
    made.sm_minor = minor;
    made.multiprocessors = multiprocessors;
    made.shared_bytes_per_block = shared_kilobytes << 10;
    made.l2_bytes = int64_t{l2_megabytes} << 20;
    std::copy(clusters.begin(), clusters.end(), made.clusters);
    made.has_cublas = true;
    return made;
  }
};

// Clusters of the last three are guesses: as many as there would be without holes.
const Gpu kT4 = {"T4", 7, 5, 40, 64, 4, {}};
const Gpu kA100 = {"A100", 8, 0, 108, 163, 40, {}};
const Gpu kL4 = {"L4", 8, 9, 58, 99, 48, {}};
const Gpu kH100 = {
    "H100", 9, 0, 132, 227, 50, {0, 0, 66, 41, 30, 24, 18, 15, 15, 11, 11, 9, 9, 7, 7, 7, 7}};
const Gpu kB200 = {
    "B200", 10, 0, 148, 227, 126, {0, 0, 74, 49, 36, 28, 24, 20, 18, 14, 14, 12, 10, 10, 8, 8, 8}};
const Gpu kRtx5090 = {"RTX 5090", 12, 0, 170, 99, 96, {0, 0, 85, 56, 42, 33, 28, 24, 21}};
const Gpu kGb10 = {"GB10", 12, 1, 48, 99, 24, {0, 0, 24, 16, 12, 9, 8, 6, 6}};
const Gpu kGpus[] = {kT4, kA100, kL4, kH100, kB200, kRtx5090, kGb10};

struct Precision {
  HasteDtype dtype;
  int allow_tf32;
};
constexpr Precision kPrecisions[] = {
    {HASTE_FLOAT32, 0}, {HASTE_FLOAT32, 1}, {HASTE_FLOAT16, 0}, {HASTE_BFLOAT16, 0}};

HasteRnnConfig Of(int64_t n, int64_t k, int64_t h, const Precision& precision) {
  HasteRnnConfig config = CudaSizes(n, k, h, precision.dtype);
  config.allow_tf32 = precision.allow_tf32;
  return config;
}

// An LSTM's engines in kPrecisions, forward and backward of each.
std::string EnginesOf(const Gpu& gpu, int64_t n, int64_t k, int64_t h) {
  std::string engines;
  for (const Precision& precision : kPrecisions) {
    for (const bool backward : {false, true}) {
      const Plan plan = PlanOnGpu(Of(n, k, h, precision), kLstm, gpu.properties(), backward);
      engines += engines.empty() ? "" : backward ? " " : ", ";
      engines += EngineName(plan.engine);
    }
  }
  return engines;
}

void Pinned() {
  const struct {
    const Gpu& gpu;
    int64_t n, k, h;
    const char* engines;  // float32, TensorFloat-32, float16, bfloat16
  } cases[] = {
      {kT4, 16, 1, 64,
       "stepwise stepwise, stepwise stepwise, stepwise stepwise, stepwise stepwise"},
      {kT4, 16, 1, 128,
       "stepwise stepwise, stepwise stepwise, stepwise stepwise, stepwise stepwise"},
      {kT4, 32, 1, 256, "stepwise stepwise, stepwise stepwise, blas blas, stepwise stepwise"},
      {kT4, 16, 1, 512, "stepwise stepwise, stepwise stepwise, blas blas, stepwise stepwise"},
      {kT4, 16, 2, 512, "stepwise stepwise, stepwise stepwise, blas blas, stepwise stepwise"},
      {kT4, 16, 1, 768, "stepwise stepwise, stepwise stepwise, blas blas, stepwise stepwise"},
      {kT4, 64, 1, 1024, "blas blas, blas blas, blas blas, stepwise stepwise"},
      {kT4, 128, 1, 2048, "blas blas, blas blas, blas blas, stepwise stepwise"},
      {kA100, 16, 1, 64, "block block, block block, block block, block block"},
      {kA100, 16, 1, 128, "grid grid, grid grid, grid grid, grid grid"},
      {kA100, 32, 1, 256, "grid grid, grid grid, grid grid, grid grid"},
      {kA100, 16, 1, 512, "grid grid, grid grid, grid grid, grid grid"},
      {kA100, 16, 2, 512, "grid grid, grid grid, grid grid, grid grid"},
      {kA100, 16, 1, 768, "grid stepwise, grid grid, grid grid, grid grid"},
      {kA100, 64, 1, 1024, "blas blas, grid blas, blas blas, blas blas"},
      {kA100, 128, 1, 2048, "blas blas, blas blas, blas blas, blas blas"},
      {kL4, 16, 1, 64, "block block, block block, block block, block block"},
      {kL4, 16, 1, 128, "grid grid, grid grid, grid grid, grid grid"},
      {kL4, 32, 1, 256, "grid grid, grid grid, grid grid, grid grid"},
      {kL4, 16, 1, 512, "grid stepwise, grid grid, grid grid, grid grid"},
      {kL4, 16, 2, 512, "stepwise stepwise, grid blas, grid grid, grid grid"},
      {kL4, 16, 1, 768, "stepwise stepwise, grid grid, grid grid, grid grid"},
      {kL4, 64, 1, 1024, "blas blas, blas blas, blas blas, blas blas"},
      {kL4, 128, 1, 2048, "blas blas, blas blas, blas blas, blas blas"},
      {kH100, 16, 1, 64, "block block, block block, block block, block block"},
      {kH100, 16, 1, 128, "block block, block block, block block, block block"},
      {kH100, 32, 1, 256, "grid cluster, block block, block block, block block"},
      {kH100, 16, 1, 512, "grid grid, grid grid, grid block, grid block"},
      {kH100, 16, 2, 512, "grid grid, grid grid, grid block, grid block"},
      {kH100, 16, 1, 768, "grid grid, grid grid, grid grid, grid grid"},
      {kH100, 64, 1, 1024, "grid tiled, grid tiled, grid tiled, grid tiled"},
      {kH100, 128, 1, 2048, "tiled tiled, tiled tiled, tiled tiled, tiled tiled"},
      {kB200, 16, 1, 64, "block block, block block, block block, block block"},
      {kB200, 16, 1, 128, "block block, block block, block block, block block"},
      {kB200, 32, 1, 256, "cluster cluster, block block, block block, block block"},
      {kB200, 16, 1, 512, "grid grid, block grid, block block, block block"},
      {kB200, 16, 2, 512, "grid grid, block grid, block block, block block"},
      {kB200, 16, 1, 768, "grid grid, grid grid, grid grid, grid grid"},
      {kB200, 64, 1, 1024, "blas blas, grid grid, grid grid, grid grid"},
      {kB200, 128, 1, 2048, "blas blas, blas blas, blas blas, blas blas"},
      {kRtx5090, 16, 1, 64, "block block, block block, block block, block block"},
      {kRtx5090, 16, 1, 128, "block block, block block, block block, block block"},
      {kRtx5090, 32, 1, 256, "grid grid, block block, block block, block block"},
      {kRtx5090, 16, 1, 512, "grid grid, grid grid, grid grid, grid grid"},
      {kRtx5090, 16, 2, 512, "grid grid, grid grid, grid grid, grid grid"},
      {kRtx5090, 16, 1, 768, "stepwise stepwise, grid grid, grid grid, grid grid"},
      {kRtx5090, 64, 1, 1024, "blas blas, grid grid, grid grid, grid grid"},
      {kRtx5090, 128, 1, 2048, "blas blas, blas blas, blas blas, blas blas"},
      {kGb10, 16, 1, 64, "block block, block block, block block, block block"},
      {kGb10, 16, 1, 128, "block block, block block, block block, block block"},
      {kGb10, 32, 1, 256, "grid grid, block block, block block, block block"},
      {kGb10, 16, 1, 512, "grid grid, grid grid, grid grid, grid grid"},
      {kGb10, 16, 2, 512, "stepwise stepwise, grid grid, grid grid, grid grid"},
      {kGb10, 16, 1, 768, "stepwise stepwise, grid grid, grid grid, grid grid"},
      {kGb10, 64, 1, 1024, "blas blas, blas blas, blas blas, blas blas"},
      {kGb10, 128, 1, 2048, "blas blas, blas blas, blas blas, blas blas"},
  };
  for (const auto& c : cases) {
    const std::string engines = EnginesOf(c.gpu, c.n, c.k, c.h);
    EXPECT_TRUE(engines == c.engines, "%s N=%d K=%d H=%d: %s, expected %s", c.gpu.name,
                static_cast<int>(c.n), static_cast<int>(c.k), static_cast<int>(c.h),
                engines.c_str(), c.engines);
  }
}

// For every cell and size, no plan needs what the GPU does not have: instructions of 9.0a on other
// GPUs than 9.0, clusters before 9.0, more blocks or memory than exist.
void Possible() {
  const HasteCellInfo cells[] = {kLstm, CellInfo<Gru>(), CellInfo<Elman>(), CellInfo<SLstm>(),
                                 CellInfo<GruResetBefore>()};
  for (const Gpu& gpu : kGpus) {
    const CudaProperties cuda = gpu.properties();
    int on_chip = 0, in_clusters = 0;
    for (const HasteCellInfo& cell : cells) {
      for (const int64_t n : {1, 8, 16, 33, 128}) {
        for (const int64_t h : {32, 100, 128, 256, 512, 768, 1024, 2048}) {
          for (const Precision& precision : kPrecisions) {
            for (const bool backward : {false, true}) {
              const HasteRnnConfig config = Of(n, 1, h, precision);
              const Plan plan = PlanOnGpu(config, cell, cuda, backward);
              const std::string text = std::string(gpu.name) + ": " + Describe(plan, config, cell);
              const bool persistent =
                  plan.engine == EngineKind::kGrid || plan.engine == EngineKind::kCluster;
              const bool block = plan.engine == EngineKind::kBlock;
              EXPECT_TRUE(plan.engine != EngineKind::kTiled || gpu.major == 9, "%s", text.c_str());
              EXPECT_TRUE(!(persistent || block) || gpu.major >= 8, "%s", text.c_str());
              if (block) {
                const int size = plan.block.tiling.blocks;
                EXPECT_TRUE(size == 1 || cuda.clusters[size] > 0, "%s", text.c_str());
                EXPECT_TRUE(plan.block.shared_bytes <= cuda.shared_bytes_per_block, "%s",
                            text.c_str());
                in_clusters += size > 1;
              }
              if (!persistent) continue;
              ++on_chip;
              const PersistentTiling& t = plan.persistent.tiling;
              const int size = plan.engine == EngineKind::kCluster ? t.blocks : t.sharers;
              EXPECT_TRUE(size == 1 || cuda.clusters[size] > 0, "%s", text.c_str());
              EXPECT_TRUE(plan.engine != EngineKind::kCluster || gpu.major >= 9, "%s",
                          text.c_str());
              EXPECT_TRUE(t.element_warps == 0 || gpu.major == 9, "%s", text.c_str());
              EXPECT_TRUE(plan.engine == EngineKind::kCluster ||
                              t.blocks * t.row_groups <= gpu.multiprocessors,
                          "%s", text.c_str());
              EXPECT_TRUE(plan.persistent.shared_bytes <= cuda.shared_bytes_per_block, "%s",
                          text.c_str());
              in_clusters += size > 1;
              const OverlappedInput input = PlanOverlappedInput(config, cell, h, plan, cuda);
              const OverlappedGradients gradients =
                  PlanOverlappedGradients(config, cell, h, plan, cuda);
              EXPECT_TRUE(gpu.major == 9 || (!input.product.ours && gradients.chunks == 0), "%s",
                          text.c_str());
            }
          }
        }
      }
    }
    EXPECT_TRUE((on_chip > 100) == (gpu.major >= 8), "%s: %d on the chip", gpu.name, on_chip);
    EXPECT_TRUE((in_clusters > 50) == (gpu.major >= 9), "%s: %d in clusters", gpu.name,
                in_clusters);
  }
}

// Where there is no code for `tiled`, it is refused by name, and large products use cuBLAS.
void Refused() {
  for (const Gpu& gpu : kGpus) {
    HasteRnnConfig config = Of(128, 1, 1024, kPrecisions[0]);
    config.engine = "tiled";
    Plan plan;
    HasteStatus status = {};
    const int32_t code = PlanRecurrence(config, kLstm, {}, gpu.properties(), &plan, &status);
    EXPECT_TRUE((code == HASTE_OK) == (gpu.major == 9), "%s: %s", gpu.name, status.message);
    EXPECT_TRUE(gpu.major == 9 || std::strstr(status.message, "\"tiled\"") != nullptr, "%s: %s",
                gpu.name, status.message);
    // `block` copies rows that do not begin at multiples of 16 bytes on 9.0 alone.
    config = Of(16, 1, 62, kPrecisions[3]);
    config.engine = "block";
    const int32_t odd = PlanRecurrence(config, kLstm, {}, gpu.properties(), &plan, &status);
    EXPECT_TRUE((odd == HASTE_OK) == (gpu.major == 9), "%s: %s", gpu.name, status.message);
    const HasteGemm gemm = InputProduct(Of(16, 1, 768, kPrecisions[0]), kLstm, 768);
    const CudaProperties cuda = gpu.properties();
    EXPECT_TRUE(PlanProduct(gemm, cuda.sm_major, cuda.clusters[2]).ours == (gpu.major == 9), "%s",
                gpu.name);
  }
}

// Part of a GPU, as with MPS and green contexts: no plan needs more resident blocks.
void Partitions() {
  for (const int multiprocessors : {8, 20, 66, 131}) {
    CudaProperties part = kH100.properties();
    part.multiprocessors = multiprocessors;
    for (int size = 2; size <= kMaxCluster; ++size) {
      part.clusters[size] = std::min(part.clusters[size], multiprocessors / size);
    }
    for (const int64_t h : {64, 256, 512, 768, 1024, 2048}) {
      for (const bool backward : {false, true}) {
        const HasteRnnConfig config = Of(16, 1, h, kPrecisions[3]);
        const Plan plan = PlanOnGpu(config, kLstm, part, backward);
        const std::string text = Describe(plan, config, kLstm);
        const PersistentTiling& t = plan.persistent.tiling;
        EXPECT_TRUE(plan.engine != EngineKind::kGrid || t.blocks * t.row_groups <= multiprocessors,
                    "%d: %s", multiprocessors, text.c_str());
        EXPECT_TRUE(plan.engine != EngineKind::kTiled || !plan.tiled[0].tiling.persistent ||
                        plan.tiled[0].tiling.blocks(1) <= multiprocessors,
                    "%d: %s", multiprocessors, text.c_str());
      }
    }
  }
}

}  // namespace
}  // namespace haste

int main() {
  haste::Pinned();
  haste::Possible();
  haste::Refused();
  haste::Partitions();
  return haste_test::Report("plan_gpus_test");
}
