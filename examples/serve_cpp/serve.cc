// Runs an exported Keras model from C++: TensorFlow's own loader, with our op library or without.
//
//   serve MODEL_DIR N T C [LIBHASTE_OPS [SECONDS]] < input.f32 > output.f32
//
// Reads N·T·C float32 from standard input, feeds them to the model's serving signature, and writes
// the float32 outputs. A portable export needs no LIBHASTE_OPS, and is faster with it;
// `python -c "import haste_keras; print(haste_keras.library_path())"` names it; ""
// is none. With SECONDS it runs for so long and writes the median time of a call to standard error.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "tensorflow/c/c_api.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"

namespace {

double Median(std::vector<double>* values) {
  std::sort(values->begin(), values->end());
  return (*values)[values->size() / 2];
}

// Calls `run` for `seconds` and prints medians of the time of a call and of the CPU's time.
template <typename Run>
void PrintTimes(double seconds, const Run& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> wall, cpu;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    const auto start = Clock::now();
    const std::clock_t cpu_start = std::clock();
    run();
    cpu.push_back(1e3 * (std::clock() - cpu_start) / CLOCKS_PER_SEC);
    wall.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::fprintf(stderr, "%zu calls, median %.3f ms, %.3f ms of CPU time\n", wall.size(),
               Median(&wall), Median(&cpu));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 7) {
    std::fprintf(stderr,
                 "usage: %s MODEL_DIR N T C [LIBHASTE_OPS [SECONDS]] < input.f32 > output.f32\n",
                 argv[0]);
    return 2;
  }
  if (argc > 5 && argv[5][0] != '\0') {
    // The library registers its ops, and a graph optimizer that uses them in portable exports.
    TF_Status* status = TF_NewStatus();
    TF_Library* library = TF_LoadLibrary(argv[5], status);
    if (TF_GetCode(status) != TF_OK) {
      std::fprintf(stderr, "%s\n", TF_Message(status));
      return 1;
    }
    TF_DeleteStatus(status);
    TF_DeleteLibraryHandle(library);
  }

  tensorflow::SavedModelBundle model;
  const auto loaded = tensorflow::LoadSavedModel(
      tensorflow::SessionOptions(), tensorflow::RunOptions(), argv[1], {"serve"}, &model);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.ToString().c_str());
    return 1;
  }
  const auto& signature = model.meta_graph_def.signature_def().at("serving_default");

  tensorflow::Tensor input(tensorflow::DT_FLOAT,
                           {std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])});
  const size_t count = input.NumElements();
  if (std::fread(input.flat<float>().data(), sizeof(float), count, stdin) != count) {
    std::fprintf(stderr, "standard input: expected %zu float32\n", count);
    return 1;
  }
  std::vector<tensorflow::Tensor> outputs;
  const auto run = [&] {
    return model.session->Run({{signature.inputs().begin()->second.name(), input}},
                              {signature.outputs().begin()->second.name()}, {}, &outputs);
  };
  const auto ran = run();
  if (!ran.ok()) {
    std::fprintf(stderr, "%s\n", ran.ToString().c_str());
    return 1;
  }
  if (argc > 6) PrintTimes(std::atof(argv[6]), [&] { (void)run(); });
  std::fwrite(outputs[0].flat<float>().data(), sizeof(float), outputs[0].NumElements(), stdout);
  return 0;
}
