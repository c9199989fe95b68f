// Threads for the CPU engine: those that the executor lends (TensorFlow's intra-op pool), or
// haste's own.
//
// No function depends on a helper. A pool may be busy, even with the caller itself. So the caller
// does all work that no helper has taken, and a busy pool cannot deadlock. A helper that begins on
// the caller's processor moves to another. It computes with the caller's rounding and subnormals.
//
// What a task or the pool throws on any thread, the caller throws when no thread is in a task.
#pragma once

#include <stdint.h>

#include <functional>

#include "haste/c_api.h"

namespace haste {

// Threads that `executor` offers, the caller's own included; at least 1.
int TeamThreads(const HasteExecutor& executor);

// Calls task(i) once for every i in [0, count), on at most TeamThreads() threads.
void ParallelFor(const HasteExecutor& executor, int64_t count,
                 const std::function<void(int64_t)>& task);

// Calls prepare(i) once for every i in [0, preparations). Then it calls task(step, slice) for every
// slice in [0, slices) of step 0, then of step 1, and so on; a step begins when all slices of the
// one before are done. A slice stays with one thread as long as that thread runs, so that what it
// reads each step stays in that core's cache. Helpers are woken once. One may take its slice of the
// first step until the caller has done its own; later it is given a slice only after it has shown
// that it runs, and loses it if it does not begin a step in time.
void Lockstep(const HasteExecutor& executor, int64_t preparations,
              const std::function<void(int64_t)>& prepare, int64_t steps, int slices,
              const std::function<void(int64_t, int)>& task);

}  // namespace haste
