// What every call of the C ABI shares: codes, dtypes, devices, and where the work runs.
//
// A structure that begins with struct_size may grow at its end. HASTE_INIT sets struct_size to the
// caller's sizeof, and all else to 0. The library takes fields beyond struct_size as 0, which in a
// field added later means: as before. It refuses a struct_size below the first version's (0: not
// set) or above 64 KiB, and a larger one than its own if a byte that it does not know is not 0. Of
// structures that it fills it writes no more than struct_size, and 0 where it knows no field.
#ifndef HASTE_LIB_HASTE_C_API_TYPES_H_
#define HASTE_LIB_HASTE_C_API_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HASTE_API __attribute__((visibility("default")))
#define HASTE_MAX_GATES 4
#define HASTE_MAX_STATES 4
#define HASTE_MAX_EXTRAS 3
#define HASTE_MAX_SAVED 6
#define HASTE_MAX_CLUSTER 16
// A structure with its struct_size, and all else 0: HasteGemm gemm = HASTE_INIT(HasteGemm);
#ifdef __cplusplus
#define HASTE_INIT(TYPE) haste::Init<TYPE>()
#else
#define HASTE_INIT(TYPE) ((TYPE){.struct_size = sizeof(TYPE)})
#endif

typedef enum {
  HASTE_OK = 0,
  HASTE_INVALID_ARGUMENT = 3,
  HASTE_UNIMPLEMENTED = 12,
  HASTE_INTERNAL = 13
} HasteCode;
typedef struct {
  int32_t code;
  char message[508];
} HasteStatus;
typedef enum {
  HASTE_FLOAT32 = 0,
  HASTE_FLOAT64 = 1,
  HASTE_FLOAT16 = 2,
  HASTE_BFLOAT16 = 3,
  HASTE_INT8 = 4  // of weights alone
} HasteDtype;
typedef enum { HASTE_CPU = 0, HASTE_CUDA = 1 } HasteDevice;

// Where the work runs. CPU: `schedule` hands fn(arg) to another thread of a pool of `threads`, the
// caller's included, and returns; NULL: haste's own `threads` (0: one for each processor that the
// process may use). A thread that begins on the caller's processor moves to another that it may run
// on. CUDA: `stream` is a cudaStream_t; calls are ordered on it.
typedef struct {
  size_t struct_size;
  void* stream;
  int32_t threads;
  void (*schedule)(void* pool, void (*fn)(void*), void* arg);
  void* pool;
} HasteExecutor;

#ifdef __cplusplus
}  // extern "C"

namespace haste {
template <class T>
constexpr T Init() {
  return T{sizeof(T)};
}
}  // namespace haste
#endif

#endif  // HASTE_LIB_HASTE_C_API_TYPES_H_
