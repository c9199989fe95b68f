// The C ABI of haste: fused recurrences on CPU and CUDA, usable from any language.
//
// haste_rnn_* is the recurrence alone: it takes the projected input wx = x·W + b and returns the
// states. haste_layer_* adds the products around it.
//
//   N batch   T time steps   K lanes (independent recurrences: heads × directions)
//   H hidden units a lane    G gates    S states    C input features
//
// Tensors are dense, row-major, and of config.dtype unless a comment says otherwise. All
// pointers of one call live on config.device; a NULL is allowed only where it says so.
// Every function returns HASTE_OK or sets `status` and returns its code. Nothing throws: what the
// C++ underneath throws (no memory, no threads) comes back as HASTE_INTERNAL. No tensor may
// exceed 2^60 bytes, counted at 8 bytes an element. haste/c_api_types.h says what struct_size is.
#ifndef HASTE_LIB_HASTE_C_API_H_
#define HASTE_LIB_HASTE_C_API_H_

#include "haste/c_api_ops.h"
#include "haste/c_api_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HASTE_VERSION "0.1.0"

typedef enum {
  HASTE_TANH = 0,
  HASTE_SIGMOID = 1,
  HASTE_RELU = 2,
  HASTE_HARD_SIGMOID = 3,  // clip(x / 6 + 1 / 2, 0, 1)
  HASTE_LINEAR = 4,
  HASTE_EXPONENTIAL = 5,  // only as the recurrent_activation of cells with a stabiliser (sLSTM)
} HasteActivation;

// How the last h enters a step.
typedef enum {
  HASTE_DENSE = 0,     // h · R, R [K, H, G, H]
  HASTE_DIAGONAL = 1,  // u ∘ h, R = u [K, G, H]
  HASTE_NONE = 2       // not at all: the states are pooled, there is no R
} HasteRecurrence;

// What keeps |h| of a cell below a bound, where its activations have one.
typedef enum {
  HASTE_BOUND_NONE = 0,           // nothing
  HASTE_BOUND_ACTIVATION = 1,     // h is a value of the activation
  HASTE_BOUND_PRODUCT = 2,        // h is a product of values of both activations
  HASTE_BOUND_MEAN = 3,           // h is a mean of the last h and such a value, weighed by a gate
  HASTE_BOUND_WEIGHTED_MEAN = 4,  // h is at most a mean of such values, whatever the gates
} HasteStateBound;

typedef struct {
  size_t struct_size;
  const char* cell;                    // "lstm"; haste_cell_count/haste_cell list them
  const char* engine;                  // "auto" (or NULL), or the name of one: see haste_plan
  int32_t dtype;                       // HasteDtype
  int32_t device;                      // HasteDevice
  int64_t batch, time, lanes, hidden;  // N, T, K, H
  // [K] on the host, 1: the lane walks from T-1 to 0; NULL: no lane does.
  const uint8_t* reverse;
  int32_t activation;            // HasteActivation of the candidate and of the output
  int32_t recurrent_activation;  // HasteActivation of the gates
  // 1: Zoneout and dropout are drawn from seed; 0: Zoneout's expectation, no dropout.
  int32_t training;
  // At masked steps 1: y is 0; 0: y repeats the previous output of the walk.
  int32_t zero_output_for_mask;
  // The rate of each state, in [0, 1]; but see tied_zoneout.
  float zoneout[HASTE_MAX_STATES];
  // A rate in [0, 1): one mask [N, K, H] a call on h where R multiplies it, and nowhere else.
  float recurrent_dropout;
  float epsilon;       // added to a variance by cells that normalise
  int32_t allow_tf32;  // 1: float32 on CUDA may be as coarse as products in TensorFloat-32
  int32_t reserved;    // not looked at
  // Of R, and of W in a layer. HASTE_INT8: int8 with a scale for each column. 0, or dtype itself:
  // as dtype. See "int8" below.
  int32_t weights_dtype;
  int32_t reserved_after;  // 0
} HasteRnnConfig;

// int8, on a CPU, in inference (no `keep`, no backward), of cells with HASTE_DENSE, for float32,
// float16 and bfloat16. A weight is q·scale, where q is an int8 and its column (a unit of a gate)
// has the scale. Each row of the other operand (h, what a reset leaves of it, x) is quantised where
// it is multiplied: with m = max |h|, q_h = h · (127 / m), rounded to the nearest even, and the
// product is (Σ q_h·q) · (m / 127) · scale. The sum is exact, so that every processor gives the
// same bits. All else is as with weights of dtype. A row whose m is below 2^-120 counts as 0; one
// with an infinity or a NaN makes all its products NaN. Sums are of at most 131072 products.

// A cell: what its recurrence reads and writes. The tensors of a call are named after this.
typedef struct {
  size_t struct_size;                         // of the library: fields beyond it are not there
  const char* name;                           // "lstm"
  int32_t gates, states;                      // G, S
  const char* gate_names[HASTE_MAX_GATES];    // "i", "f", "g", "o"
  const char* state_names[HASTE_MAX_STATES];  // "h", "c"
  int32_t recurrence;                         // HasteRecurrence
  // 1: each gate is a tensor [N, T, K, H] of its own, in x[]; there is no wx and no `gates`.
  int32_t separate_gates;
  // 1: h·R goes through layer normalisation, and is kept in `products`.
  int32_t normalizes;
  // 1: the gradients of h·R differ from those of wx and are given as dq.
  int32_t splits_gradient;
  // 0, or r: gates 0 … r-1 take h·R, the others saved[1]·R (GRU, reset before the product).
  int32_t reset_gates;
  int32_t exponential;                        // 1: recurrent_activation may be HASTE_EXPONENTIAL
  int32_t tied_zoneout;                       // 1: zoneout[1] is that of all states but h
  int32_t extras;                             // parameters beside R
  const char* extra_names[HASTE_MAX_EXTRAS];  // "recurrent_bias"
  const char* extra_dims[HASTE_MAX_EXTRAS];   // "KGH" or "KH"
  int32_t saved;                              // tensors [N, T, K, H] that backward reads
  // "h_in": saved[0] is what was multiplied by R. With HASTE_BOUND_MEAN the last, "h_prev", is h
  // before recurrent dropout: written and read under recurrent dropout in training, else not
  // looked at.
  const char* saved_names[HASTE_MAX_SAVED];
  int32_t state_bound;  // HasteStateBound
} HasteCellInfo;

// The weights of a call, kept in the order in which a CPU multiplies them. The first call that is
// given the object packs R and, of haste_layer_forward, W into it, with their scales and biases.
// Later calls with the same R and W, cell, dtypes, K, H and C, and any N and T, read what was
// packed. Once one of these weights has changed, call haste_packed_weights_clear before the next
// call. Calls from several threads may share one. Results are the same bits with it and without.
// CUDA does not look at it.
typedef struct HastePackedWeights HastePackedWeights;

// An empty one. Free it after the last call that uses it has ended; freeing NULL does nothing.
HASTE_API int32_t haste_packed_weights_create(HastePackedWeights**, HasteStatus*);
HASTE_API int32_t haste_packed_weights_free(HastePackedWeights*, HasteStatus*);
// Forgets what was packed, not in the middle of a call that uses it.
HASTE_API int32_t haste_packed_weights_clear(HastePackedWeights*, HasteStatus*);
// Memory that it holds.
HASTE_API int32_t haste_packed_weights_bytes(const HastePackedWeights*, size_t* bytes,
                                             HasteStatus*);

// Pointers that a cell does not name (HasteCellInfo) are NULL and not looked at.
typedef struct {
  size_t struct_size;
  const void* wx;                       // [N, T, K, G, H] projected input
  const void* x[HASTE_MAX_GATES];       // separate_gates: each [N, T, K, H]
  const void* R;                        // recurrent kernel, as HasteRecurrence says
  const void* extra[HASTE_MAX_EXTRAS];  // each as extra_dims says
  const void* s0[HASTE_MAX_STATES];     // each [N, K, H], or NULL: zeros
  const uint8_t* mask;                  // [N, T] nonzero: a live step; NULL: all live
  const int64_t* seed;                  // [2]; NULL when nothing is drawn
  void* y;                              // [N, T, K, H] outputs
  void* sT[HASTE_MAX_STATES];           // each [N, K, H] final states, or NULL: not wanted
  // What backward reads; keep = 0: none of it is written and all may be NULL.
  int32_t keep;
  void* gates;                   // [N, T, K, G, H] gates after their activations (or what the cell
                                 // says backward needs in place of one); may be wx itself
  void* products;                // normalizes: [N, T, K, G, H] h·R
  void* saved[HASTE_MAX_SAVED];  // each [N, T, K, H], of the step; saved[0] of a cell with R is h
                                 // as it entered h·R (recurrent dropout applied)
  const float* R_scale;          // [K, G, H] of an int8 R
  HastePackedWeights* packed;    // where weights stay packed between calls, or NULL
} HasteRnnForwardArgs;

typedef struct {
  size_t struct_size;
  const void* x[HASTE_MAX_GATES];
  const void* R;
  const void* extra[HASTE_MAX_EXTRAS];
  const uint8_t* mask;
  const int64_t* seed;
  const void* gates;
  const void* products;
  const void* saved[HASTE_MAX_SAVED];
  const void* dy;                     // [N, T, K, H] or NULL: zero
  const void* dsT[HASTE_MAX_STATES];  // each [N, K, H] or NULL: zero
  void* dwx;                          // [N, T, K, G, H]; may be gates itself
  void* dx[HASTE_MAX_GATES];          // separate_gates: each [N, T, K, H]; may be x itself
  // splits_gradient: [N, T, K, G, H] gradient of h·R; may be products itself.
  void* dq;
  // HASTE_DIAGONAL: [K, G, H]. (Dense: a product of saved[0] and dq or dwx, which the caller
  // makes.)
  void* dR;
  void* dextra[HASTE_MAX_EXTRAS];
  void* ds0[HASTE_MAX_STATES];  // each [N, K, H] or NULL: not wanted
} HasteRnnBackwardArgs;

// Bytes of scratch memory that forward/backward wants on the device; 64-byte alignment. On a CPU
// they depend on the threads: config and executor are those of the call, here and below.
HASTE_API int32_t haste_rnn_workspace_bytes(const HasteRnnConfig*, int32_t backward,
                                            const HasteExecutor*, size_t* bytes, HasteStatus*);
HASTE_API int32_t haste_rnn_forward(const HasteRnnConfig*, const HasteRnnForwardArgs*,
                                    void* workspace, const HasteExecutor*, HasteStatus*);
HASTE_API int32_t haste_rnn_backward(const HasteRnnConfig*, const HasteRnnBackwardArgs*,
                                     void* workspace, const HasteExecutor*, HasteStatus*);

// Memory of a device, aligned to 64 bytes, for callers that have no allocator of their own. Freeing
// NULL does nothing; on CUDA a free waits until the GPU has finished what was queued.
HASTE_API int32_t haste_allocate(int32_t device, size_t bytes, void** memory, HasteStatus*);
HASTE_API int32_t haste_free(int32_t device, void* memory, HasteStatus*);

// The recurrence with the products around it, for cells that take wx.
//   forward:  wx = x·W + b (into `wx`, scratch or the reserve), then haste_rnn_forward
//   backward: haste_rnn_backward, then dx = dwx·Wᵀ, dW = xᵀ·dwx, db = Σ dwx, dR = Σ h·dq
// With gamma, x·W goes through layer normalisation before b is added.
typedef struct {
  size_t struct_size;
  int64_t features;  // C
  const void* x;     // [N, T, C]
  const void* W;     // [C, K, G, H]
  const void* b;     // [K, G, H] or NULL
  // [N, T, K, G, H] written here; may equal forward.gates. NULL: the caller has no use for it. A
  // CPU then forms it a few steps at a time, in cache, where it can: gamma = NULL, a cell that does
  // not normalise, and float32, float64, int8 weights, or bfloat16 where the processor multiplies
  // it or has AVX-512. Else it lies as a whole in the workspace.
  void* wx;
  const void* gamma;     // [K, G, H], or NULL: no normalisation
  void* xw;              // gamma: [N, T, K, G, H] x·W before it, for backward; without one, wx
  const float* W_scale;  // [K, G, H] of an int8 W
} HasteLayerForwardArgs;
typedef struct {
  size_t struct_size;
  int64_t features;
  const void* x;
  const void* W;
  void* dx;  // [N, T, C] or NULL; not x, nor dy of the recurrence
  void* dW;  // [C, K, G, H] or NULL
  void* db;  // [K, G, H] or NULL
  void* dR;  // [K, H, G, H] or NULL; not for HASTE_DIAGONAL, whose dR haste_rnn_backward gives
  const void* gamma;  // [K, G, H] or NULL
  const void* xw;     // gamma: what forward left there
  void* dgamma;       // gamma: [K, G, H]
} HasteLayerBackwardArgs;
// Of layer, features, wx and gamma are looked at.
HASTE_API int32_t haste_layer_forward_workspace_bytes(const HasteRnnConfig*,
                                                      const HasteLayerForwardArgs* layer,
                                                      const HasteExecutor*, size_t* bytes,
                                                      HasteStatus*);
// rnn->wx is not looked at.
HASTE_API int32_t haste_layer_forward(const HasteRnnConfig*, const HasteLayerForwardArgs*,
                                      const HasteRnnForwardArgs* rnn, void* workspace,
                                      const HasteExecutor*, HasteStatus*);
// Of layer, features and gamma are looked at.
HASTE_API int32_t haste_layer_backward_workspace_bytes(const HasteRnnConfig*,
                                                       const HasteLayerBackwardArgs* layer,
                                                       const HasteExecutor*, size_t* bytes,
                                                       HasteStatus*);
HASTE_API int32_t haste_layer_backward(const HasteRnnConfig*, const HasteLayerBackwardArgs*,
                                       const HasteRnnBackwardArgs* rnn, void* workspace,
                                       const HasteExecutor*, HasteStatus*);

// One line of text that says which engine runs this, how it divides the work, and why: "lstm on
// cpu: 2 threads over rows, N=32 T=100 K=1 H=128: rows for every thread: no barrier".
HASTE_API int32_t haste_plan(const HasteRnnConfig*, const HasteExecutor*, char* text,
                             size_t capacity, HasteStatus*);

// A GPU, which need not be there.
typedef struct {
  size_t struct_size;
  int32_t sm_major, sm_minor;  // compute capability
  int32_t multiprocessors;
  int32_t shared_bytes_per_block;  // cudaDevAttrMaxSharedMemoryPerBlockOptin
  int64_t l2_bytes;
  // Clusters of so many thread blocks that are resident at once, each block alone on its
  // multiprocessor; 0: none.
  int32_t clusters[HASTE_MAX_CLUSTER + 1];
} HasteDeviceProperties;

// haste_plan of a config with device = HASTE_CUDA, for that GPU in place of the current one. Any
// build and machine can answer.
HASTE_API int32_t haste_plan_for(const HasteRnnConfig*, const HasteDeviceProperties*, char* text,
                                 size_t capacity, HasteStatus*);

// Cells that this library was built with.
HASTE_API int32_t haste_cell_count(void);
HASTE_API const HasteCellInfo* haste_cell(int32_t index);
HASTE_API const char* haste_version(void);
// The SIMD instructions that CPU kernels use on this machine: "AVX-512", "AVX2", "NEON" or
// "baseline".
HASTE_API const char* haste_cpu_target(void);

// The CUDA half is a library of its own, libhaste_cuda.so, of the same version. The first call that
// asks for it looks at $HASTE_CUDA_LIBRARY (a path; empty: there is none), else beside this
// library, else in ../haste_keras_cuda/ from there, where haste-keras-cuda installs it.
// Takes the one at `path`, before the first such call.
HASTE_API int32_t haste_load_cuda(const char* path, HasteStatus*);
// 1 if the CUDA half is there.
HASTE_API int32_t haste_has_cuda(void);
// HASTE_OK if it is there and the NVIDIA driver of this machine runs it. Neither initialises CUDA
// nor needs a GPU.
HASTE_API int32_t haste_cuda_driver_status(HasteStatus*);
// HASTE_OK if it runs on the current device. Initialises CUDA, and so do calls with device =
// HASTE_CUDA.
HASTE_API int32_t haste_cuda_status(HasteStatus*);

typedef struct {
  size_t struct_size;
  char path[4096];          // of libhaste_cuda.so; "" if it is linked in
  char architectures[256];  // what device code is compiled for: "75 80 90a compute_90"
  int32_t toolkit_version;  // CUDA that it is built with, as CUDA counts: 12040 is 12.4
  int32_t driver_version;   // the newest CUDA that the driver runs; 0: there is no driver
} HasteCudaInfo;
// What the CUDA half and the driver are, if the half is there. Does not initialise CUDA.
HASTE_API int32_t haste_cuda_info(HasteCudaInfo*, HasteStatus*);
// Properties of the current device, as plans count on them.
HASTE_API int32_t haste_cuda_device(HasteDeviceProperties*, HasteStatus*);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // HASTE_LIB_HASTE_C_API_H_
