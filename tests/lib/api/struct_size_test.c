// struct_size of every structure of the C ABI, by a program in C99: what is too small, what comes
// from a newer header, and what was never set.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "haste/c_api.h"

static int failures = 0;
static HasteStatus status;

#define EXPECT(CONDITION)                                                                 \
  do {                                                                                    \
    if (!(CONDITION)) {                                                                   \
      ++failures;                                                                         \
      printf("%s:%d: expected %s: %s\n", __FILE__, __LINE__, #CONDITION, status.message); \
    }                                                                                     \
  } while (0)

#define REFUSED(CALL, NAME) \
  EXPECT((CALL) == HASTE_INVALID_ARGUMENT && strstr(status.message, NAME) == status.message)

// The structures of a call, and one of them as a caller of another header has it.
enum { kConfig, kArgs, kExecutor, kStructs };
static const char* const kNames[] = {"HasteRnnConfig", "HasteRnnForwardArgs", "HasteExecutor"};
static HasteRnnConfig config;
static HasteRnnForwardArgs args;
static HasteExecutor executor;
static const void* given[kStructs] = {&config, &args, &executor};
static const size_t kSizes[] = {sizeof config, sizeof args, sizeof executor};
static const size_t kEnds[] = {
    offsetof(HasteRnnConfig, allow_tf32) + sizeof(int32_t),
    offsetof(HasteRnnForwardArgs, saved) + sizeof(void*) * HASTE_MAX_SAVED,
    offsetof(HasteExecutor, pool) + sizeof(void*)};
static union {
  size_t struct_size;
  char bytes[4096];
} other;

static float wx[4] = {1, 1, 1, 1}, R[4] = {1, 1, 1, 1}, y[1];
static void* workspace;

static void Begin(void) {
  size_t bytes = 0;
  config = HASTE_INIT(HasteRnnConfig);
  config.cell = "lstm";
  config.batch = config.time = config.lanes = config.hidden = 1;
  config.recurrent_activation = HASTE_SIGMOID;
  args = HASTE_INIT(HasteRnnForwardArgs);
  args.wx = wx;
  args.R = R;
  args.y = y;
  executor = HASTE_INIT(HasteExecutor);
  executor.threads = 1;
  EXPECT(haste_rnn_workspace_bytes(&config, 0, &executor, &bytes, &status) == HASTE_OK);
  EXPECT(haste_allocate(HASTE_CPU, bytes, &workspace, &status) == HASTE_OK);
}

static int32_t Forward(void) {
  y[0] = 0;
  return haste_rnn_forward(given[kConfig], given[kArgs], workspace, given[kExecutor], &status);
}
static int Runs(void) { return Forward() == HASTE_OK && y[0] > 0.369f && y[0] < 0.370f; }
static int Refuses(int i, const char* says) {
  return Forward() == HASTE_INVALID_ARGUMENT &&
         strstr(status.message, kNames[i]) == status.message &&
         strstr(status.message, says) != NULL && y[0] == 0;
}

static void Sizes(int i) {
  const void* const ours = given[i];
  const size_t size = kSizes[i];
  char hint[64];
  EXPECT(Runs());
  memcpy(other.bytes, ours, size);
  given[i] = &other;

  other.struct_size = 0;
  snprintf(hint, sizeof hint, "HASTE_INIT(%s)", kNames[i]);
  EXPECT(Refuses(i, hint) && Refuses(i, "got 0"));
  other.struct_size = sizeof(size_t);
  EXPECT(Refuses(i, "got 8") || sizeof(size_t) != 8);
  other.struct_size = kEnds[i] - 1;
  EXPECT(Refuses(i, "struct_size"));
  other.struct_size = (size_t)&other;  // as of a caller that knows no struct_size
  EXPECT(Refuses(i, "struct_size"));
  other.struct_size = (size_t)-1;
  EXPECT(Refuses(i, "struct_size"));

  // Nobody looks beyond the caller's fields.
  memset(other.bytes + kEnds[i], 1, sizeof other - kEnds[i]);
  other.struct_size = kEnds[i];
  EXPECT(Runs());
  memcpy(other.bytes, ours, size);
  EXPECT(Runs());

  // A newer structure is taken where it asks for nothing that is new.
  memset(other.bytes + size, 0, sizeof other - size);
  other.struct_size = size + 24;
  EXPECT(Runs());
  other.struct_size = sizeof other;
  EXPECT(Runs());
  other.bytes[size + 24] = 1;
  EXPECT(Refuses(i, "newer version"));
  other.struct_size = size + 24;
  EXPECT(Runs());
  other.bytes[size + 23] = 1;
  EXPECT(Refuses(i, "newer version"));
  other.bytes[size + 23] = 0;
  other.bytes[size] = -1;
  EXPECT(Refuses(i, "newer version"));
  given[i] = ours;
  EXPECT(Runs());
}

// Every structure of every function.
static void Unset(void) {
  const HasteRnnConfig no_config = {0};
  const HasteExecutor none = {0};
  const HasteRnnForwardArgs no_forward = {0};
  const HasteRnnBackwardArgs no_backward = {0}, backward = HASTE_INIT(HasteRnnBackwardArgs);
  const HasteLayerForwardArgs no_layer = {0}, layer = HASTE_INIT(HasteLayerForwardArgs);
  const HasteLayerBackwardArgs no_grad = {0}, grad = HASTE_INIT(HasteLayerBackwardArgs);
  const HasteGemm no_gemm = {0}, gemm = HASTE_INIT(HasteGemm);
  const HasteLayerNorm no_norm = {0}, norm = HASTE_INIT(HasteLayerNorm);
  const HasteLayerNormGrad no_norm_grad = {0}, norm_grad = HASTE_INIT(HasteLayerNormGrad);
  const HasteWindows no_windows = {0}, windows = HASTE_INIT(HasteWindows);
  const HasteWindowsGrad no_windows_grad = {0}, windows_grad = HASTE_INIT(HasteWindowsGrad);
  const HasteDeviceProperties no_device = {0}, device = HASTE_INIT(HasteDeviceProperties);
  HasteStatus* const s = &status;
  size_t bytes = 0;
  char text[256];

  REFUSED(haste_rnn_workspace_bytes(&no_config, 0, &executor, &bytes, s), "HasteRnnConfig");
  REFUSED(haste_rnn_workspace_bytes(&config, 0, &none, &bytes, s), "HasteExecutor");
  REFUSED(haste_rnn_forward(&config, &no_forward, workspace, NULL, s), "HasteRnnForwardArgs");
  REFUSED(haste_rnn_backward(&no_config, &backward, workspace, NULL, s), "HasteRnnConfig");
  REFUSED(haste_rnn_backward(&config, &no_backward, workspace, NULL, s), "HasteRnnBackwardArgs");
  REFUSED(haste_rnn_backward(&config, &backward, workspace, &none, s), "HasteExecutor");

  REFUSED(haste_layer_forward_workspace_bytes(&no_config, &layer, NULL, &bytes, s),
          "HasteRnnConfig");
  REFUSED(haste_layer_forward_workspace_bytes(&config, &no_layer, NULL, &bytes, s),
          "HasteLayerForwardArgs");
  REFUSED(haste_layer_forward_workspace_bytes(&config, &layer, &none, &bytes, s), "HasteExecutor");
  REFUSED(haste_layer_forward(&no_config, &layer, &args, workspace, NULL, s), "HasteRnnConfig");
  REFUSED(haste_layer_forward(&config, &no_layer, &args, workspace, NULL, s),
          "HasteLayerForwardArgs");
  REFUSED(haste_layer_forward(&config, &layer, &no_forward, workspace, NULL, s),
          "HasteRnnForwardArgs");
  REFUSED(haste_layer_forward(&config, &layer, &args, workspace, &none, s), "HasteExecutor");
  REFUSED(haste_layer_backward_workspace_bytes(&no_config, &grad, NULL, &bytes, s),
          "HasteRnnConfig");
  REFUSED(haste_layer_backward_workspace_bytes(&config, &no_grad, NULL, &bytes, s),
          "HasteLayerBackwardArgs");
  REFUSED(haste_layer_backward_workspace_bytes(&config, &grad, &none, &bytes, s), "HasteExecutor");
  REFUSED(haste_layer_backward(&no_config, &grad, &backward, workspace, NULL, s), "HasteRnnConfig");
  REFUSED(haste_layer_backward(&config, &no_grad, &backward, workspace, NULL, s),
          "HasteLayerBackwardArgs");
  REFUSED(haste_layer_backward(&config, &grad, &no_backward, workspace, NULL, s),
          "HasteRnnBackwardArgs");
  REFUSED(haste_layer_backward(&config, &grad, &backward, workspace, &none, s), "HasteExecutor");

  REFUSED(haste_gemm_workspace_bytes(&no_gemm, &bytes, s), "HasteGemm");
  REFUSED(haste_gemm(&no_gemm, NULL, NULL, s), "HasteGemm");
  REFUSED(haste_gemm(&gemm, NULL, &none, s), "HasteExecutor");
  REFUSED(haste_layer_norm_workspace_bytes(&no_norm_grad, NULL, &bytes, s), "HasteLayerNormGrad");
  REFUSED(haste_layer_norm_workspace_bytes(&norm_grad, &none, &bytes, s), "HasteExecutor");
  REFUSED(haste_layer_norm(&no_norm, NULL, s), "HasteLayerNorm.");
  REFUSED(haste_layer_norm(&norm, &none, s), "HasteExecutor");
  REFUSED(haste_layer_norm_grad(&no_norm_grad, NULL, NULL, s), "HasteLayerNormGrad");
  REFUSED(haste_layer_norm_grad(&norm_grad, NULL, &none, s), "HasteExecutor");
  REFUSED(haste_windows(&no_windows, NULL, s), "HasteWindows.");
  REFUSED(haste_windows(&windows, &none, s), "HasteExecutor");
  REFUSED(haste_windows_grad(&no_windows_grad, NULL, s), "HasteWindowsGrad");
  REFUSED(haste_windows_grad(&windows_grad, &none, s), "HasteExecutor");

  REFUSED(haste_plan(&no_config, NULL, text, sizeof text, s), "HasteRnnConfig");
  REFUSED(haste_plan(&config, &none, text, sizeof text, s), "HasteExecutor");
  REFUSED(haste_plan_for(&no_config, &device, text, sizeof text, s), "HasteRnnConfig");
  REFUSED(haste_plan_for(&config, &no_device, text, sizeof text, s), "HasteDeviceProperties");
}

int main(void) {
  int i;
  Begin();
  for (i = 0; i < kStructs; ++i) Sizes(i);
  Unset();
  given[kExecutor] = NULL;
  EXPECT(Runs());
  given[kConfig] = NULL;
  EXPECT(Refuses(kConfig, "got NULL"));
  for (i = 0; i < haste_cell_count(); ++i) {
    EXPECT(haste_cell(i)->struct_size == sizeof(HasteCellInfo));
  }
  EXPECT(haste_free(HASTE_CPU, workspace, &status) == HASTE_OK);
  printf("struct_size_test: %s\n", failures == 0 ? "ok" : "FAILED");
  return failures == 0 ? 0 : 1;
}
