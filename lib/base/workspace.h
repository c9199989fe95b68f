// Hands out pieces of scratch memory. With a null base it only adds up sizes, so the same calls
// give the size of a workspace and its layout.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace haste {

class Workspace {
 public:
  explicit Workspace(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* Take(int64_t count) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  size_t used() const { return used_; }

 private:
  static constexpr size_t kAlignment = 64;
  char* base_;
  size_t used_ = 0;
};

// Where weights are packed, and whether they still have to be.
struct PackPlace {
  Workspace* memory;
  bool kept = false;    // the memory outlives the call, so packing pays off in any call
  bool filled = false;  // by a call before
};

}  // namespace haste
