#include "lib/cpu/thread_pool.h"

#include <algorithm>

namespace haste {

ThreadPool& ThreadPool::Shared() {
  static ThreadPool* pool =
      new ThreadPool(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1));
  return *pool;
}

ThreadPool::ThreadPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

void ThreadPool::Schedule(void (*fn)(void*), void* arg) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back({fn, arg});
  }
  wake_.notify_one();
}

void ThreadPool::Run() {
  while (true) {
    Work work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return !queue_.empty(); });
      work = queue_.front();
      queue_.pop_front();
    }
    work.fn(work.arg);
  }
}

}  // namespace haste
