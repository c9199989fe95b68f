// Threads for programs that give none: started at first use, kept until the process ends. They look
// for work for a while before they sleep. A forked child inherits no threads and starts its own.
#pragma once

#include <atomic>
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
  // Returns when there is work, or after some time without.
  void Spin() const;

  struct Work {
    void (*fn)(void*);
    void* arg;
  };
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> queue_;
  int spinning_ = 0;            // threads in Spin, guarded by mutex_
  std::atomic<int> queued_{0};  // the queue's size for these; may be off for a moment
  std::vector<std::thread> threads_;
};

}  // namespace haste
