// Objects that threads share, and a forked child, which has one thread alone.
#pragma once

namespace haste {

// How many forks have led from the first call to this process. An object that notes it knows in a
// child that its mutex may be held by a thread which the child does not have.
int ForkGeneration();

}  // namespace haste
