// Offsets of fields and slots of virtual functions in the classes of one TensorFlow version.
//
// tools/tf_abi.py compiles this against that version's headers, for any 64-bit target, and reads
// the numbers off the object; it is never linked or run. What each number is for: tf_abi.cc.
#define EIGEN_USE_THREADS

#include <stdint.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/base/config.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#if __has_include("xla/stream_executor/stream.h")
#include "xla/stream_executor/stream.h"
#else
#include "tensorflow/compiler/xla/stream_executor/stream.h"
#endif
#if __has_include("xla/stream_executor/stream_executor_internal.h")
#include "xla/stream_executor/stream_executor_internal.h"
#endif
#if __has_include("xla/hlo/builder/xla_builder.h")
#include "xla/hlo/builder/xla_builder.h"
#else
#include "xla/client/xla_builder.h"
#endif
#include "xla/shape.h"
#include "xla/shape_util.h"

namespace {

namespace tf = tensorflow;

// Its second function is in slot 1 by definition. The tool learns from it how this target encodes
// slots.
struct Known {
  virtual void First();
  virtual void Second();
};

// The function that returns a stream's cudaStream_t. From 2.17 on, a Stream is the interface …
template <class Stream, class = void>
struct Native {
  static constexpr auto kFunction = &Stream::platform_specific_handle;
  static constexpr int64_t kImplementation = -1;
  using Handle = decltype(std::declval<Stream*>()->platform_specific_handle());
  static_assert(sizeof(Handle) == sizeof(void*) && std::is_trivially_copyable_v<Handle>,
                "a handle is no longer returned as one pointer is");
};

// … and up to 2.16 it holds a pointer to it.
template <class Stream>
struct Native<Stream, std::void_t<decltype(std::declval<Stream*>()->implementation())>> {
  using Implementation = std::remove_pointer_t<decltype(std::declval<Stream*>()->implementation())>;
  static constexpr auto kFunction = &Implementation::platform_specific_stream;
  static constexpr int64_t kImplementation = __builtin_offsetof(Stream, implementation_);
  static_assert(sizeof(std::unique_ptr<Implementation>) == sizeof(void*));
};

// tensorflow::XlaOpKernel, whose header needs more than the wheels of 2.19 have: its virtual
// function `Compile` is the first that it adds to OpKernel's.
struct XlaOpKernel : tf::OpKernel {
  virtual void Compile(void*);
};

// What frameworks/tf/xla/xla_abi.h says of XLA's classes. Arguments of the functions that it looks
// up are in their names.
static_assert(std::is_trivially_copyable_v<xla::XlaOp> && sizeof(xla::XlaOp) == 16);
static_assert(sizeof(absl::Span<const int64_t>) == 16);
static_assert(sizeof(xla::ShapeIndex) == 24);
static_assert(sizeof(std::vector<xla::Shape>) == 24);
static_assert(sizeof(xla::Shape) <= 512);
static_assert(xla::PRED == 1 && xla::S64 == 5 && xla::F16 == 10 && xla::F32 == 11 &&
              xla::F64 == 12 && xla::BF16 == 16);
static_assert(xla::SCHEDULE_NONE == 0 && xla::API_VERSION_TYPED_FFI == 4);

static_assert(sizeof(decltype(Eigen::ThreadPoolDevice::num_threads_)) == sizeof(int));
static_assert(std::is_same_v<decltype(&Eigen::ThreadPoolInterface::Schedule),
                             void (Eigen::ThreadPoolInterface::*)(std::function<void()>)>);

// FIELD and SLOT are for tf_abi.py too, which takes the names and their order from here.
#define FIELD(name, type, member) int64_t name = __builtin_offsetof(type, member)
#define SLOT(name, function) decltype(function) name = function
#define FIELD_OR_NONE(name, offset) int64_t name = offset

struct Numbers {
  char begin[16] = {'h', 'a', 's', 't', 'e', '_', 't', 'f', '_', 'a', 'b', 'i', ':', '\n', 1, 2};
  void (Known::*known)() = &Known::Second;
  FIELD(context_params, tf::OpKernelContext, params_);
  FIELD(params_device, tf::OpKernelContext::Params, device);
  FIELD(params_device_context, tf::OpKernelContext::Params, op_device_context);
  SLOT(device_accelerator_info, &tf::DeviceBase::tensorflow_accelerator_device_info);
  FIELD(accelerator_info_context, tf::DeviceBase::AcceleratorDeviceInfo, default_context);
  SLOT(device_context_stream, &tf::DeviceContext::stream);
  FIELD_OR_NONE(stream_implementation, Native<stream_executor::Stream>::kImplementation);
  SLOT(stream_native, Native<stream_executor::Stream>::kFunction);
  SLOT(device_has_cpu_device, &tf::DeviceBase::has_eigen_cpu_device);
  SLOT(device_cpu_device, &tf::DeviceBase::eigen_cpu_device);
  FIELD(cpu_device_pool, Eigen::ThreadPoolDevice, pool_);
  FIELD(cpu_device_threads, Eigen::ThreadPoolDevice, num_threads_);
  SLOT(pool_schedule, &Eigen::ThreadPoolInterface::Schedule);
  FIELD_OR_NONE(absl_lts, ABSL_LTS_RELEASE_VERSION);
  SLOT(xla_kernel_compile, &XlaOpKernel::Compile);
  FIELD_OR_NONE(xla_shape_bytes, sizeof(xla::Shape));
};

}  // namespace

extern "C" {
extern const Numbers haste_tf_abi;
const Numbers haste_tf_abi = {};
}
