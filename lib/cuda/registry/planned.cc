// Plans of calls on a GPU, each made once.
#include <string.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "lib/cuda/host/context.h"
#include "lib/cuda/host/cublas.h"
#include "lib/cuda/host/device.h"
#include "lib/cuda/registry/engines.h"

namespace haste {
namespace {

// All that a plan depends on. It has no padding, because keys are compared byte by byte.
struct Key {
  ContextKey context;
  const CudaCell* cell;
  int64_t batch, time, lanes, hidden;
  int32_t multiprocessors, backward, dtype, activation, recurrent_activation, training, allow_tf32;
  float recurrent_dropout;
  float zoneout[HASTE_MAX_STATES];
  char engine[16];

  friend bool operator<(const Key& a, const Key& b) { return memcmp(&a, &b, sizeof a) < 0; }
};
static_assert(sizeof(Key) == sizeof(ContextKey) + 5 * 8 + 8 * 4 + HASTE_MAX_STATES * sizeof(float) +
                                 sizeof(Key::engine),
              "padding");

// The cache is cleared when it holds this many plans.
constexpr size_t kMostKept = 4096;

struct Kept {
  std::mutex mutex;
  std::map<Key, PlannedRnn> plans;
};

// The name of config.engine was checked before and is shorter than Key::engine.
Key KeyOf(const HasteRnnConfig& config, const CudaCell& cell, bool backward,
          const CudaProperties& cuda, const ContextKey& context) {
  Key key = {};
  key.context = context;
  key.cell = &cell;
  key.batch = config.batch;
  key.time = config.time;
  key.lanes = config.lanes;
  key.hidden = config.hidden;
  key.multiprocessors = cuda.multiprocessors;
  key.backward = backward;
  key.dtype = config.dtype;
  key.activation = config.activation;
  key.recurrent_activation = config.recurrent_activation;
  key.training = config.training;
  key.allow_tf32 = config.allow_tf32;
  key.recurrent_dropout = config.recurrent_dropout;
  std::copy(std::begin(config.zoneout), std::end(config.zoneout), key.zoneout);
  if (config.engine != nullptr) strncpy(key.engine, config.engine, sizeof key.engine - 1);
  return key;
}

}  // namespace

int32_t PlanCudaRnn(const HasteRnnConfig& config, const CudaCell& cell, bool backward,
                    const HasteExecutor& executor, PlannedRnn* planned, HasteStatus* status) {
  ContextKey context;
  HASTE_TRY(GetStreamProperties(executor, &context, &planned->cuda, status));
  const Key key = KeyOf(config, cell, backward, planned->cuda, context);
  Kept& kept = OfProcess<Kept>();
  {
    std::lock_guard<std::mutex> lock(kept.mutex);
    const auto found = kept.plans.find(key);
    if (found != kept.plans.end()) {
      *planned = found->second;
      return HASTE_OK;
    }
  }
  planned->backward = backward;
  CudaProperties cuda = planned->cuda;
  cuda.has_cublas = true;
  HASTE_TRY(PlanRecurrence(config, cell.info, {}, cuda, &planned->plan, status, backward));
  // cuBLAS is loaded only if the plan would use it. Plans made without it are not cached, so that
  // the next call tries again.
  const bool lacks_cublas = planned->plan.engine == EngineKind::kBlas && !HaveCublas();
  if (lacks_cublas) {
    cuda.has_cublas = false;
    HASTE_TRY(PlanRecurrence(config, cell.info, {}, cuda, &planned->plan, status, backward));
  }
  planned->engine = EngineOf(config, cell, planned->plan);
  if (lacks_cublas) return HASTE_OK;
  std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.plans.size() >= kMostKept) kept.plans.clear();
  kept.plans.emplace(key, *planned);
  return HASTE_OK;
}

}  // namespace haste
