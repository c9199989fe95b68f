// The C ABI of what stands beside a recurrence: products, layer normalisation, and what a
// convolution over time sees. The rules at the top of haste/c_api.h hold here too.
#ifndef HASTE_LIB_HASTE_C_API_OPS_H_
#define HASTE_LIB_HASTE_C_API_OPS_H_

#include "haste/c_api_types.h"

#ifdef __cplusplus
extern "C" {
#endif

// c = a·b + bias, accumulated in float32 (double for double). a is [m, k], b [k, n], c [m, n]; an
// element (i, j) lies at i·row + j·col. Large float products on CUDA may make NaN of an infinity.
typedef struct {
  size_t struct_size;
  int32_t dtype, device;
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_col;
  const void* b;
  int64_t b_row, b_col;
  void* c;
  int64_t c_row;       // columns of c are contiguous
  const void* bias;    // [n] added to each row, or NULL
  int32_t allow_tf32;  // CUDA, float32: may be as coarse as TensorFloat-32
  int32_t reserved;    // not looked at
  // [n], or NULL. If given, b is int8, and the product that of "int8" in
  // haste/c_api.h: a's rows are quantised.
  const float* b_scale;
} HasteGemm;
// Scratch memory of haste_gemm, of the device, aligned to 64 bytes: for large float32 products on
// CUDA up to 16 MiB, or a third of the matrices, but no more than 96 MiB; for an int8 b some more
// than b has, with more than 32 rows; else none.
HASTE_API int32_t haste_gemm_workspace_bytes(const HasteGemm*, size_t* bytes, HasteStatus*);
HASTE_API int32_t haste_gemm(const HasteGemm*, void* workspace, const HasteExecutor*, HasteStatus*);

// Layer normalisation (Ba et al., arXiv 1607.06450) of each row [features] of each lane:
//   y = (x - mean) / sqrt(variance + epsilon) ∘ gamma + beta
typedef struct {
  size_t struct_size;
  int32_t dtype, device;
  int64_t rows, lanes, features;
  float epsilon;
  const void* x;      // [rows, lanes, features]
  const void* gamma;  // [lanes, features]
  const void* beta;   // [lanes, features], or NULL: zeros
  void* y;            // [rows, lanes, features]; may be x itself
} HasteLayerNorm;
typedef struct {
  size_t struct_size;
  int32_t dtype, device;
  int64_t rows, lanes, features;
  float epsilon;
  const void* x;
  const void* gamma;
  const void* dy;
  void* dx;      // may be dy itself
  void* dgamma;  // [lanes, features]
  void* dbeta;   // [lanes, features], or NULL: not wanted
} HasteLayerNormGrad;
// The gradient's scratch memory, of the device, aligned to 64 bytes.
HASTE_API int32_t haste_layer_norm_workspace_bytes(const HasteLayerNormGrad*, const HasteExecutor*,
                                                   size_t* bytes, HasteStatus*);
HASTE_API int32_t haste_layer_norm(const HasteLayerNorm*, const HasteExecutor*, HasteStatus*);
HASTE_API int32_t haste_layer_norm_grad(const HasteLayerNormGrad*, void* workspace,
                                        const HasteExecutor*, HasteStatus*);

// What a convolution over time sees (QRNN): at each step its input and those of the window - 1
// steps before it in the walk, oldest first. Masked steps are skipped: they see 0, and no other
// step sees them. haste_layer_* on `seen`, with features = window·C, is the layer of a direction.
typedef struct {
  size_t struct_size;
  int32_t dtype, device;
  int64_t batch, time, features, window;  // N, T, C, and how many steps, 1 or more
  int32_t reverse;                        // 1: the walk runs from the last step to the first
  const uint8_t* mask;                    // [N, T] nonzero: a live step; NULL: all live
  const void* x;                          // [N, T, C]
  const void* before;  // [N, window - 1, C] inputs before the walk, oldest first; NULL: zeros
  void* seen;          // [N, T, window, C]
  void* after;         // [N, window - 1, C] what is `before` to the next sequence, or NULL; not
                       // `before` itself
} HasteWindows;
typedef struct {
  size_t struct_size;
  int32_t dtype, device;
  int64_t batch, time, features, window;
  int32_t reverse;
  const uint8_t* mask;
  const void* dseen;
  const void* dafter;  // or NULL: zero
  void* dx;            // or NULL: not wanted
  void* dbefore;       // or NULL: not wanted
} HasteWindowsGrad;
HASTE_API int32_t haste_windows(const HasteWindows*, const HasteExecutor*, HasteStatus*);
HASTE_API int32_t haste_windows_grad(const HasteWindowsGrad*, const HasteExecutor*, HasteStatus*);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // HASTE_LIB_HASTE_C_API_OPS_H_
