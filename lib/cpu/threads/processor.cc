#include "lib/cpu/threads/processor.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace haste {

#if defined(__linux__)

int CurrentProcessor() { return sched_getcpu(); }

void LeaveProcessor(int processor) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // more than CPU_SETSIZE
  cpu_set_t others = allowed;
  CPU_CLR(processor, &others);
  if (CPU_COUNT(&others) == 0) return;
  // The first moves the thread; after the second it stays where it is.
  if (sched_setaffinity(0, sizeof others, &others) == 0) {
    sched_setaffinity(0, sizeof allowed, &allowed);
  }
}

#else

int CurrentProcessor() { return -1; }

void LeaveProcessor(int) {}

#endif

}  // namespace haste
