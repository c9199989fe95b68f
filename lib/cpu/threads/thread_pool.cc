#include "lib/cpu/threads/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <system_error>

#include "lib/cpu/threads/pause.h"
#include "lib/cpu/threads/processor.h"

namespace haste {

namespace {

std::atomic<ThreadPool*> shared{nullptr};
// Guards the creation of `shared`. It is unlocked in a forked child.
std::mutex making;

void ForgetThreadsOfTheParent() {
  // Never freed: its mutex may be held by a thread of the parent, which the child does not have.
  shared.store(nullptr, std::memory_order_relaxed);
  making.unlock();
}

}  // namespace

ThreadPool& ThreadPool::Shared() {
  if (ThreadPool* pool = shared.load(std::memory_order_acquire)) return *pool;
  static const int registered =
      pthread_atfork([] { making.lock(); }, [] { making.unlock(); }, ForgetThreadsOfTheParent);
  (void)registered;  // fails only without memory; then a child runs on the calling thread alone
  std::lock_guard<std::mutex> lock(making);
  ThreadPool* pool = shared.load(std::memory_order_relaxed);
  if (pool == nullptr) {
    pool = new ThreadPool(std::max(1, UsableProcessors() - 1));
    shared.store(pool, std::memory_order_release);
  }
  return *pool;
}

ThreadPool::ThreadPool(int threads) {
  for (int i = 0; i < threads; ++i) {
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {  // a limit of the system: go on with the threads so far
      if (threads_.empty()) throw;
      break;
    }
  }
}

void ThreadPool::Schedule(void (*fn)(void*), void* arg) {
  bool wakes;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back({fn, arg});
    wakes = static_cast<int>(queue_.size()) > spinning_;
  }
  // After the mutex is free, so that a thread that spins does not sleep for it.
  unclaimed_.fetch_add(1, std::memory_order_relaxed);
  if (wakes) wake_.notify_one();
}

bool ThreadPool::Claim(Clock::time_point end) {
  constexpr int kLooksPerClock = 64;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      int some = unclaimed_.load(std::memory_order_relaxed);
      if (some > 0 && unclaimed_.compare_exchange_strong(some, some - 1)) return true;
      Pause();
    }
  } while (Clock::now() < end);
  return false;
}

void ThreadPool::Run() {
  // To wake a thread takes 10 to 20 µs on a virtual machine, longer than some layers. A program
  // calls one layer after the other, or one step after the other, so the next call is likely near.
  constexpr std::chrono::microseconds kSpins(200);
  UseAllProcessors();
  while (true) {
    Work work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      bool claimed = false;
      ++spinning_;
      for (const auto end = Clock::now() + kSpins; queue_.empty() && Clock::now() < end;) {
        lock.unlock();
        claimed = Claim(end);
        lock.lock();
        if (!claimed || !queue_.empty()) continue;
        unclaimed_.fetch_add(1, std::memory_order_relaxed);  // a thread that slept was faster
        claimed = false;
      }
      --spinning_;
      wake_.wait(lock, [this] { return !queue_.empty(); });
      work = queue_.front();
      queue_.pop_front();
      if (!claimed) unclaimed_.fetch_sub(1, std::memory_order_relaxed);
    }
    work.fn(work.arg);
  }
}

}  // namespace haste
