// frameworks/xla/ffi_abi.h against XLA's own header, as the installed TensorFlow has it.
#include "frameworks/xla/ffi_abi.h"

#include <stddef.h>

#include <string>

#include "frameworks/xla/attributes.h"
#include "tests/lib/check.h"
#include "xla/ffi/api/c_api.h"

namespace ours = haste::xla;

#define SAME_SIZE(OURS, THEIRS) static_assert(sizeof(ours::OURS) == sizeof(THEIRS), #OURS)
#define SAME(OURS, field, THEIRS, their_field)                                  \
  static_assert(offsetof(ours::OURS, field) == offsetof(THEIRS, their_field) && \
                    sizeof(ours::OURS::field) == sizeof(THEIRS::their_field),   \
                #OURS "::" #field)

SAME_SIZE(Buffer, XLA_FFI_Buffer);
SAME(Buffer, dtype, XLA_FFI_Buffer, dtype);
SAME(Buffer, data, XLA_FFI_Buffer, data);
SAME(Buffer, rank, XLA_FFI_Buffer, rank);
SAME(Buffer, dims, XLA_FFI_Buffer, dims);
SAME_SIZE(ByteSpan, XLA_FFI_ByteSpan);
SAME_SIZE(Scalar, XLA_FFI_Scalar);
SAME(Scalar, value, XLA_FFI_Scalar, value);
SAME_SIZE(BufferList, XLA_FFI_Args);
SAME(BufferList, size, XLA_FFI_Args, size);
SAME(BufferList, buffers, XLA_FFI_Args, args);
SAME_SIZE(BufferList, XLA_FFI_Rets);
SAME(BufferList, buffers, XLA_FFI_Rets, rets);
SAME_SIZE(AttributeList, XLA_FFI_Attrs);
SAME(AttributeList, types, XLA_FFI_Attrs, types);
SAME(AttributeList, names, XLA_FFI_Attrs, names);
SAME(AttributeList, values, XLA_FFI_Attrs, attrs);
SAME(CallFrame, api, XLA_FFI_CallFrame, api);
SAME(CallFrame, context, XLA_FFI_CallFrame, ctx);
SAME(CallFrame, stage, XLA_FFI_CallFrame, stage);
SAME(CallFrame, operands, XLA_FFI_CallFrame, args);
SAME(CallFrame, results, XLA_FFI_CallFrame, rets);
SAME(CallFrame, attributes, XLA_FFI_CallFrame, attrs);
SAME_SIZE(Extension, XLA_FFI_Metadata_Extension);
SAME(Extension, metadata, XLA_FFI_Metadata_Extension, metadata);
SAME(Metadata, traits, XLA_FFI_Metadata, traits);
static_assert(offsetof(ours::Metadata, major_version) ==
              offsetof(XLA_FFI_Metadata, api_version) +
                  offsetof(XLA_FFI_Api_Version, major_version));
static_assert(offsetof(ours::Extension, type) == offsetof(XLA_FFI_Extension_Base, type));

SAME(CreateErrorArgs, message, XLA_FFI_Error_Create_Args, message);
SAME(CreateErrorArgs, code, XLA_FFI_Error_Create_Args, errc);
SAME(ErrorMessageArgs, message, XLA_FFI_Error_GetMessage_Args, message);
SAME(DestroyErrorArgs, error, XLA_FFI_Error_Destroy_Args, error);
SAME_SIZE(RegisterArgs, XLA_FFI_Handler_Register_Args);
SAME(RegisterArgs, platform, XLA_FFI_Handler_Register_Args, platform);
SAME(RegisterArgs, bundle, XLA_FFI_Handler_Register_Args, bundle);
SAME(RegisterArgs, traits, XLA_FFI_Handler_Register_Args, traits);
SAME_SIZE(StreamArgs, XLA_FFI_Stream_Get_Args);
SAME(StreamArgs, stream, XLA_FFI_Stream_Get_Args, stream);
SAME_SIZE(AllocateArgs, XLA_FFI_DeviceMemory_Allocate_Args);
SAME(AllocateArgs, data, XLA_FFI_DeviceMemory_Allocate_Args, data);
SAME_SIZE(FreeArgs, XLA_FFI_DeviceMemory_Free_Args);
SAME(FreeArgs, data, XLA_FFI_DeviceMemory_Free_Args, data);
SAME_SIZE(ScheduleArgs, XLA_FFI_ThreadPool_Schedule_Args);
SAME(ScheduleArgs, data, XLA_FFI_ThreadPool_Schedule_Args, data);
SAME_SIZE(CountThreadsArgs, XLA_FFI_ThreadPool_NumThreads_Args);
SAME(CountThreadsArgs, threads, XLA_FFI_ThreadPool_NumThreads_Args, num_threads);

static_assert(ours::kPred == XLA_FFI_DataType_PRED && ours::kS32 == XLA_FFI_DataType_S32);
static_assert(ours::kS64 == XLA_FFI_DataType_S64);
static_assert(ours::kF16 == XLA_FFI_DataType_F16 && ours::kF32 == XLA_FFI_DataType_F32);
static_assert(ours::kF64 == XLA_FFI_DataType_F64 && ours::kBF16 == XLA_FFI_DataType_BF16);
static_assert(ours::kScalarAttribute == XLA_FFI_AttrType_SCALAR);
static_assert(ours::kStringAttribute == XLA_FFI_AttrType_STRING);
static_assert(ours::kMetadataExtension == XLA_FFI_Extension_Metadata);

namespace {

// Where the function `place` of the table is, in bytes.
constexpr size_t At(ours::Function place) {
  return ours::kNewest.functions + sizeof(void*) * place;
}
static_assert(At(ours::kCreateError) == offsetof(XLA_FFI_Api, XLA_FFI_Error_Create));
static_assert(At(ours::kErrorMessage) == offsetof(XLA_FFI_Api, XLA_FFI_Error_GetMessage));
static_assert(At(ours::kDestroyError) == offsetof(XLA_FFI_Api, XLA_FFI_Error_Destroy));
static_assert(At(ours::kRegister) == offsetof(XLA_FFI_Api, XLA_FFI_Handler_Register));
static_assert(At(ours::kStream) == offsetof(XLA_FFI_Api, XLA_FFI_Stream_Get));
static_assert(At(ours::kAllocate) == offsetof(XLA_FFI_Api, XLA_FFI_DeviceMemory_Allocate));
static_assert(At(ours::kFree) == offsetof(XLA_FFI_Api, XLA_FFI_DeviceMemory_Free));
static_assert(At(ours::kSchedule) == offsetof(XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule));
static_assert(At(ours::kCountThreads) == offsetof(XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads));
static_assert(ours::kNewest.execute ==
              offsetof(XLA_FFI_Handler_Bundle, execute) / sizeof(XLA_FFI_Handler*));

std::string message_of_error;
XLA_FFI_Error* CreateError(XLA_FFI_Error_Create_Args* args) {
  message_of_error = args->message;
  return reinterpret_cast<XLA_FFI_Error*>(&message_of_error);
}

// A call without the attribute that names an op is an error that says so.
void TestCallOfNoOp(XLA_FFI_Handler* handler) {
  XLA_FFI_Api api = {};
  api.XLA_FFI_Error_Create = CreateError;
  XLA_FFI_CallFrame frame = {};
  frame.api = &api;
  EXPECT_TRUE(handler(&frame) == reinterpret_cast<XLA_FFI_Error*>(&message_of_error), "no error");
  EXPECT_TRUE(message_of_error == "haste: the attribute op must name an op, but is ''", "%s",
              message_of_error.c_str());
}

// A number is read if it is of the type that is written.
void TestTypesOfNumbers() {
  const int32_t integer = 1;
  const float single = 0.25f;
  const double wide = 0.25;
  const bool flag = true;
  const struct {
    int32_t dtype;
    const void* value;
    bool is_int, is_float;
  } cases[] = {{ours::kS32, &integer, true, false},
               {ours::kF32, &single, false, true},
               {ours::kF64, &wide, false, false},
               {ours::kPred, &flag, false, false}};
  for (const auto& c : cases) {
    ours::Scalar scalar = {c.dtype, c.value};
    ours::ByteSpan span = {"rate", 4};
    ours::ByteSpan* names[] = {&span};
    const void* values[] = {&scalar};
    const int32_t types[] = {ours::kScalarAttribute};
    const ours::AttributeList list = {{}, 1, types, names, values};
    int32_t i = 7;
    float f = 7;
    ours::AttributeReader of_int(list), of_float(list);
    of_int.Int("rate", &i);
    of_float.Float("rate", &f);
    EXPECT_TRUE(of_int.error().empty() == c.is_int && i == (c.is_int ? 1 : 7), "type %d: %d, '%s'",
                c.dtype, i, of_int.error().c_str());
    EXPECT_TRUE(of_float.error().empty() == c.is_float && f == (c.is_float ? 0.25f : 7),
                "type %d: %g, '%s'", c.dtype, f, of_float.error().c_str());
  }
}

// XLA asks for the version before it calls, and may have no table of functions then.
void TestMetadata(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata = {};
  metadata.traits = 7;
  XLA_FFI_Metadata_Extension extension = {};
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame = {};
  frame.extension_start = &extension.extension_base;
  EXPECT_TRUE(handler(&frame) == nullptr, "an error");
  const XLA_FFI_Api_Version& version = metadata.api_version;
  EXPECT_TRUE(version.major_version == 0 && version.minor_version == 1, "%d.%d",
              version.major_version, version.minor_version);
  EXPECT_TRUE(metadata.traits == 0, "traits %u", metadata.traits);
}

}  // namespace

extern "C" {
XLA_FFI_Error* haste_xla_cpu(XLA_FFI_CallFrame*);
XLA_FFI_Error* haste_xla_cuda(XLA_FFI_CallFrame*);
}

int main() {
  TestTypesOfNumbers();
  for (XLA_FFI_Handler* handler : {haste_xla_cpu, haste_xla_cuda}) {
    TestCallOfNoOp(handler);
    TestMetadata(handler);
  }
  return haste_test::Report("ffi_abi_test");
}
