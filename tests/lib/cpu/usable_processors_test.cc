// A process that may not use all processors of the machine has as many threads by default as it may
// use. (On a machine with one this tests little.)
#include <sched.h>
#include <unistd.h>

#include "haste/c_api.h"
#include "lib/cpu/threads/processor.h"
#include "lib/cpu/threads/team.h"
#include "tests/lib/check.h"

int main() {
  cpu_set_t allowed, one;
  EXPECT_TRUE(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "more than CPU_SETSIZE");
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &allowed)) CPU_SET(i, &one);
  }
  EXPECT_TRUE(sched_setaffinity(getpid(), sizeof one, &one) == 0, "of the process");
  EXPECT_TRUE(haste::UsableProcessors() == 1, "%d", haste::UsableProcessors());
  HasteExecutor executor = HASTE_INIT(HasteExecutor);
  EXPECT_TRUE(haste::TeamThreads(executor) == 1, "%d", haste::TeamThreads(executor));
  executor.threads = 3;
  EXPECT_TRUE(haste::TeamThreads(executor) == 3, "%d", haste::TeamThreads(executor));
  return haste_test::Report("usable_processors_test");
}
