// PlanRecurrence: which engine runs a recurrence, and how it is cut. A pure function of sizes and
// device properties, so that a machine with no GPU can test what a GPU would be given.
#pragma once

#include <stdint.h>

#include <string>

#include "haste/c_api.h"
#include "lib/plan/engines/blas.h"
#include "lib/plan/engines/block.h"
#include "lib/plan/engines/device.h"
#include "lib/plan/engines/persistent.h"
#include "lib/plan/engines/tiled.h"

namespace haste {

// Lanes whose directions travel in the parameters of a kernel that walks all steps.
constexpr int kMaxOnChipLanes = 1024;

struct CpuProperties {
  int threads = 1;
  int64_t l2_bytes = 1 << 20;  // a core's own cache
  int64_t tile_rows = 1;       // rows of bfloat16 that take as long to multiply as one: 16 with AMX
};

enum class EngineKind { kCpu, kStepwise, kBlas, kTiled, kBlock, kCluster, kGrid, kScan };

// How the CPU engine gives work to threads.
enum class CpuSplit {
  kRows,   // each thread walks time alone, over its own lanes and rows of the batch
  kUnits,  // all threads walk together, each over its own hidden units
};  // (kScan: threads divide rows and units, and are independent)

struct Plan {
  EngineKind engine = EngineKind::kCpu;
  CpuSplit split = CpuSplit::kRows;
  int threads = 1;                   // kUnits: slices; else threads worth waking
  int64_t rows_per_task = 0;         // kRows: of a lane
  PersistentPlan persistent = {};    // kCluster, kGrid
  BlockPlan block = {};              // kBlock
  TiledPlan tiled[kMaxPhases] = {};  // kTiled: of each product of a step
  BlasTiling blas[kMaxPhases] = {};  // kBlas: the same
  const char* reason = "";
};

const char* EngineName(EngineKind);

// Is config.engine the name of one that may run this cell and dtype on this device?
int32_t CheckEngine(const HasteRnnConfig&, const HasteCellInfo&, HasteStatus*);

// Forward and backward are planned separately. Sets `status` and returns its code if config.engine
// names an engine that cannot run this, or if the device is too old.
int32_t PlanRecurrence(const HasteRnnConfig&, const HasteCellInfo&, const CpuProperties&,
                       const CudaProperties&, Plan*, HasteStatus*, bool backward = false);

// One line: cell, engine, sizes and reason; on the CPU also the threads and what they share out, on
// CUDA what a block has and how many there are, and what a step of `tiled` spends most time on.
std::string Describe(const Plan&, const HasteRnnConfig&, const HasteCellInfo&);

}  // namespace haste
