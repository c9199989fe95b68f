// The CUDA context of a call: that of its device, or a part of one (MPS, green contexts). What
// belongs to a context is kept by it, not by the device's number.
#ifndef HASTE_LIB_CUDA_HOST_CONTEXT_H_
#define HASTE_LIB_CUDA_HOST_CONTEXT_H_

#include <stdint.h>

#include <tuple>

#include "haste/c_api.h"

namespace haste {

// Names a context for as long as the process lives. No padding: it is part of the keys of recorded
// graphs.
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

// How many of the device's `multiprocessors` kernels of the current context may have.
int MultiprocessorsOfContext(int multiprocessors);

// How many those of a stream may have that belongs to a green context; 0: to none.
int MultiprocessorsOfStream(const HasteExecutor&);

// The process's one T, never destroyed: threads may call at exit.
template <class T>
T& OfProcess() {
  static T* const one = new T;
  return *one;
}

}  // namespace haste

#endif  // HASTE_LIB_CUDA_HOST_CONTEXT_H_
