// Scratch memory of calls, owned.
#ifndef HASTE_LIB_HASTE_SCRATCH_H_
#define HASTE_LIB_HASTE_SCRATCH_H_

#include <stddef.h>

#include "haste/c_api.h"
#include "haste/status.h"

namespace haste {

// Memory of a device, aligned to 64 bytes, which grows to the largest call that it is used for. One
// call at a time: calls on CUDA may share it if they are on one stream.
class ScratchMemory {
 public:
  explicit ScratchMemory(HasteDevice device) : device_(device) {}
  ~ScratchMemory() { haste_free(device_, data_, nullptr); }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  // Makes room for `bytes`. Memory that grows loses its contents.
  Status Reserve(size_t bytes) {
    if (data_ != nullptr && bytes <= size_) return Status();
    HasteStatus raw = {};
    haste_free(device_, data_, nullptr);
    data_ = nullptr;
    size_ = 0;
    if (haste_allocate(device_, bytes, &data_, &raw) != HASTE_OK) return Status(raw);
    size_ = bytes;
    return Status();
  }
  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const HasteDevice device_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace haste

#endif  // HASTE_LIB_HASTE_SCRATCH_H_
