#include "lib/cpu/threads/team.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "lib/cpu/threads/thread_pool.h"

namespace haste {
namespace {

// Waits are short while all threads run, so spin first, and yield if a thread seems not to run.
class Spinner {
 public:
  void Wait() {
    if (++spins_ < kSpins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      __asm__ volatile("yield");
#endif
    } else {
      std::this_thread::yield();
    }
  }

 private:
  static constexpr int kSpins = 4000;
  int spins_ = 0;
};

void Schedule(const HasteExecutor& executor, std::function<void()> work) {
  auto* boxed = new std::function<void()>(std::move(work));
  const auto run = [](void* arg) {
    std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(arg));
    (*owned)();
  };
  if (executor.schedule != nullptr) {
    executor.schedule(executor.pool, run, boxed);
  } else {
    ThreadPool::Shared().Schedule(run, boxed);
  }
}

// Shared with helpers by reference count: one may wake up after the call has returned.
struct ForState {
  explicit ForState(int64_t n) : count(n) {}
  const int64_t count;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};

  // `task` belongs to the caller and dies once `done` equals `count`: used only after a claim.
  void Work(const std::function<void(int64_t)>* task) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      (*task)(i);
      done.fetch_add(1, std::memory_order_release);
    }
  }
};

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A helper's place in a lockstep walk.
struct alignas(64) Seat {
  std::atomic<bool> taken{false};      // the helper has arrived
  std::atomic<int64_t> first{kNever};  // first step that the leader leaves to it
  std::atomic<int64_t> done{-1};       // last step that it finished
};

struct StepState {
  explicit StepState(int slices) : seats(slices) {}
  std::vector<Seat> seats;
  alignas(64) std::atomic<int64_t> step{-1};
  std::atomic<bool> over{false};
};

}  // namespace

int TeamThreads(const HasteExecutor& executor) {
  if (executor.threads > 0) return executor.threads;
  // Cached, because it is a system call and every call of the library needs it.
  static const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return cores;
}

void ParallelFor(const HasteExecutor& executor, int64_t count,
                 const std::function<void(int64_t)>& task) {
  const int64_t helpers = std::min<int64_t>(TeamThreads(executor), count) - 1;
  if (helpers <= 0) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  auto state = std::make_shared<ForState>(count);
  for (int64_t h = 0; h < helpers; ++h) {
    Schedule(executor, [state, &task] { state->Work(&task); });
  }
  state->Work(&task);
  Spinner spinner;
  while (state->done.load(std::memory_order_acquire) < count) spinner.Wait();
}

void Lockstep(const HasteExecutor& executor, int64_t steps, int slices,
              const std::function<void(int64_t, int)>& task) {
  if (slices == 1 || steps == 0) {
    for (int64_t s = 0; s < steps; ++s) {
      for (int i = 0; i < slices; ++i) task(s, i);
    }
    return;
  }
  auto state = std::make_shared<StepState>(slices);
  for (int slice = 1; slice < slices; ++slice) {
    Schedule(executor, [state, slice, &task] {
      Seat& seat = state->seats[slice];
      seat.taken.store(true, std::memory_order_release);
      int64_t last = -1;
      while (true) {
        Spinner spinner;
        int64_t step;
        while ((step = state->step.load(std::memory_order_acquire)) == last) {
          if (state->over.load(std::memory_order_acquire)) return;
          spinner.Wait();
        }
        last = step;
        // Too late for this step: the leader does it. `first` is set before its step is published.
        if (step < seat.first.load(std::memory_order_acquire)) continue;
        task(step, slice);
        seat.done.store(step, std::memory_order_release);
      }
    });
  }
  for (int64_t step = 0; step < steps; ++step) {
    for (Seat& seat : state->seats) {
      if (seat.first == kNever && seat.taken.load(std::memory_order_acquire)) seat.first = step;
    }
    state->step.store(step, std::memory_order_release);
    for (int slice = 0; slice < slices; ++slice) {
      if (state->seats[slice].first == kNever) task(step, slice);
    }
    for (Seat& seat : state->seats) {
      if (seat.first == kNever) continue;
      Spinner spinner;
      while (seat.done.load(std::memory_order_acquire) != step) spinner.Wait();
    }
  }
  state->over.store(true, std::memory_order_release);
}

}  // namespace haste
