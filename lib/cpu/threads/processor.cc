#include "lib/cpu/threads/processor.h"

#include <algorithm>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace haste {

namespace {

int CountProcessors() {
#if defined(__linux__)
  // A program may keep its first thread on one processor, or the caller.
  cpu_set_t first, callers;
  if (sched_getaffinity(getpid(), sizeof first, &first) == 0 &&
      sched_getaffinity(0, sizeof callers, &callers) == 0) {
    return std::max(CPU_COUNT(&first), CPU_COUNT(&callers));
  }
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

int UsableProcessors() {
  static const int count = CountProcessors();  // a system call, and each call of the library asks
  return count;
}

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
