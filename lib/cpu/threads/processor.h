// The processor that a thread runs on. Other systems than Linux do not tell.
#pragma once

namespace haste {

// -1 if the system does not tell.
int CurrentProcessor();

// Moves the calling thread to another of the processors that it may run on. Does nothing if there
// is no other. It may run on the same ones afterwards, but from Linux 6.2 on a cpuset that grows
// later does not give it more.
void LeaveProcessor(int processor);

}  // namespace haste
