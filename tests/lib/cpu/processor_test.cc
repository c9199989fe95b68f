// A thread leaves a processor and may run where it could before; helpers do not share the caller's.
#include "lib/cpu/threads/processor.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "lib/cpu/threads/team.h"
#include "tests/lib/check.h"

namespace haste_test {
namespace {

cpu_set_t Allowed() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  return allowed;
}

void Allow(const cpu_set_t& processors) { sched_setaffinity(0, sizeof processors, &processors); }

cpu_set_t Only(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  return one;
}

std::vector<int> AllowedProcessors() {
  const cpu_set_t allowed = Allowed();
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  return processors;
}

void TestLeave(const std::vector<int>& processors) {
  const cpu_set_t all = Allowed();
  for (const int processor : processors) {
    Allow(Only(processor));
    Allow(all);
    haste::LeaveProcessor(processor);
    const int now = haste::CurrentProcessor();
    EXPECT_TRUE(now != processor, "still on processor %d", processor);
    const cpu_set_t after = Allowed();
    EXPECT_TRUE(CPU_EQUAL(&after, &all) != 0, "allowed on others than before %d", processor);
  }
}

void TestNoOther(int processor) {
  const cpu_set_t all = Allowed(), one = Only(processor);
  Allow(one);
  haste::LeaveProcessor(processor);
  const cpu_set_t after = Allowed();
  EXPECT_TRUE(CPU_EQUAL(&after, &one) != 0, "no longer allowed on processor %d alone", processor);
  EXPECT_TRUE(haste::CurrentProcessor() == processor, "not on processor %d", processor);
  Allow(all);
}

// A pool whose thread begins on the processor of the caller, as the scheduler may have it.
struct Helper {
  int callers;  // processor
  cpu_set_t all;
  std::thread thread;

  HasteExecutor Executor() {
    HasteExecutor executor = HASTE_INIT(HasteExecutor);
    executor.threads = 2;
    executor.pool = this;
    executor.schedule = [](void* pool, void (*fn)(void*), void* arg) {
      Helper* helper = static_cast<Helper*>(pool);
      helper->thread = std::thread([helper, fn, arg] {
        Allow(Only(helper->callers));
        Allow(helper->all);
        fn(arg);
      });
    };
    return executor;
  }
};

void TestHelperLeavesTheCaller(int callers) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSteps = 200000;  // of 20 µs, until the helper has had a part in one
  Helper helper = {callers, Allowed(), {}};
  Allow(Only(callers));
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> helped_on{-1};
  std::atomic<bool> helped{false};
  haste::Lockstep(
      helper.Executor(), 0, [](int64_t) {}, kSteps, 2,
      [&](int64_t, int) {
        if (helped) return;
        if (std::this_thread::get_id() != caller) {
          helped_on = haste::CurrentProcessor();
          helped = true;
        }
        const Clock::time_point end = Clock::now() + std::chrono::microseconds(20);
        while (Clock::now() < end) {
        }
      });
  helper.thread.join();
  Allow(helper.all);
  EXPECT_TRUE(helped_on >= 0, "the helper had no part");
  EXPECT_TRUE(helped_on != callers, "the helper ran on processor %d, the caller's", callers);
}

}  // namespace
}  // namespace haste_test

int main() {
  const std::vector<int> processors = haste_test::AllowedProcessors();
  haste_test::TestNoOther(processors.front());
  if (processors.size() > 1) {
    haste_test::TestLeave(processors);
    haste_test::TestHelperLeavesTheCaller(processors.front());
  } else {
    std::printf("one processor: helpers have no other to go to\n");
  }
  return haste_test::Report("processor_test");
}
