// Times large products, cut in several ways, and layers with some of their products during the
// walk. The data of benchmarks/fit_plan.py.
//
//   layer_timings path/to/libhaste_cuda.so products [SECONDS [SKIP]] >products_h200.csv
//   layer_timings path/to/libhaste_cuda.so layers [SECONDS [SKIP]] >layers_h200.csv
//
// SKIP: so many of the first rows are not timed, to go on after one that never ends. Where cuBLAS
// is not found, products that it would make are left out. Results are checked before they are
// timed.
#include "benchmarks/cpp/planner/layer_timings.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/dtypes.h"
#include "lib/base/status.h"
#include "lib/plan/gemm/layer_gemms.h"

namespace benchmark {

void Timings::EachCut(
    const Layer& layer, const HasteRnnConfig& config,
    const std::function<void(const std::string& cut, const haste::PlannedRnn&)>& time) {
  haste::PlannedRnn planned;
  const Problem& walk = layer.walk;
  if (backend_.plan(config, walk.CellIndex(), walk.backward, executor_, &planned, &status_) !=
      HASTE_OK) {
    return Failed("a plan", status_.message);
  }
  for (const LayerCut& cut : CutsOf(layer, planned.plan, cuda_)) {
    planned.plan = cut.plan;
    std::string row = walk.cell + "," + walk.dtype;
    for (int64_t size : {walk.batch, walk.lanes, walk.hidden, layer.time, layer.features}) {
      row += "," + std::to_string(size);
    }
    row += "," + std::to_string(walk.backward) + "," + haste::EngineName(cut.plan.engine) + " " +
           NameOf(cut.plan, walk.Cell()) + "," + cut.name;
    time(row, planned);
  }
}

namespace {

bool EndsWith(const std::string& row, const char* cut) {
  const std::string end = std::string(",") + cut;
  return row.size() > end.size() && row.compare(row.size() - end.size(), end.size(), end) == 0;
}

double ToleranceOf(const Layer& layer) { return layer.walk.dtype == "f32" ? 1e-4 : 3e-2; }

}  // namespace

void Timings::TimeForward(const Layer& layer) {
  HasteRnnConfig config = layer.Config();
  config.training = 1;
  const HasteCellInfo& cell = layer.walk.Cell();
  const size_t size = haste::DtypeSize(config.dtype);
  const int64_t rows = config.batch * config.time, narrow = rows * config.lanes * config.hidden;
  const int64_t wide = narrow * cell.gates, lanes_wide = config.lanes * cell.gates * config.hidden;
  memory_.Restart();
  HasteLayerForwardArgs args = HASTE_INIT(HasteLayerForwardArgs);
  HasteRnnForwardArgs rnn = HASTE_INIT(HasteRnnForwardArgs);
  args.features = layer.features;
  args.x = memory_.Read(rows * layer.features * size);
  args.W = memory_.Read(layer.features * lanes_wide * size);
  args.b = memory_.Read(lanes_wide * size);
  rnn.R = memory_.Read(config.hidden * lanes_wide * size);
  for (int i = 0; i < cell.extras; ++i) rnn.extra[i] = memory_.Read(lanes_wide * size);
  args.wx = memory_.Write(wide * size);
  rnn.wx = args.wx;
  rnn.keep = 1;
  rnn.gates = args.wx;
  rnn.y = memory_.Write(narrow * size);
  for (int i = 0; i < cell.saved; ++i) rnn.saved[i] = memory_.Write(narrow * size);
  const Tensors results = {{rnn.y, narrow}, {rnn.gates, wide}};
  std::vector<std::vector<double>> first;
  EachCut(layer, config, [&](const std::string& row, const haste::PlannedRnn& planned) {
    const haste::Engine& engine = *planned.engine;
    size_t scratch = engine.workspace_bytes(config, planned);
    if (backend_.overlapped_input_bytes(config, layer.walk.CellIndex(), planned, args, &scratch,
                                        &status_) != HASTE_OK ||
        !memory_.Fits(scratch)) {
      return Failed(row, "too large to time");
    }
    const haste::RnnCall call = {config, planned, memory_.scratch(), executor_};
    if (EndsWith(row, "walk")) {
      return Time(row, [&] { return engine.forward(call, rnn, &status_); }, [] { return true; });
    }
    const bool apart = EndsWith(row, "apart");
    const auto run = [&]() -> int32_t {
      bool done = false;
      if (!apart) {
        HASTE_TRY(backend_.overlapped_layer_forward(call, layer.walk.CellIndex(), args, rnn, &done,
                                                    &status_));
        return done ? int32_t{HASTE_OK}
                    : haste::SetStatus(&status_, HASTE_INTERNAL, "nothing was overlapped");
      }
      HasteGemm gemm = haste::InputProduct(config, cell, layer.features);
      gemm.bias = args.b;
      HASTE_TRY(Multiply(gemm, args.x, args.W, args.wx));
      return engine.forward(call, rnn, &status_);
    };
    Time(row, run,
         [&] { return AreSame(gpu_, results, config.dtype, ToleranceOf(layer), &first); });
  });
}

void Timings::TimeBackward(const Layer& layer) {
  HasteRnnConfig config = layer.Config();
  config.training = 1;
  const HasteCellInfo& cell = layer.walk.Cell();
  const int64_t size = static_cast<int64_t>(haste::DtypeSize(config.dtype));
  const int64_t rows = config.batch * config.time, narrow = rows * config.lanes * config.hidden;
  const int64_t wide = narrow * cell.gates, lane = cell.gates * config.hidden;
  const int64_t lanes_wide = config.lanes * lane;
  memory_.Restart();
  HasteLayerBackwardArgs args = HASTE_INIT(HasteLayerBackwardArgs);
  HasteRnnBackwardArgs rnn = HASTE_INIT(HasteRnnBackwardArgs);
  args.features = layer.features;
  args.x = memory_.Read(rows * layer.features * size);
  args.W = memory_.Read(layer.features * lanes_wide * size);
  rnn.R = memory_.Read(config.hidden * lanes_wide * size);
  rnn.gates = memory_.Read(wide * size);
  rnn.dy = memory_.Read(narrow * size);
  for (int i = 0; i < cell.saved; ++i) rnn.saved[i] = memory_.Read(narrow * size);
  for (int i = 0; i < cell.extras; ++i) {
    rnn.extra[i] = memory_.Read(lanes_wide * size);
    rnn.dextra[i] = memory_.Write(lanes_wide * size);
  }
  rnn.dwx = memory_.Write(wide * size);
  if (cell.splits_gradient) rnn.dq = memory_.Write(wide * size);
  args.dx = memory_.Write(rows * layer.features * size);
  args.dW = memory_.Write(layer.features * lanes_wide * size);
  args.dR = memory_.Write(config.hidden * lanes_wide * size);
  args.db = memory_.Write(lanes_wide * size);
  const Tensors results = {{args.dx, rows * layer.features},
                           {args.dW, layer.features * lanes_wide},
                           {args.dR, config.hidden * lanes_wide}};
  std::vector<std::vector<double>> first;
  EachCut(layer, config, [&](const std::string& row, const haste::PlannedRnn& planned) {
    const haste::Engine& engine = *planned.engine;
    size_t scratch = engine.workspace_bytes(config, planned);
    if (backend_.overlapped_gradients_bytes(config, layer.walk.CellIndex(), planned, args, &scratch,
                                            &status_) != HASTE_OK ||
        !memory_.Fits(scratch)) {
      return Failed(row, "too large to time");
    }
    const haste::RnnCall call = {config, planned, memory_.scratch(), executor_};
    if (EndsWith(row, "walk")) {
      return Time(row, [&] { return engine.backward(call, rnn, &status_); }, [] { return true; });
    }
    const bool apart = EndsWith(row, "apart");
    const auto run = [&]() -> int32_t {
      bool done = false;
      if (!apart) {
        HASTE_TRY(backend_.overlapped_layer_backward(call, layer.walk.CellIndex(), args, rnn, &done,
                                                     &status_));
        return done ? int32_t{HASTE_OK}
                    : haste::SetStatus(&status_, HASTE_INTERNAL, "nothing was overlapped");
      }
      HASTE_TRY(engine.backward(call, rnn, &status_));
      HASTE_TRY(backend_.ops.reduce_rows(config.dtype, rows, lanes_wide, rnn.dwx, args.db,
                                         executor_, &status_));
      const char* const dq = static_cast<const char*>(cell.splits_gradient ? rnn.dq : rnn.dwx);
      for (int64_t k = 0; k < config.lanes; ++k) {
        HASTE_TRY(Multiply(haste::RecurrentProduct(config, cell, 0),
                           static_cast<const char*>(rnn.saved[0]) + k * config.hidden * size,
                           dq + k * lane * size,
                           static_cast<char*>(args.dR) + k * config.hidden * lane * size));
      }
      HASTE_TRY(Multiply(haste::InputGradientProduct(config, cell, layer.features), rnn.dwx, args.W,
                         args.dx));
      return Multiply(haste::KernelGradientProduct(config, cell, layer.features), args.x, rnn.dwx,
                      args.dW);
    };
    Time(row, run,
         [&] { return AreSame(gpu_, results, config.dtype, ToleranceOf(layer), &first); });
  });
}

void Timings::Layers() {
  PrintGpu(gpu_, cuda_);
  std::puts("cell,dtype,batch,lanes,hidden,time,features,backward,walk,cut,microseconds,mhz");
  static constexpr const char* kCells[] = {"lstm", "lstm", "lstm", "gru", "elman", "slstm"};
  static constexpr const char* kDtypes[] = {"f32", "f32", "tf32", "bf16", "bf16"};
  static constexpr int64_t kBatches[] = {4, 8, 16, 16, 24, 32, 48, 64};
  static constexpr int64_t kHidden[] = {256, 320, 384, 512, 640, 768, 896, 1024};
  static constexpr int64_t kFeatures[] = {256, 512, 768, 1024, 1536, 2048};
  static constexpr int64_t kTimes[] = {256, 512, 600, 1024};
  const auto time = [&](Layer layer) {
    layer.walk.backward = false;
    TimeForward(layer);
    layer.walk.backward = true;
    TimeBackward(layer);
  };
  for (const char* dtype : {"f32", "tf32", "bf16"}) {
    for (int64_t lanes : {1, 2}) time({{"lstm", dtype, 16, lanes, 768, false}, 1024, 768});
  }
  Draws draws;
  while (!IsOver() && number_ < 4000) {
    Layer layer = {};
    layer.walk.cell = draws.Of(kCells);
    layer.walk.dtype = draws.Of(kDtypes);
    layer.walk.batch = draws.Of(kBatches);
    layer.walk.lanes = draws.Of({1, 1, 2});
    layer.walk.hidden = draws.Of(kHidden);
    layer.time = draws.Of(kTimes);
    layer.features = draws.Of(kFeatures);
    time(layer);
  }
  End();
}

}  // namespace benchmark

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[2] : "";
  if (argc > 5 || (what != "products" && what != "layers")) {
    benchmark::Fail(
        "usage: layer_timings path/to/libhaste_cuda.so products|layers [SECONDS [SKIP]]");
  }
  benchmark::Timings timings(argv[1], argc > 3 ? std::atof(argv[3]) : 60,
                             argc > 4 ? std::atoi(argv[4]) : 0);
  if (what == "products") {
    timings.Products();
  } else {
    timings.Layers();
  }
  return 0;
}
