#include "lib/cpu/threads/team.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "lib/cpu/threads/float_mode.h"
#include "lib/cpu/threads/pause.h"
#include "lib/cpu/threads/processor.h"
#include "lib/cpu/threads/thread_pool.h"

namespace haste {
namespace {

// Waits are short while all threads run, so spin first, and yield if a thread seems not to run.
class Spinner {
 public:
  // Returns false from the time on when it yields.
  bool Wait() {
    const bool spins = ++spins_ < kSpins;
    if (spins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
    return spins;
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

// Keeps helpers off the caller's processor. A virtual machine's scheduler often wakes them there,
// because to it a processor that sleeps looks taken. They would then run when the caller has used
// up its time, after milliseconds, and take turns with it for milliseconds more.
class CallersProcessor {
 public:
  explicit CallersProcessor(int64_t helpers) : helpers_(helpers) {}

  // Of the caller.
  void Update() { processor_.store(CurrentProcessor(), std::memory_order_relaxed); }
  // The same, once it has something done: lets helpers run that wait for its processor.
  void MakeWay() const {
    if (arrived_.load(std::memory_order_relaxed) < helpers_) std::this_thread::yield();
  }
  // Of a helper, as it begins.
  void Arrive() { arrived_.fetch_add(1, std::memory_order_relaxed); }
  // The same, before work, and where it waits for long.
  void Leave() const {
    const int processor = processor_.load(std::memory_order_relaxed);
    if (processor >= 0 && CurrentProcessor() == processor) LeaveProcessor(processor);
  }

 private:
  const int64_t helpers_;
  std::atomic<int64_t> arrived_{0};
  std::atomic<int> processor_{CurrentProcessor()};
};

// The first exception of any thread of a call. The caller throws it when no helper is in a task.
class FirstError {
 public:
  // Calls run(), unless there was an exception: then the results are lost.
  template <class Run>
  void Try(const Run& run) noexcept {
    if (any_.load(std::memory_order_relaxed)) return;
    try {
      run();
    } catch (...) {
      if (!any_.exchange(true)) error_ = std::current_exception();
    }
  }
  void Rethrow() const {
    if (any_.load(std::memory_order_relaxed)) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> any_{false};
  std::exception_ptr error_;
};

// Shared with helpers by reference count: one may wake up after the call has returned.
struct ForState {
  ForState(int64_t n, int64_t helpers) : count(n), callers(helpers) {}
  const int64_t count;
  CallersProcessor callers;
  const FloatMode mode;  // the caller's
  FirstError error;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};

  // What a helper does. `task` belongs to the caller and dies once `done` equals `count`: used only
  // after a claim.
  void Help(const std::function<void(int64_t)>& task) {
    const FloatMode::Scope scope(mode);
    callers.Arrive();
    if (next.load(std::memory_order_relaxed) < count) callers.Leave();
    while (WorkOnOne(task)) {
    }
  }
  // What the caller does.
  void Lead(const std::function<void(int64_t)>& task) {
    if (WorkOnOne(task)) callers.MakeWay();
    while (WorkOnOne(task)) {
    }
    Spinner spinner;
    while (done.load(std::memory_order_acquire) < count) spinner.Wait();
  }

 private:
  bool WorkOnOne(const std::function<void(int64_t)>& task) {
    const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
    if (i >= count) return false;
    error.Try([&] { task(i); });
    done.fetch_add(1, std::memory_order_release);
    return true;
  }
};

// Values of Seat::next besides a step.
constexpr int64_t kCallers = -1;  // the slice is the caller's
constexpr int64_t kBusy = -2;     // the helper is in a step

// A slice of a lockstep walk. Each value has cache lines of its own; two, because the processor may
// fetch lines in pairs.
struct Seat {
  // Last step that is finished. All other threads poll it.
  alignas(128) std::atomic<int64_t> done{-1};
  // The step that the helper may begin. The helper takes a step, and the caller takes the slice
  // back, by exchanging this value: exactly one of them succeeds.
  alignas(128) std::atomic<int64_t> next{kCallers};
  // Counts while the helper waits for the slice: it runs, and not on the caller's processor.
  std::atomic<int64_t> beats{0};
};

// Shared with helpers by reference count, as ForState.
struct StepState {
  StepState(int64_t preparations, int64_t count, int slices)
      : prepared(preparations, slices - 1), steps(count), seats(slices), beats(slices, 0) {}
  ForState prepared;
  const int64_t steps;
  std::vector<Seat> seats;
  std::vector<int64_t> beats;  // the caller's: as the last step began; kTheirs: the helper's slice
  std::atomic<bool> over{false};

  // Each helper waits for all others itself, so that their last steps reach it in one hop: a thread
  // that collects and announces them would take two.
  void WaitForOthers(int64_t step, int own) {
    for (int i = 0; i < static_cast<int>(seats.size()); ++i) {
      Spinner spinner;
      while (i != own && seats[i].done.load(std::memory_order_acquire) < step) {
        if (!spinner.Wait()) prepared.callers.Leave();
      }
    }
  }

  // What a helper does. `task` belongs to the caller: it is used only within a step that was taken.
  void Help(int slice, const std::function<void(int64_t, int)>& task) {
    Seat& seat = seats[slice];
    const FloatMode::Scope scope(prepared.mode);
    Spinner spinner;
    if (!over.load(std::memory_order_acquire)) prepared.callers.Leave();
    while (!over.load(std::memory_order_acquire)) {
      int64_t step = seat.next.load(std::memory_order_acquire);
      if (step == kCallers) {
        seat.beats.fetch_add(1, std::memory_order_relaxed);
        if (!spinner.Wait()) prepared.callers.Leave();
        continue;
      }
      WaitForOthers(step - 1, slice);
      if (!seat.next.compare_exchange_strong(step, kBusy, std::memory_order_acquire)) continue;
      prepared.error.Try([&] { task(step, slice); });
      if (step + 1 < steps) seat.next.store(step + 1, std::memory_order_relaxed);
      seat.done.store(step, std::memory_order_release);
      if (step + 1 == steps) return;
    }
  }

  // What the caller does: slice 0, and those whose helpers do not run. It gives a slice to a helper
  // that shows that it runs, and takes it back if the helper does not begin a step in time. The
  // first step may last as long as several: it multiplies the input of steps to come. So it is open
  // to helpers that arrive while the caller is in its own slice, and what is left is taken back
  // then.
  void Lead(const std::function<void(int64_t, int)>& task) {
    const int slices = static_cast<int>(seats.size());
    for (int64_t step = 0; step < steps; ++step) {
      for (int i = 1; i < slices; ++i) {
        if (beats[i] == kTheirs) continue;
        const int64_t now = seats[i].beats.load(std::memory_order_relaxed);
        const bool runs = step == 0 || now != beats[i];
        beats[i] = runs ? kTheirs : now;
        if (runs) seats[i].next.store(step, std::memory_order_release);
      }
      for (int i = 0; i < slices; ++i) {
        if (beats[i] == kTheirs) continue;
        prepared.error.Try([&] { task(step, i); });
        seats[i].done.store(step, std::memory_order_release);
      }
      if (step == 0) prepared.callers.MakeWay();
      for (int i = 1; i < slices; ++i) {
        Spinner spinner;
        bool waits = step > 0;
        while (beats[i] == kTheirs && seats[i].done.load(std::memory_order_acquire) < step) {
          int64_t next = step;
          const bool spins = std::exchange(waits, true) && spinner.Wait();
          if (spins || !seats[i].next.compare_exchange_strong(next, kCallers)) continue;
          prepared.callers.Update();
          beats[i] = seats[i].beats.load(std::memory_order_relaxed);
          prepared.error.Try([&] { task(step, i); });
          seats[i].done.store(step, std::memory_order_release);
        }
      }
    }
    over.store(true, std::memory_order_release);
  }

 private:
  static constexpr int64_t kTheirs = -1;
};

}  // namespace

int TeamThreads(const HasteExecutor& executor) {
  return executor.threads > 0 ? executor.threads : UsableProcessors();
}

void ParallelFor(const HasteExecutor& executor, int64_t count,
                 const std::function<void(int64_t)>& task) {
  const int64_t helpers = std::min<int64_t>(TeamThreads(executor), count) - 1;
  if (helpers <= 0) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  auto state = std::make_shared<ForState>(count, helpers);
  state->error.Try([&] {
    for (int64_t h = 0; h < helpers; ++h) {
      Schedule(executor, [state, &task] { state->Help(task); });
    }
  });
  state->Lead(task);
  state->error.Rethrow();
}

void Lockstep(const HasteExecutor& executor, int64_t preparations,
              const std::function<void(int64_t)>& prepare, int64_t steps, int slices,
              const std::function<void(int64_t, int)>& task) {
  const auto state = std::make_shared<StepState>(preparations, steps, slices);
  const std::thread::id caller = std::this_thread::get_id();
  state->prepared.error.Try([&] {
    for (int slice = 1; slice < slices; ++slice) {
      Schedule(executor, [state, slice, caller, &prepare, &task] {
        // A pool whose queue is full runs this at once. The caller cannot help itself.
        if (std::this_thread::get_id() == caller) return;
        state->prepared.Help(prepare);
        state->Help(slice, task);
      });
    }
  });
  state->prepared.Lead(prepare);
  state->Lead(task);
  state->prepared.error.Rethrow();
}

}  // namespace haste
