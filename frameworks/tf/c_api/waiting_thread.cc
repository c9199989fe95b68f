#include "frameworks/tf/c_api/waiting_thread.h"

#include <sched.h>
#include <stdint.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace haste {
namespace tf {
namespace {

struct Task {
  void* pool;
  void (*run)(void*);
  void* arg;
  std::thread::id caller;
};

// Where a thread waits. After a fork the child has a copy of this, but not the thread. A task that
// it offers is never taken: the caller does what no helper takes. After that no thread of the child
// waits.
class Place {
 public:
  // Gives the task to the thread that waits, if it is one of the task's pool.
  bool Offer(const Task& task) {
    uintptr_t state = OfPool(task);
    if (state_.load(std::memory_order_relaxed) != state ||
        !state_.compare_exchange_strong(state, kTaken, std::memory_order_acquire)) {
      return false;
    }
    // The caller may have taken the processor of the thread, which would begin when the caller
    // waits. If it may run now, it moves to another processor (lib/cpu/threads/team.h).
    const bool in_the_way = processor_.load(std::memory_order_relaxed) == sched_getcpu();
    task_ = task;
    state_.store(kOffered, std::memory_order_release);
    if (in_the_way) std::this_thread::yield();
    return true;
  }

  // Waits for the next task of task->pool, for some time. Returns whether *task is one.
  bool Wait(Task* task) {
    const uintptr_t waits = OfPool(*task);
    uintptr_t state = kFree;
    if (!state_.compare_exchange_strong(state, waits, std::memory_order_relaxed)) return false;
    for (const auto end = Clock::now() + kTime;; std::this_thread::yield()) {
      processor_.store(sched_getcpu(), std::memory_order_relaxed);
      if (state_.load(std::memory_order_acquire) == kOffered) {
        *task = task_;
        state_.store(kFree, std::memory_order_release);
        return true;
      }
      state = waits;
      if (Clock::now() >= end && state_.compare_exchange_strong(state, kFree)) return false;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  // As long as the library's own threads look for work (lib/cpu/threads/thread_pool.cc).
  static constexpr std::chrono::microseconds kTime{200};
  // Values of state_, beside the pool whose thread waits.
  static constexpr uintptr_t kFree = 0, kTaken = 1, kOffered = 2;
  static uintptr_t OfPool(const Task& task) { return reinterpret_cast<uintptr_t>(task.pool); }

  std::atomic<uintptr_t> state_{kFree};
  std::atomic<int> processor_{-1};  // of the thread that waits
  Task task_ = {};                  // of who has set kTaken, until the thread sets kFree
};

Place place;

void RunAndWait(void* arg) {
  Task task = *std::unique_ptr<Task>(static_cast<Task*>(arg));
  // A pool whose queue is full runs this at once, and the caller has work to do.
  const bool is_caller = task.caller == std::this_thread::get_id();
  do {
    task.run(task.arg);
  } while (!is_caller && place.Wait(&task));
}

}  // namespace

void ScheduleOnWaitingThread(ScheduleFunction schedule, void* pool, void (*run)(void*), void* arg) {
  const Task task = {pool, run, arg, std::this_thread::get_id()};
  if (!place.Offer(task)) schedule(pool, RunAndWait, new Task(task));
}

}  // namespace tf
}  // namespace haste
