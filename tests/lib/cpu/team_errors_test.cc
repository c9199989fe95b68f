// What a task or a pool throws, on any thread, reaches the caller, and when it does no helper runs
// a task any more. Helpers compute in the caller's floating-point mode.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "lib/cpu/threads/team.h"
#include "tests/lib/check.h"

namespace haste_test {
namespace {

// A thread begins with the mode of the one that has started it.
void HasModeOfItsOwn() {
#if defined(__x86_64__)
  _mm_setcsr(0x1F80);  // as a process begins
#endif
}

// A thread for each task that is scheduled, but the one with the number `refused`.
class Pool {
 public:
  explicit Pool(int refused = -1) : refused_(refused) {}
  ~Pool() {
    for (std::thread& thread : threads_) thread.join();
  }
  HasteExecutor Executor() {
    HasteExecutor executor = HASTE_INIT(HasteExecutor);
    executor.threads = 3;
    executor.pool = this;
    executor.schedule = [](void* self, void (*run)(void*), void* arg) {
      auto& pool = *static_cast<Pool*>(self);
      if (static_cast<int>(pool.threads_.size()) == pool.refused_) {
        throw std::runtime_error("refused");
      }
      pool.threads_.emplace_back([run, arg] {
        HasModeOfItsOwn();
        run(arg);
      });
    };
    return executor;
  }

 private:
  const int refused_;
  std::vector<std::thread> threads_;
};

const std::thread::id kMain = std::this_thread::get_id();
bool OnMain() { return std::this_thread::get_id() == kMain; }

enum class Who { kCaller, kHelper };

// A task that throws once on one of these, after some time in which others begin.
class Task {
 public:
  explicit Task(Who who) : who_(who) {}
  void operator()() {
    ++running_;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool throws = OnMain() == (who_ == Who::kCaller);
    --running_;
    if (throws) throw std::runtime_error("task");
  }
  int running() const { return running_; }

 private:
  const Who who_;
  std::atomic<int> running_{0};
};

template <class Run>
void ExpectThrown(const char* text, const Task& task, const Run& run) {
  std::string thrown;
  try {
    run();
  } catch (const std::runtime_error& error) {
    thrown = error.what();
  }
  EXPECT_TRUE(thrown == text, "'%s' in place of '%s'", thrown.c_str(), text);
  EXPECT_TRUE(task.running() == 0, "%d tasks still run", task.running());
}

void ParallelForThrows() {
  for (Who who : {Who::kCaller, Who::kHelper}) {
    Task task(who);
    Pool pool;
    ExpectThrown("task", task,
                 [&] { haste::ParallelFor(pool.Executor(), 50, [&](int64_t) { task(); }); });
  }
  Task task(Who::kCaller);
  Pool pool(/*refused=*/1);
  ExpectThrown("refused", task,
               [&] { haste::ParallelFor(pool.Executor(), 50, [&](int64_t) { task(); }); });
}

// The destructor of the pool waits for helpers that do not end.
void LockstepThrows() {
  const auto nothing = [](int64_t) {};
  for (Who who : {Who::kCaller, Who::kHelper}) {
    Task task(who);
    Pool pool;
    ExpectThrown("task", task, [&] {
      haste::Lockstep(pool.Executor(), 5, nothing, 50, 3, [&](int64_t, int) { task(); });
    });
  }
  Task task(Who::kCaller);
  {
    Pool pool;
    ExpectThrown("task", task, [&] {
      haste::Lockstep(pool.Executor(), 5, [&](int64_t) { task(); }, 50, 3, [&](int64_t, int) {});
    });
  }
  Pool pool(/*refused=*/1);
  ExpectThrown("refused", task, [&] {
    haste::Lockstep(pool.Executor(), 5, nothing, 50, 3, [&](int64_t, int) { task(); });
  });
}

#if defined(__x86_64__)
void HelpersHaveTheCallersMode() {
  constexpr unsigned kFlush = 0x8040;  // results and operands
  const unsigned before = _mm_getcsr();
  for (bool flush : {false, true}) {
    std::atomic<int> others{0}, helped{0};
    const auto look = [&] {
      helped += !OnMain();
      others += ((_mm_getcsr() & kFlush) != 0) != flush;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    Pool pool;
    const HasteExecutor executor = pool.Executor();
    _mm_setcsr(flush ? before | kFlush : before & ~kFlush);
    haste::ParallelFor(executor, 50, [&](int64_t) { look(); });
    haste::Lockstep(executor, 0, [](int64_t) {}, 50, 3, [&](int64_t, int) { look(); });
    _mm_setcsr(before);
    EXPECT_TRUE(helped > 0, "no helper ran");
    EXPECT_TRUE(others == 0, "flush %d: %d tasks in another mode", flush, others.load());
  }
}
#else
void HelpersHaveTheCallersMode() {}
#endif

}  // namespace
}  // namespace haste_test

int main() {
  haste_test::ParallelForThrows();
  haste_test::LockstepThrows();
  haste_test::HelpersHaveTheCallersMode();
  return haste_test::Report("team_errors_test");
}
