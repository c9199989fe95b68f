#include "lib/cuda/host/side_stream.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "lib/cuda/host/error.h"
#include "lib/cuda/host/relaxed_capture.h"

namespace haste {

struct SideStream::Stream {
  const void* main = nullptr;  // the caller's stream that it last worked for: MainOf
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;  // recorded by kernels
  cudaEvent_t order = nullptr;  // makes one stream wait for the other
};

// The process's side streams that no call uses. One that was given back may still have work queued.
class SideStreams {
 public:
  // The stream that worked for `main` before, or an idle one, so that the queued work of one caller
  // does not delay another.
  int32_t Take(const ContextKey& context, const void* main, SideStream::Stream** stream,
               HasteStatus* status) {
    const RelaxedCapture relaxed;
    if (Find(context, main, stream)) return HASTE_OK;
    SideStream::Stream made;
    const cudaError_t error = Create(&made);
    if (error != cudaSuccess) Destroy(made);
    HASTE_CUDA_TRY(error, status);
    made.main = main;
    *stream = new SideStream::Stream(made);
    return HASTE_OK;
  }
  void Give(const ContextKey& context, SideStream::Stream* stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_[context].push_back(stream);
  }

 private:
  bool Find(const ContextKey& context, const void* main, SideStream::Stream** stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<SideStream::Stream*>& free = free_[context];
    auto found = std::find_if(free.begin(), free.end(),
                              [&](const SideStream::Stream* of) { return of->main == main; });
    if (found == free.end()) {
      found = std::find_if(free.begin(), free.end(), [](const SideStream::Stream* of) {
        return cudaStreamQuery(of->stream) == cudaSuccess;
      });
      cudaGetLastError();  // busy streams return cudaErrorNotReady
    }
    if (found == free.end()) return false;
    *stream = *found;
    (*stream)->main = main;
    free.erase(found);
    return true;
  }
  // High priority: if a walk waits for this stream's work, the walk's blocks must not start first.
  static cudaError_t Create(SideStream::Stream* made) {
    int least = 0, greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess) {
      error = cudaStreamCreateWithPriority(&made->stream, cudaStreamNonBlocking, greatest);
    }
    for (cudaEvent_t* event : {&made->event, &made->order}) {
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    }
    return error;
  }
  static void Destroy(const SideStream::Stream& made) {
    for (cudaEvent_t event : {made.event, made.order}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (made.stream != nullptr) cudaStreamDestroy(made.stream);
  }

  std::mutex mutex_;
  std::map<ContextKey, std::vector<SideStream::Stream*>> free_;
};

namespace {

cudaStream_t Of(const HasteExecutor& executor) {
  return static_cast<cudaStream_t>(executor.stream);
}

// Identifies a stream. cudaStreamPerThread is one handle for all threads, so it gets an address of
// the thread.
const void* MainOf(const HasteExecutor& executor) {
  static thread_local const char kThread = 0;
  return Of(executor) == cudaStreamPerThread ? &kThread : executor.stream;
}

using WaitValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);

// The driver's function; nullptr if the driver does not have it or does not support launch events.
WaitValue GetWaitValue() {
  static const WaitValue wait = []() -> WaitValue {
    int driver = 0;
    if (CUDART_VERSION < 12030 || cudaDriverGetVersion(&driver) != cudaSuccess || driver < 12030) {
      return nullptr;
    }
    return reinterpret_cast<WaitValue>(FindDriverFunction("cuStreamWaitValue32", 12000));
  }();
  return wait;
}

bool IsManaged(const void* memory) {
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess) {
    return attributes.type == cudaMemoryTypeManaged;
  }
  cudaGetLastError();
  return true;
}

}  // namespace

SideStream::~SideStream() {
  if (stream_ == nullptr) return;
  if (!joined_) Join(nullptr);
  OfProcess<SideStreams>().Give(context_, stream_);
}

bool SideStream::Possible(const HasteExecutor& main) {
  return !IsCaptured(main) && MultiprocessorsOfStream(main) == 0 && GetWaitValue() != nullptr;
}

int32_t SideStream::Begin(const HasteExecutor& main, HasteStatus* status) {
  HASTE_TRY(GetContext(&context_, status));
  HASTE_TRY(OfProcess<SideStreams>().Take(context_, MainOf(main), &stream_, status));
  main_ = executor_ = main;
  executor_.stream = stream_->stream;
  return HASTE_OK;
}

void* SideStream::event() const { return stream_->event; }

int32_t SideStream::WaitForEvent(HasteStatus* status) const {
  return HASTE_CUDA_STATUS(cudaStreamWaitEvent(Of(main_), stream_->event, 0), status);
}

int32_t SideStream::Follow(HasteStatus* status) const {
  HASTE_CUDA_TRY(cudaEventRecord(stream_->order, Of(main_)), status);
  return HASTE_CUDA_STATUS(cudaStreamWaitEvent(stream_->stream, stream_->order, 0), status);
}

int32_t SideStream::WaitForCount(const uint32_t* counter, uint32_t count,
                                 HasteStatus* status) const {
  if (!IsManaged(counter) && GetWaitValue()(stream_->stream, reinterpret_cast<CUdeviceptr>(counter),
                                            count, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS) {
    return HASTE_OK;
  }
  return Follow(status);
}

int32_t SideStream::Join(HasteStatus* status) {
  joined_ = true;
  HASTE_CUDA_TRY(cudaEventRecord(stream_->order, stream_->stream), status);
  return HASTE_CUDA_STATUS(cudaStreamWaitEvent(Of(main_), stream_->order, 0), status);
}

}  // namespace haste
