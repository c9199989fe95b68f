// XLA's C ABI for foreign functions, as far as the handlers use it, in all the forms that
// TensorFlow 2.17 and newer and JAX have. XLA's own header, xla/ffi/api/c_api.h, has one of them;
// tests/xla/ffi_abi_test.cc compares the newest with it.
#ifndef HASTE_FRAMEWORKS_XLA_FFI_ABI_H_
#define HASTE_FRAMEWORKS_XLA_FFI_ABI_H_

#include <stddef.h>
#include <stdint.h>

namespace haste {
namespace xla {

struct FfiError;
struct FfiContext;

// Structures begin with these two.
struct Extension;
struct Head {
  size_t struct_size;
  Extension* extension;
};

// An extension of a call is a question that the handler answers in place of running.
constexpr int32_t kMetadataExtension = 1;
struct Metadata {
  size_t struct_size;
  Head api_version;
  int32_t major_version, minor_version;
  uint32_t traits;  // 0: calls are not put into command buffers (CUDA graphs)
};
struct Extension {
  size_t struct_size;
  int32_t type;
  Extension* next;
  Metadata* metadata;  // of kMetadataExtension
};

// Types of data.
constexpr int32_t kPred = 1, kS32 = 4, kS64 = 5, kF16 = 10, kF32 = 11, kF64 = 12, kBF16 = 16;

struct Buffer {
  Head head;
  int32_t dtype;
  void* data;
  int64_t rank;
  const int64_t* dims;
};

struct ByteSpan {
  const char* data;
  size_t size;
};
struct Scalar {
  int32_t dtype;
  const void* value;
};
constexpr int32_t kScalarAttribute = 3, kStringAttribute = 4;

struct BufferList {
  Head head;
  int64_t size;
  const int32_t* types;
  Buffer** buffers;
};
struct AttributeList {
  Head head;
  int64_t size;
  const int32_t* types;  // kScalarAttribute, …
  ByteSpan** names;
  const void** values;  // Scalar or ByteSpan
};

constexpr int32_t kExecuteStage = 3;
struct CallFrame {
  Head head;
  const void* api;  // a table of functions: Api below
  FfiContext* context;
  int32_t stage;
  BufferList operands;
  BufferList results;
  AttributeList attributes;
};
using Handler = FfiError*(CallFrame*);

// Arguments of the table's functions.
struct CreateErrorArgs {
  Head head;
  const char* message;
  int32_t code;
};
struct ErrorMessageArgs {
  Head head;
  FfiError* error;
  const char* message;
};
struct DestroyErrorArgs {
  Head head;
  FfiError* error;
};
struct RegisterArgs {
  Head head;
  ByteSpan name;
  ByteSpan platform;
  Handler* bundle[4];
  uint32_t traits;
};
struct StreamArgs {
  Head head;
  FfiContext* context;
  void* stream;
};
struct AllocateArgs {
  Head head;
  FfiContext* context;
  size_t size, alignment;
  void* data;
};
struct FreeArgs {
  Head head;
  FfiContext* context;
  size_t size;
  void* data;
};
struct ScheduleArgs {
  Head head;
  FfiContext* context;
  void (*task)(void*);
  void* data;
};
struct CountThreadsArgs {
  Head head;
  FfiContext* context;
  int64_t* threads;
};

// What changed between versions. The table's own size does not tell: up to TensorFlow 2.19 it is
// too small.
struct Dialect {
  size_t functions;     // where the table's functions begin
  int execute;          // place of the handler that runs, in RegisterArgs::bundle
  bool device_memory;   // whether there are Allocate, Free, and Schedule
  bool counts_threads;  // whether there is CountThreads
};
inline constexpr Dialect kTensorFlow217 = {24, 2, false, false};
inline constexpr Dialect kTensorFlow218 = {48, 3, true, false};
inline constexpr Dialect kNewest = {48, 3, true, true};  // TensorFlow 2.19 and newer, JAX

// The functions, by their place in the table.
enum Function {
  kCreateError = 0,
  kErrorMessage = 1,
  kDestroyError = 2,
  kRegister = 3,
  kStream = 4,
  kAllocate = 9,
  kFree = 10,
  kSchedule = 11,
  kCountThreads = 12,
};

// Calls of the table. What returns an error returns nullptr where there is none.
class Api {
 public:
  Api(const void* table, const Dialect& dialect)
      : functions_(
            reinterpret_cast<void* const*>(static_cast<const char*>(table) + dialect.functions)) {}

  FfiError* CreateError(int32_t code, const char* message) const {
    CreateErrorArgs args = {HeadOf<CreateErrorArgs>(), message, code};
    return Call<FfiError*>(kCreateError, &args);
  }
  const char* Message(FfiError* error) const {
    ErrorMessageArgs args = {HeadOf<ErrorMessageArgs>(), error, nullptr};
    Call<void>(kErrorMessage, &args);
    return args.message;
  }
  void Destroy(FfiError* error) const {
    if (error == nullptr) return;
    DestroyErrorArgs args = {HeadOf<DestroyErrorArgs>(), error};
    Call<void>(kDestroyError, &args);
  }
  template <class Args>
  FfiError* Ask(Function function, Args* args) const {
    args->head = HeadOf<Args>();
    return Call<FfiError*>(function, args);
  }

 private:
  template <class Args>
  static Head HeadOf() {
    return {sizeof(Args), nullptr};
  }
  template <class Result, class Args>
  Result Call(Function function, Args* args) const {
    return reinterpret_cast<Result (*)(Args*)>(functions_[function])(args);
  }

  void* const* functions_;
};

}  // namespace xla
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_XLA_FFI_ABI_H_
