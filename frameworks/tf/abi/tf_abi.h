// The C++ ABI of the TensorFlow that this process runs: one row of rows.inc.
#ifndef HASTE_FRAMEWORKS_TF_ABI_TF_ABI_H_
#define HASTE_FRAMEWORKS_TF_ABI_TF_ABI_H_

#include <stddef.h>
#include <stdint.h>

#include <string>

#include "haste/c_api.h"

namespace haste {
namespace tf {

struct TfAbi {
  const char* version;  // major and minor: "2.21"
#define HASTE_TF_ABI_COLUMN(name) int name;
#include "frameworks/tf/abi/rows.inc"
#undef HASTE_TF_ABI_COLUMN
};

// The row of `version`, "2.21.0" say; nullptr if the table has none.
const TfAbi* FindAbi(const std::string& version);

// The row of $HASTE_TF_ABI, else of the running TensorFlow. It does not change during the process.
// nullptr if it is unknown; AbiError() says why.
const TfAbi* RunningAbi();
const std::string& AbiError();

// A symbol of TensorFlow that may not be in the library that op libraries link to; nullptr if this
// process has none of that name.
void* TensorFlowSymbol(const char* name);

// True for the first call in a process: that caller reports that threads are haste's own.
bool FirstToSay();

// Copies `text` into the buffer of a caller of the C ABI, cut to its size.
void CopyText(const std::string& text, char* buffer, size_t capacity);

}  // namespace tf
}  // namespace haste

extern "C" {
// 1 if the ABI of the running TensorFlow is known; `text` is the version of its row. Otherwise 0,
// and `text` is a sentence that the caller shows. After this call CPU ops no longer print it.
HASTE_API int32_t haste_tf_abi(char* text, size_t capacity);
}

#endif  // HASTE_FRAMEWORKS_TF_ABI_TF_ABI_H_
