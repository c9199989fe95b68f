// The CUDA context of a call: that of its device, or of a part of one (MPS, green contexts). Caches
// of what belongs to a context have the context as their key, not the device's number.
#pragma once

#include <stdint.h>

#include <tuple>

#include "haste/c_api.h"

namespace haste {

// Identifies a context during the process. It has no padding, because it is part of the keys of
// recorded graphs.
struct ContextKey {
  uint64_t id = 0;     // of cuCtxGetId, or (drivers before 12.0) the context's address
  int64_t device = 0;  // its number

  friend bool operator<(const ContextKey& a, const ContextKey& b) {
    return std::tie(a.id, a.device) < std::tie(b.id, b.device);
  }
};

// A function of the driver, which is not linked, as that version of CUDA has it; nullptr if there
// is none.
void* FindDriverFunction(const char* name, unsigned int version);

// The calling thread's current context, made if the device has none yet: some 50 ns.
int32_t GetContext(ContextKey* key, HasteStatus* status);

// How many of the device's `multiprocessors` kernels of the current context can use.
int MultiprocessorsOfContext(int multiprocessors);

// How many multiprocessors kernels of a stream can use if it belongs to a green context; else 0.
int MultiprocessorsOfStream(const HasteExecutor&);

// The process's one T, never destroyed: threads may call at exit.
template <class T>
T& OfProcess() {
  static T* const one = new T;
  return *one;
}

}  // namespace haste
