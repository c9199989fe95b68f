#include "lib/cpu/threads/processor.h"

#include <algorithm>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace haste {

#if defined(__linux__)

namespace {

struct Usable {
  Usable() {
    // A program may keep its first thread on one processor, or the caller.
    cpu_set_t callers;
    known = sched_getaffinity(getpid(), sizeof mask, &mask) == 0 &&
            sched_getaffinity(0, sizeof callers, &callers) == 0;
    if (known && CPU_COUNT(&callers) > CPU_COUNT(&mask)) mask = callers;
    count = known ? CPU_COUNT(&mask)
                  : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }
  cpu_set_t mask;
  bool known;  // else there are more than CPU_SETSIZE
  int count;
};

const Usable& TheUsable() {
  static const Usable usable;  // system calls, and each call of the library asks
  return usable;
}

}  // namespace

int UsableProcessors() { return TheUsable().count; }

void UseAllProcessors() {
  const Usable& usable = TheUsable();
  cpu_set_t own;
  if (!usable.known || sched_getaffinity(0, sizeof own, &own) != 0) return;
  if (!CPU_EQUAL(&own, &usable.mask)) sched_setaffinity(0, sizeof usable.mask, &usable.mask);
}

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

int UsableProcessors() {
  static const int count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return count;
}

void UseAllProcessors() {}

int CurrentProcessor() { return -1; }

void LeaveProcessor(int) {}

#endif

}  // namespace haste
