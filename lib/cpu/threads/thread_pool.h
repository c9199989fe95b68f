// Threads for programs that give none: started at first use, kept until the process ends. They look
// for work for a while before they sleep. A forked child inherits no threads and starts its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace haste {

class ThreadPool {
 public:
  // Never to be destroyed: its threads have no end.
  explicit ThreadPool(int threads);
  // One helper for each usable processor except the caller's. Never destroyed, so the exit order
  // does not matter.
  static ThreadPool& Shared();

  void Schedule(void (*fn)(void*), void* arg);

 private:
  void Run();
  using Clock = std::chrono::steady_clock;
  // Waits for work until `end`. Whether there is some, which is then this thread's to take.
  bool Claim(Clock::time_point end);

  struct Work {
    void (*fn)(void*);
    void* arg;
  };
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> queue_;
  int spinning_ = 0;  // threads that look for work, guarded by mutex_
  // Work in the queue that none of these has claimed. It may be off for a moment.
  std::atomic<int> unclaimed_{0};
  std::vector<std::thread> threads_;
};

}  // namespace haste
