// The library's threads may run on all processors that the process may use, also if the thread that
// starts them may not. (On a machine with one this tests little.)
#include <sched.h>

#include <future>
#include <thread>

#include "lib/cpu/threads/processor.h"
#include "lib/cpu/threads/thread_pool.h"
#include "tests/lib/check.h"

int main() {
  std::promise<int> counted;
  std::thread pinned([&] {
    cpu_set_t allowed, one;
    EXPECT_TRUE(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "more than CPU_SETSIZE");
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
      if (CPU_ISSET(i, &allowed)) CPU_SET(i, &one);
    }
    EXPECT_TRUE(sched_setaffinity(0, sizeof one, &one) == 0, "of the thread");
    haste::ThreadPool::Shared().Schedule(
        [](void* to) {
          cpu_set_t own;
          sched_getaffinity(0, sizeof own, &own);
          static_cast<std::promise<int>*>(to)->set_value(CPU_COUNT(&own));
        },
        &counted);
  });
  pinned.join();
  const int count = counted.get_future().get();
  EXPECT_TRUE(count == haste::UsableProcessors(), "%d of %d", count, haste::UsableProcessors());
  return haste_test::Report("pool_processors_test");
}
