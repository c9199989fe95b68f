// Lockstep gives slices of a walk to helpers that run, and takes them back from those that stop.
// Helpers are stopped by a signal whose handler waits, as the system stops a thread for another.
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "lib/cpu/threads/team.h"
#include "tests/lib/check.h"

namespace haste_test {
namespace {

using Work = std::pair<void (*)(void*), void*>;

std::atomic<bool> stop{false}, stopped{false};

void Stop(int) {
  stopped.store(true);
  while (stop.load()) {
  }
  stopped.store(false);
}

void Rest() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

// Runs what is scheduled on threads of its own, or keeps it.
class Helpers {
 public:
  explicit Helpers(bool run) : run_(run) {}
  ~Helpers() { Join(); }

  HasteExecutor Executor(int threads) {
    HasteExecutor executor = HASTE_INIT(HasteExecutor);
    executor.threads = threads;
    executor.pool = this;
    executor.schedule = [](void* pool, void (*fn)(void*), void* arg) {
      static_cast<Helpers*>(pool)->Schedule({fn, arg});
    };
    return executor;
  }
  void RunKept() {
    for (const Work& work : kept_) work.first(work.second);
    kept_.clear();
  }
  size_t kept() const { return kept_.size(); }
  pthread_t handle(int i) { return threads_[i].native_handle(); }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void Schedule(Work work) {
    if (run_) {
      threads_.emplace_back([work] { work.first(work.second); });
    } else {
      kept_.push_back(work);
    }
  }

  const bool run_;
  std::vector<Work> kept_;
  std::vector<std::thread> threads_;
};

// Which thread ran each slice of each step, and whether all was as promised.
class Record {
 public:
  Record(int64_t preparations, int64_t steps, int slices)
      : slices_(slices), prepared_(preparations), runs_(steps * slices), finished_(steps + 1) {}

  void Prepare(int64_t i) { ++prepared_[i]; }
  void Begin(int64_t step, int slice) {
    for (const auto& count : prepared_) early_ = early_ || count.load() != 1;
    early_ = early_ || (step > 0 && finished_[step - 1].load() != slices_);
    ++runs_[step * slices_ + slice];
  }
  void End(int64_t step) { ++finished_[step]; }
  int64_t finished(int64_t step) const { return finished_[step].load(); }

  void Check(const char* name) const {
    int64_t wrong = 0;
    for (const auto& count : runs_) wrong += count.load() != 1;
    for (const auto& count : prepared_) wrong += count.load() != 1;
    EXPECT_TRUE(wrong == 0, "%s: %lld tasks ran twice or never", name,
                static_cast<long long>(wrong));
    EXPECT_TRUE(!early_, "%s: a step began before all that comes before it was done", name);
  }

 private:
  const int slices_;
  std::vector<std::atomic<int>> prepared_, runs_, finished_;
  std::atomic<bool> early_{false};
};

// No helper begins before the walk is over: the caller does everything, and later helpers find
// nothing to do.
void TestLateHelpers() {
  Helpers helpers(/*run=*/false);
  Record record(7, 50, 3);
  const std::thread::id caller = std::this_thread::get_id();
  bool others = false;
  {
    const std::function<void(int64_t, int)> task = [&](int64_t step, int slice) {
      record.Begin(step, slice);
      others = others || std::this_thread::get_id() != caller;
      record.End(step);
    };
    haste::Lockstep(helpers.Executor(3), 7, [&](int64_t i) { record.Prepare(i); }, 50, 3, task);
  }
  EXPECT_TRUE(helpers.kept() == 2, "%zu helpers", helpers.kept());
  helpers.RunKept();
  EXPECT_TRUE(!others, "a task on another thread");
  record.Check("late helpers");
}

// A pool that runs what is scheduled at once, on the caller's thread, as one does whose queue is
// full.
void TestFullPool() {
  HasteExecutor executor = HASTE_INIT(HasteExecutor);
  executor.threads = 3;
  executor.schedule = [](void*, void (*fn)(void*), void* arg) { fn(arg); };
  Record record(7, 50, 3);
  haste::Lockstep(
      executor, 7, [&](int64_t i) { record.Prepare(i); }, 50, 3,
      [&](int64_t step, int slice) {
        record.Begin(step, slice);
        record.End(step);
      });
  record.Check("full pool");
}

// A helper that arrives while the caller is in its own slice of the first step has a part in that
// step.
void TestFirstStep() {
  constexpr int kMostRests = 200000;
  Helpers helpers(/*run=*/true);
  Record record(0, 3, 2);
  std::atomic<bool> helped{false};
  const std::thread::id caller = std::this_thread::get_id();
  const auto task = [&](int64_t step, int slice) {
    record.Begin(step, slice);
    if (step == 0 && slice == 1 && std::this_thread::get_id() != caller) helped = true;
    for (int i = 0; step == 0 && slice == 0 && !helped && i < kMostRests; ++i) Rest();
    record.End(step);
  };
  haste::Lockstep(helpers.Executor(2), 0, [](int64_t) {}, 3, 2, task);
  helpers.Join();
  EXPECT_TRUE(helped, "the caller was alone in the first step");
  record.Check("first step");
}

// A helper gets a slice, is stopped between two steps, and loses the slice to the caller. When it
// runs again it gets the slice back.
void TestTakeBack() {
  constexpr int64_t kSteps = 200000;  // of 50 µs while one waits for a helper
  constexpr int64_t kAlone = 5;       // steps while the helper is stopped
  enum class Now { kWaitsForHelper, kHelperStopped, kWaitsAgain, kDone } now = Now::kWaitsForHelper;
  Helpers helpers(/*run=*/true);
  Record record(0, kSteps, 2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int64_t> of_helper{-1};  // the last step of slice 1 that the helper ran
  int64_t taken_at = -1, taken_back = 0;
  const auto task = [&](int64_t step, int slice) {
    record.Begin(step, slice);
    const bool helps = std::this_thread::get_id() != caller;
    if (helps) of_helper.store(step);
    if (!helps && slice == 1 && now == Now::kHelperStopped) ++taken_back;
    if (slice == 0) {
      if (now == Now::kWaitsForHelper) {
        Rest();
        if (of_helper.load() == step - 1 && step > 0) {
          // Slice 1 of this step is the helper's too: stop it after that.
          while (record.finished(step) < 1) Rest();
          stop = true;
          pthread_kill(helpers.handle(0), SIGUSR1);
          while (!stopped) Rest();
          taken_at = step;
          now = Now::kHelperStopped;
        }
      } else if (now == Now::kHelperStopped && step == taken_at + kAlone) {
        stop = false;
        now = Now::kWaitsAgain;
      } else if (now == Now::kWaitsAgain) {
        Rest();
        if (of_helper.load() > taken_at + kAlone) now = Now::kDone;
      }
    }
    record.End(step);
  };
  haste::Lockstep(helpers.Executor(2), 0, [](int64_t) {}, kSteps, 2, task);
  stop = false;
  helpers.Join();
  EXPECT_TRUE(taken_at > 0, "the helper never got a slice");
  EXPECT_TRUE(taken_back >= kAlone - 1, "%lld of %lld steps were taken back",
              static_cast<long long>(taken_back), static_cast<long long>(kAlone));
  EXPECT_TRUE(now == Now::kDone, "the helper did not get the slice again");
  record.Check("take back");
}

// Helpers that are stopped at any time, for short, also within a step.
void TestStoppedAtRandom() {
  constexpr int64_t kSteps = 20000;
  constexpr int kSlices = 3;
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  Helpers helpers(/*run=*/true);
  Record record(11, kSteps, kSlices);
  std::mt19937 random(seed);
  const auto task = [&](int64_t step, int slice) {
    record.Begin(step, slice);
    if (slice == 0 && step % 16 == 0) {
      const bool stops = random() % 2 == 0;
      stop = stops;
      if (stops) pthread_kill(helpers.handle(random() % (kSlices - 1)), SIGUSR1);
    } else if (slice == 0 && step % 16 == 8) {
      stop = false;
    }
    record.End(step);
  };
  // A helper that stops within a step is waited for: another thread lets it go on.
  std::atomic<bool> over{false};
  std::thread releases([&] {
    while (!over) {
      Rest();
      stop = false;
    }
  });
  haste::Lockstep(
      helpers.Executor(kSlices), 11, [&](int64_t i) { record.Prepare(i); }, kSteps, kSlices, task);
  over = true;
  releases.join();
  stop = false;
  helpers.Join();
  record.Check("stopped at random");
}

}  // namespace
}  // namespace haste_test

int main() {
  struct sigaction action = {};
  action.sa_handler = haste_test::Stop;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  haste_test::TestLateHelpers();
  haste_test::TestFullPool();
  haste_test::TestFirstStep();
  haste_test::TestTakeBack();
  haste_test::TestStoppedAtRandom();
  return haste_test::Report("lockstep_test");
}
