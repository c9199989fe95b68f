// Threads for programs that give none: started at first use, kept until the process ends. A forked
// child inherits no threads and starts its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace haste {

class ThreadPool {
 public:
  // One helper for each core except the caller's. Never destroyed, so the exit order does not
  // matter.
  static ThreadPool& Shared();

  void Schedule(void (*fn)(void*), void* arg);

 private:
  explicit ThreadPool(int threads);
  void Run();

  struct Work {
    void (*fn)(void*);
    void* arg;
  };
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace haste
