// Runs an exported Keras model from C: TensorFlow's C API, with our op library or without.
//
//   serve MODEL_DIR INPUT OUTPUT N T C [LIBHASTE_OPS] < input.f32 > output.f32
//
// Reads N·T·C float32 from standard input, feeds them to the tensor INPUT, and writes the float32
// of the tensor OUTPUT. `saved_model_cli show --dir MODEL_DIR --tag_set serve --signature_def
// serving_default` names both tensors. A portable export needs no LIBHASTE_OPS, and is faster with
// it; docs/serving.md says how to build and run this program.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

static void Check(const TF_Status* status, const char* what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: %s\n", what, TF_Message(status));
  exit(1);
}

// The tensor "operation:index".
static TF_Output Find(TF_Graph* graph, const char* tensor) {
  char name[512] = "";
  TF_Output found = {NULL, 0};
  if (sscanf(tensor, "%511[^:]:%d", name, &found.index) >= 1) {
    found.oper = TF_GraphOperationByName(graph, name);
  }
  if (found.oper == NULL || found.index < 0 || found.index >= TF_OperationNumOutputs(found.oper)) {
    fprintf(stderr, "%s: the model has no such tensor\n", tensor);
    exit(1);
  }
  return found;
}

int main(int argc, char** argv) {
  if (argc != 7 && argc != 8) {
    fprintf(stderr, "usage: %s MODEL_DIR INPUT OUTPUT N T C [LIBHASTE_OPS] < input > output\n",
            argv[0]);
    return 2;
  }
  TF_Status* status = TF_NewStatus();
  if (argc == 8) {
    // The library registers its ops, and a graph optimizer that uses them in portable exports.
    TF_DeleteLibraryHandle(TF_LoadLibrary(argv[7], status));
    Check(status, argv[7]);
  }

  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  Check(status, argv[1]);
  TF_DeleteSessionOptions(options);

  const TF_Output input = Find(graph, argv[2]), output = Find(graph, argv[3]);
  const int64_t shape[] = {atoll(argv[4]), atoll(argv[5]), atoll(argv[6])};
  const size_t count = shape[0] * shape[1] * shape[2];
  TF_Tensor* x = TF_AllocateTensor(TF_FLOAT, shape, 3, count * sizeof(float));
  if (fread(TF_TensorData(x), sizeof(float), count, stdin) != count) {
    fprintf(stderr, "standard input: expected %zu float32\n", count);
    return 1;
  }
  TF_Tensor* y = NULL;
  TF_SessionRun(session, NULL, &input, &x, 1, &output, &y, 1, NULL, 0, NULL, status);
  Check(status, "TF_SessionRun");
  if (TF_TensorType(y) != TF_FLOAT) {
    fprintf(stderr, "%s: expected float32\n", argv[3]);
    return 1;
  }
  fwrite(TF_TensorData(y), 1, TF_TensorByteSize(y), stdout);

  TF_DeleteTensor(x);
  TF_DeleteTensor(y);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
