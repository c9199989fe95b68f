// Repeated launches as a CUDA graph: recorded the second time they come, then replayed. A replay
// costs the host one launch.
#pragma once

#include <functional>
#include <string>
#include <type_traits>

#include "lib/base/status.h"

namespace haste {

class Recorded {
 public:
  // Launches on the given stream, and does nothing else there.
  using Record = std::function<int32_t(const HasteExecutor&)>;

  Recorded() = default;
  ~Recorded();
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  // key: the bytes of everything that the launches depend on. False if there is no graph: the
  // launches are new or cannot be recorded, or the caller's stream is being captured.
  bool Find(const std::string& key, const HasteExecutor&, const Record&);

  // Call after Find has returned true.
  int32_t Replay(const HasteExecutor&, HasteStatus*) const;

  // Bytes of a key. Padding may differ between equal objects, which costs only one more recording.
  template <class T>
  static std::string BytesOf(const T& object) {
    static_assert(std::is_trivially_copyable_v<T>, "it is its bytes");
    return std::string(reinterpret_cast<const char*>(&object), sizeof object);
  }

 private:
  struct Graph;
  friend class RecordedGraphs;
  Graph* graph_ = nullptr;
};

}  // namespace haste
