// The processors that threads run on. Other systems than Linux do not tell which.
#pragma once

namespace haste {

// How many the process may use, at least 1: in a container with a cpuset fewer than the machine
// has. A quota of their time does not count, nor does what a cpuset is given later.
int UsableProcessors();

// Lets the calling thread run on all of these, where the system can. It has those of the thread
// that has started it.
void UseAllProcessors();

// -1 if the system does not tell.
int CurrentProcessor();

// Moves the calling thread to another of the processors that it may run on. Does nothing if there
// is no other. It may run on the same ones afterwards, but from Linux 6.2 on a cpuset that grows
// later does not give it more.
void LeaveProcessor(int processor);

}  // namespace haste
