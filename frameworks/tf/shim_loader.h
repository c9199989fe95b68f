// Finds the shim (shim.cc) that belongs to the TensorFlow that this process runs.
#ifndef HASTE_FRAMEWORKS_TF_SHIM_LOADER_H_
#define HASTE_FRAMEWORKS_TF_SHIM_LOADER_H_

#include <string>

#include "lib/haste/c_api.h"

namespace haste {
namespace tf {

struct Shim {
  void* (*cuda_stream)(void* op_kernel_context);
  int (*num_threads)(void* op_kernel_context);
  void* (*pool)(void* op_kernel_context);
  void (*schedule)(void* pool, void (*fn)(void*), void* arg);
};

// The shim, or nullptr. The first call looks for it unless haste_tf_set_shim has named one: in
// $HASTE_TF_SHIM, else in shims/libhaste_shim_<major>_<minor>.so beside this library.
const Shim* GetShim();

// Why GetShim() is nullptr, and the command that mends it.
std::string ShimError();

// Says on stderr, once a process, that CPU ops run on threads of haste's own. Silent if
// haste_tf_set_shim has refused a shim: its caller knows.
void WarnOfMissingShim();

}  // namespace tf
}  // namespace haste

extern "C" {
// Uses the shim at `path`. 0 on success; haste_tf_shim_error says what went wrong otherwise.
HASTE_API int haste_tf_set_shim(const char* path);
// Why the last shim could not be loaded; valid until the calling thread asks again.
HASTE_API const char* haste_tf_shim_error(void);
}

#endif  // HASTE_FRAMEWORKS_TF_SHIM_LOADER_H_
