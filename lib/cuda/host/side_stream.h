// A second stream of the current context, for what runs beside a caller's.
#ifndef HASTE_LIB_CUDA_HOST_SIDE_STREAM_H_
#define HASTE_LIB_CUDA_HOST_SIDE_STREAM_H_

#include <stdint.h>

#include "lib/base/status.h"
#include "lib/cuda/host/context.h"

namespace haste {

class SideStream {
 public:
  SideStream() = default;
  // Joins, if that was not done.
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Whether there can be one beside this: not while it is captured into a graph, not beside one of
  // a green context, whose multiprocessors another stream would not keep to, nor with a toolkit or
  // a driver older than CUDA 12.3.
  static bool Possible(const HasteExecutor& main);

  // Borrows one. Nothing waits for anything yet.
  int32_t Begin(const HasteExecutor& main, HasteStatus*);
  const HasteExecutor& executor() const { return executor_; }
  // A cudaEvent_t for a kernel of this stream to record, which WaitForEvent has `main` wait for.
  void* event() const;
  int32_t WaitForEvent(HasteStatus*) const;
  // What comes waits for all that is on `main` so far.
  int32_t Follow(HasteStatus*) const;
  // What comes waits until a kernel that was launched on `main` before has counted so many: that
  // order keeps streams from waiting for each other. It takes no multiprocessor, and so keeps none
  // from whom it waits for. Where the memory or the driver cannot be waited for, as Follow.
  int32_t WaitForCount(const uint32_t* counter, uint32_t count, HasteStatus*) const;
  // What comes on `main` waits for all that is here.
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

#endif  // HASTE_LIB_CUDA_HOST_SIDE_STREAM_H_
