// Runs an exported Keras model with haste layers from C++: TensorFlow's own loader, our op library.
//
//   serve MODEL_DIR LIBHASTE_OPS N T C < input.f32 > output.f32
//
// Reads N·T·C float32 from standard input, feeds them to the model's serving signature, and writes
// the float32 outputs. `python -c "import haste_keras; print(haste_keras.library_path())"` names
// LIBHASTE_OPS. A portable model (haste_keras.export) also runs without it: give - for none. With
// it the model's recurrences become our ops as it is loaded.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tensorflow/c/c_api.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"

// The ops register themselves when their library is loaded.
bool LoadOps(const char* path) {
  TF_Status* status = TF_NewStatus();
  TF_Library* library = TF_LoadLibrary(path, status);
  const bool ok = TF_GetCode(status) == TF_OK;
  if (!ok) std::fprintf(stderr, "%s\n", TF_Message(status));
  if (library != nullptr) TF_DeleteLibraryHandle(library);
  TF_DeleteStatus(status);
  return ok;
}

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s MODEL_DIR LIBHASTE_OPS N T C < input.f32 > output.f32\n",
                 argv[0]);
    return 2;
  }
  if (std::strcmp(argv[2], "-") != 0 && !LoadOps(argv[2])) return 1;

  tensorflow::SavedModelBundle model;
  const auto loaded = tensorflow::LoadSavedModel(
      tensorflow::SessionOptions(), tensorflow::RunOptions(), argv[1], {"serve"}, &model);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.ToString().c_str());
    return 1;
  }
  const auto& signature = model.meta_graph_def.signature_def().at("serving_default");

  tensorflow::Tensor input(tensorflow::DT_FLOAT,
                           {std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[5])});
  const size_t count = input.NumElements();
  if (std::fread(input.flat<float>().data(), sizeof(float), count, stdin) != count) {
    std::fprintf(stderr, "standard input: expected %zu float32\n", count);
    return 1;
  }
  std::vector<tensorflow::Tensor> outputs;
  const auto ran = model.session->Run({{signature.inputs().begin()->second.name(), input}},
                                      {signature.outputs().begin()->second.name()}, {}, &outputs);
  if (!ran.ok()) {
    std::fprintf(stderr, "%s\n", ran.ToString().c_str());
    return 1;
  }
  std::fwrite(outputs[0].flat<float>().data(), sizeof(float), outputs[0].NumElements(), stdout);
  return 0;
}
