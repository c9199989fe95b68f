// The C ABI of haste: fused recurrences on CPU and CUDA, usable from any language.
//
// An operation is only the recurrence: it takes the projected input wx = x·W + b and
// returns the states; haste_layer_* adds the products around it for callers that have no
// linear algebra of their own.
//
//   N batch   T time steps   K lanes (independent recurrences: heads × directions)
//   H hidden units a lane    G gates    S states    C input features
//
// Tensors are dense, row-major, and of config.dtype unless a comment says otherwise. All
// pointers of one call live on config.device; a NULL is allowed only where it says so.
// Every function returns HASTE_OK or sets `status` and returns its code. Nothing throws: what the
// C++ underneath throws (no memory, no threads) comes back as HASTE_INTERNAL. No tensor may
// exceed 2^60 bytes, counted at 8 bytes an element.
#ifndef HASTE_LIB_HASTE_C_API_H_
#define HASTE_LIB_HASTE_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HASTE_API __attribute__((visibility("default")))
#define HASTE_MAX_STATES 4
#define HASTE_VERSION "0.1.0"

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
  HASTE_BFLOAT16 = 3
} HasteDtype;

typedef enum { HASTE_CPU = 0, HASTE_CUDA = 1 } HasteDevice;

typedef enum {
  HASTE_TANH = 0,
  HASTE_SIGMOID = 1,
  HASTE_RELU = 2,
  HASTE_HARD_SIGMOID = 3,  // clip(x / 6 + 1 / 2, 0, 1)
  HASTE_LINEAR = 4,
} HasteActivation;

typedef struct {
  const char* cell;                    // "lstm"; haste_cell_count/haste_cell list them
  const char* engine;                  // "auto" (or NULL), or the name of one: see haste_plan
  int32_t dtype;                       // HasteDtype
  int32_t device;                      // HasteDevice
  int64_t batch, time, lanes, hidden;  // N, T, K, H
  const uint8_t* reverse;  // [K] on the host, 1: the lane walks from T-1 to 0; NULL: none does
  int32_t activation;      // HasteActivation of the candidate and of the output
  int32_t recurrent_activation;  // HasteActivation of the gates
  int32_t training;  // 1: draw Zoneout and dropout from seed; 0: Zoneout's expectation, no dropout
  int32_t zero_output_for_mask;  // masked steps: 1: y is 0; 0: y repeats the previous output of the
                                 // walk
  float zoneout[HASTE_MAX_STATES];  // rate for each state, in [0, 1]
  float recurrent_dropout;  // rate in [0, 1): one mask [N, K, H] a call on h where it enters h·R
} HasteRnnConfig;

typedef struct {
  const void* wx;                    // [N, T, K, G, H] projected input
  const void* R;                     // [K, H, G, H] recurrent kernel
  const void* s0[HASTE_MAX_STATES];  // each [N, K, H], or NULL: zeros
  const uint8_t* mask;               // [N, T] nonzero: a live step; NULL: all live
  const int64_t* seed;               // [2]; NULL when nothing is drawn
  void* y;                           // [N, T, K, H] outputs
  void* sT[HASTE_MAX_STATES];        // each [N, K, H] final states, or NULL: not wanted
  // What backward reads; both NULL when no backward follows.
  void* gates;  // [N, T, K, G, H] gates after their activations; may be wx itself
  void* states[HASTE_MAX_STATES];  // each [N, T, K, H] states that enter each step; states[0] is h
                                   // as it enters h·R (recurrent dropout applied)
} HasteRnnForwardArgs;

typedef struct {
  const void* R;
  const uint8_t* mask;
  const int64_t* seed;
  const void* gates;
  const void* states[HASTE_MAX_STATES];
  const void* dy;                     // [N, T, K, H] or NULL: zero
  const void* dsT[HASTE_MAX_STATES];  // each [N, K, H] or NULL: zero
  void* dwx;                          // [N, T, K, G, H]; may be gates itself
  void* ds0[HASTE_MAX_STATES];        // each [N, K, H] or NULL: not wanted
} HasteRnnBackwardArgs;

// Where the work runs. CPU: `schedule` hands fn(arg) to another thread of a pool of
// `threads` (the caller's own included) and returns at once; NULL uses haste's own threads,
// `threads` of them (0: one a core). CUDA: `stream` is a cudaStream_t; calls are ordered on it.
typedef struct {
  void* stream;
  int32_t threads;
  void (*schedule)(void* pool, void (*fn)(void*), void* arg);
  void* pool;
} HasteExecutor;

// Bytes of scratch memory that forward/backward wants on the device; 64-byte alignment.
HASTE_API int32_t haste_rnn_workspace_bytes(const HasteRnnConfig*, int32_t backward,
                                            const HasteExecutor*, size_t* bytes, HasteStatus*);
HASTE_API int32_t haste_rnn_forward(const HasteRnnConfig*, const HasteRnnForwardArgs*,
                                    void* workspace, const HasteExecutor*, HasteStatus*);
HASTE_API int32_t haste_rnn_backward(const HasteRnnConfig*, const HasteRnnBackwardArgs*,
                                     void* workspace, const HasteExecutor*, HasteStatus*);

// c = a·b + bias, accumulated in float32 (double for double). a is [m, k], b is [k, n],
// c is [m, n]; each element (i, j) lies at i·row_stride + j·col_stride.
typedef struct {
  int32_t dtype, device;
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_col;
  const void* b;
  int64_t b_row, b_col;
  void* c;
  int64_t c_row;     // columns of c are contiguous
  const void* bias;  // [n] added to each row, or NULL
} HasteGemm;
HASTE_API int32_t haste_gemm(const HasteGemm*, const HasteExecutor*, HasteStatus*);

// The recurrence with the products around it.
//   forward:  wx = x·W + b (into `wx`, scratch or the reserve), then haste_rnn_forward
//   backward: haste_rnn_backward, then dx = dwx·Wᵀ, dW = xᵀ·dwx, db = Σ dwx, dR = Σ h·dwx
typedef struct {
  int64_t features;  // C
  const void* x;     // [N, T, C]
  const void* W;     // [C, K, G, H]
  const void* b;     // [K, G, H] or NULL
  void* wx;          // [N, T, K, G, H] written here; may equal forward.gates
} HasteLayerForwardArgs;
typedef struct {
  int64_t features;
  const void* x;
  const void* W;
  void* dx;  // [N, T, C] or NULL
  void* dW;  // [C, K, G, H] or NULL
  void* db;  // [K, G, H] or NULL
  void* dR;  // [K, H, G, H] or NULL
} HasteLayerBackwardArgs;
HASTE_API int32_t haste_layer_forward(const HasteRnnConfig*, const HasteLayerForwardArgs*,
                                      HasteRnnForwardArgs* rnn, void* workspace,
                                      const HasteExecutor*, HasteStatus*);
HASTE_API int32_t haste_layer_backward(const HasteRnnConfig*, const HasteLayerBackwardArgs*,
                                       const HasteRnnBackwardArgs* rnn, void* workspace,
                                       const HasteExecutor*, HasteStatus*);

// One line of text that says which engine runs this and why: "lstm on cpu: 2 threads over rows,
// N=32 T=100 K=1 H=128: rows for every thread: no barrier". On the CPU it names the threads and
// what they share out (rows of the batch, or hidden units); on CUDA engine, sizes and reason.
HASTE_API int32_t haste_plan(const HasteRnnConfig*, const HasteExecutor*, char* text,
                             size_t capacity, HasteStatus*);

// Cells that this library was built with.
typedef struct {
  const char* name;                           // "lstm"
  int32_t gates, states;                      // G, S
  const char* state_names[HASTE_MAX_STATES];  // "h", "c"
} HasteCellInfo;
HASTE_API int32_t haste_cell_count(void);
HASTE_API const HasteCellInfo* haste_cell(int32_t index);

HASTE_API const char* haste_version(void);
// 1 if the library has CUDA code; haste_cuda_status says whether a device and its driver can run
// it.
HASTE_API int32_t haste_has_cuda(void);
HASTE_API int32_t haste_cuda_status(HasteStatus*);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // HASTE_LIB_HASTE_C_API_H_
