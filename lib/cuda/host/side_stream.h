// A second stream of the current context, for work overlapped with the caller's stream.
#pragma once

#include <stdint.h>

#include "lib/base/status.h"
#include "lib/cuda/host/context.h"

namespace haste {

class SideStream {
 public:
  SideStream() = default;
  // Calls Join unless it was called.
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Whether a side stream is possible for `main`. Not while `main` is captured into a graph; not if
  // it belongs to a green context, because another stream would not keep to that context's
  // multiprocessors; not with a toolkit or a driver older than CUDA 12.3.
  static bool Possible(const HasteExecutor& main);

  // Borrows one. Nothing waits for anything yet.
  int32_t Begin(const HasteExecutor& main, HasteStatus*);
  const HasteExecutor& executor() const { return executor_; }
  // A cudaEvent_t for a kernel of this stream to record. WaitForEvent makes `main` wait for it.
  void* event() const;
  int32_t WaitForEvent(HasteStatus*) const;
  // Later work of this stream waits for everything on `main` so far.
  int32_t Follow(HasteStatus*) const;
  // Later work of this stream waits until a kernel that was launched on `main` before has counted
  // `count`. That order keeps streams from waiting for each other. The wait takes no
  // multiprocessor, and so none from the kernel it waits for. Where the memory or the driver does
  // not support this, it is the same as Follow.
  int32_t WaitForCount(const uint32_t* counter, uint32_t count, HasteStatus*) const;
  // Later work on `main` waits for everything on this stream.
  int32_t Join(HasteStatus*);

 private:
  struct Stream;
  friend class SideStreams;

  Stream* stream_ = nullptr;
  HasteExecutor main_ = {}, executor_ = {};
  ContextKey context_;
  bool joined_ = false;
};

}  // namespace haste
