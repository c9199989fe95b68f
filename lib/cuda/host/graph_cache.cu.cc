#include "lib/cuda/host/graph_cache.h"

#include <cuda_runtime.h>

#include <list>
#include <map>
#include <mutex>

#include "lib/cuda/host/context.h"
#include "lib/cuda/host/error.h"
#include "lib/cuda/host/relaxed_capture.h"

namespace haste {

struct Recorded::Graph {
  std::string key;
  cudaGraphExec_t graph = nullptr;

  ~Graph() {
    if (graph != nullptr) cudaGraphExecDestroy(graph);  // CUDA defers it if the graph still runs
    cudaGetLastError();
  }
};

// The process's graphs that no call is replaying, the last used first, and the keys seen so far:
// only launches that come a second time are recorded.
class RecordedGraphs {
 public:
  Recorded::Graph* Take(const std::string& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if ((*at)->key != key) continue;
      Recorded::Graph* graph = *at;
      free_.erase(at);
      return graph;
    }
    return nullptr;
  }

  void Give(Recorded::Graph* graph) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_front(graph);
    if (free_.size() <= kMost) return;
    // If more graphs alternate than are kept, recording them again and again would cost more than
    // it saves. So the one that is dropped is not recorded again.
    seen_[HashOf(free_.back()->key)] = false;
    delete free_.back();
    free_.pop_back();
  }

  // Whether the key was seen before and recording it did not fail.
  bool IsWorthIt(const std::string& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (seen_.size() > kMostSeen) seen_.clear();
    const auto [at, is_new] = seen_.emplace(HashOf(key), true);
    return !is_new && at->second;
  }
  void Refuse(const std::string& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    seen_[HashOf(key)] = false;
  }

 private:
  static constexpr size_t kMost = 256, kMostSeen = 4096;
  static size_t HashOf(const std::string& key) { return std::hash<std::string>()(key); }

  std::mutex mutex_;
  std::list<Recorded::Graph*> free_;
  std::map<size_t, bool> seen_;
};

namespace {

// What `record` launches, ready to be replayed on the current device; nullptr if that failed.
cudaGraphExec_t Instantiate(const HasteExecutor& executor, const Recorded::Record& record) {
  const RelaxedCapture relaxed;
  cudaStream_t stream;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return nullptr;
  cudaGraphExec_t result = nullptr;
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess) {
    HasteExecutor there = executor;
    there.stream = stream;
    const bool recorded = record(there) == HASTE_OK;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && recorded &&
        cudaGraphInstantiate(&result, graph, 0) != cudaSuccess) {
      result = nullptr;
    }
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);
  cudaGetLastError();  // on failure the caller launches directly, which reports its own errors
  return result;
}

}  // namespace

bool Recorded::Find(const std::string& key, const HasteExecutor& executor, const Record& record) {
  ContextKey context;
  HasteStatus ignored = {};
  if (IsCaptured(executor) || GetContext(&context, &ignored) != HASTE_OK) return false;
  RecordedGraphs& graphs = OfProcess<RecordedGraphs>();
  const std::string here = BytesOf(context) + key;
  graph_ = graphs.Take(here);
  if (graph_ != nullptr) return true;
  if (!graphs.IsWorthIt(here)) return false;
  Graph* const made = new Graph;
  made->key = here;
  made->graph = Instantiate(executor, record);
  if (made->graph == nullptr) {
    delete made;
    graphs.Refuse(here);
    return false;
  }
  graph_ = made;
  return true;
}

int32_t Recorded::Replay(const HasteExecutor& executor, HasteStatus* status) const {
  return HASTE_CUDA_STATUS(
      cudaGraphLaunch(graph_->graph, static_cast<cudaStream_t>(executor.stream)), status);
}

Recorded::~Recorded() {
  if (graph_ != nullptr) OfProcess<RecordedGraphs>().Give(graph_);
}

}  // namespace haste
