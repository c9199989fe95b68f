// Times large products, cut in several ways, and layers with some of their products during the
// walk. The data of benchmarks/fit_plan.py.
//
//   layer_timings path/to/libhaste_cuda.so products [SECONDS [SKIP]] >products_h200.csv
//   layer_timings path/to/libhaste_cuda.so layers [SECONDS [SKIP]] >layers_h200.csv
//
// SKIP: so many of the first rows are not timed, to go on after one that never ends. Where cuBLAS
// is not found, products that it would make are left out. Results are checked before they are
// timed.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/cpp/cuda_half.h"
#include "benchmarks/cpp/layer_rows.h"
#include "benchmarks/cpp/plan_problems.h"
#include "lib/base/dtypes.h"
#include "lib/base/status.h"
#include "lib/plan/gemm/layer_gemms.h"

namespace benchmark {
namespace {

constexpr int kMostFailures = 20;  // one after the other
constexpr int kChecked = 64;       // elements of a result

class Timings {
 public:
  Timings(const char* path, double seconds, int skipped)
      : backend_(LoadCudaHalf(path)),
        seconds_(seconds),
        skipped_(skipped),
        cuda_(Properties(backend_)),
        memory_(backend_, gpu_),
        begin_(std::chrono::steady_clock::now()) {
    executor_.stream = gpu_.stream();
  }

  void Products();
  void Layers();

 private:
  static haste::CudaProperties Properties(const haste::CudaBackend& backend) {
    haste::CudaProperties cuda;
    HasteStatus status = {};
    if (backend.properties(&cuda, &status) != HASTE_OK) Fail(status.message);
    cuda.has_cublas = true;
    return cuda;
  }

  double Spent() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  bool IsOver() const { return Spent() > seconds_; }
  void End() const {
    std::fprintf(stderr, "%d rows in %.0f s, %d failures\n", rows_, Spent(), failures_);
  }

  // Runs and checks a call, times it and prints the row.
  void Time(const std::string& row, const std::function<int32_t()>& call,
            const std::function<bool()>& is_right);
  void Failed(const std::string& row, const char* why);
  [[noreturn]] void Hangs(const std::string& row) const {
    std::fprintf(stderr, "%s hangs; go on with SKIP %d\n", row.c_str(), number_);
    _exit(3);  // whatever else ends the process waits for the GPU
  }

  void TimeProduct(const Product&);
  void TimeForward(const Layer&);
  void TimeBackward(const Layer&);
  // Of what a layer writes, some elements of each: the same as the first time.
  bool AreSame(const std::vector<std::pair<void*, int64_t>>& tensors, int32_t dtype,
               double tolerance, std::vector<std::vector<double>>* first) const;
  std::vector<double> SomeOf(const void* tensor, int64_t elements, int32_t dtype) const;
  int32_t Multiply(HasteGemm gemm, const void* a, const void* b, void* c) {
    gemm.a = a;
    gemm.b = b;
    gemm.c = c;
    return backend_.ops.gemm(gemm, memory_.scratch(), executor_, &status_);
  }
  // Calls time(cut, planned) for each cut of a layer.
  void EachCut(const Layer&, const HasteRnnConfig&,
               const std::function<void(const std::string& cut, const haste::PlannedRnn&)>& time);

  const haste::CudaBackend& backend_;
  const double seconds_;
  const int skipped_;
  const haste::CudaProperties cuda_;
  const Gpu gpu_;
  Memory memory_;
  HasteExecutor executor_ = {};
  HasteStatus status_ = {};
  const std::chrono::steady_clock::time_point begin_;
  int number_ = 0, rows_ = 0, failures_ = 0, in_a_row_ = 0;
};

void Timings::Failed(const std::string& row, const char* why) {
  std::fprintf(stderr, "%s: %s\n", row.c_str(), why);
  ++failures_;
  if (++in_a_row_ == kMostFailures) Fail("the GPU runs nothing more");
}

void Timings::Time(const std::string& row, const std::function<int32_t()>& call,
                   const std::function<bool()>& is_right) {
  if (number_++ < skipped_ || IsOver()) return;
  status_ = {};
  gpu_.Start();
  if (call() != HASTE_OK) return Failed(row, status_.message);
  if (gpu_.MicrosecondsSinceStart() < 0) Hangs(row);
  if (!is_right()) return Failed(row, "the result is wrong");
  const double microseconds = MedianMicroseconds(gpu_, call, true);
  if (microseconds == kHangs) Hangs(row);
  if (microseconds <= 0) return Failed(row, status_.message);
  ++rows_;
  in_a_row_ = 0;
  std::printf("%s,%.4g,%.0f\n", row.c_str(), microseconds, gpu_.Megahertz());
  std::fflush(stdout);
}

std::vector<double> Timings::SomeOf(const void* tensor, int64_t elements, int32_t dtype) const {
  std::vector<double> some;
  const int64_t size = static_cast<int64_t>(haste::DtypeSize(dtype));
  for (int i = 0; i < kChecked; ++i) {
    const int64_t at = (elements - 1) * i / (kChecked - 1);
    double room;
    gpu_.Download(&room, static_cast<const char*>(tensor) + at * size, size);
    some.push_back(ElementOf(&room, 0, dtype));
  }
  return some;
}

bool Timings::AreSame(const std::vector<std::pair<void*, int64_t>>& tensors, int32_t dtype,
                      double tolerance, std::vector<std::vector<double>>* first) const {
  const bool is_first = first->empty();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<double> some = SomeOf(tensors[i].first, tensors[i].second, dtype);
    if (is_first) {
      first->push_back(some);
      continue;
    }
    double most = 0, off = 0;
    for (int j = 0; j < kChecked; ++j) {
      most = std::max(most, std::abs((*first)[i][j]));
      off = std::max(off, std::abs(some[j] - (*first)[i][j]));
    }
    if (!(off <= tolerance * most) || most == 0) {
      std::fprintf(stderr, "tensor %zu: off by %g of %g\n", i, off, most);
      return false;
    }
  }
  return true;
}

void Timings::TimeProduct(const Product& product) {
  HasteGemm gemm = product.Gemm();
  const size_t size = haste::DtypeSize(gemm.dtype);
  memory_.Restart();
  gemm.a = memory_.Read(gemm.m * gemm.k * size);
  gemm.b = memory_.Read(gemm.k * gemm.n * size);
  gemm.c = memory_.Write(gemm.m * gemm.n * sizeof(float));
  for (const ProductCut& cut : CutsOf(product, cuda_)) {
    const size_t scratch = cut.plan.ours ? cut.plan.bytes() + (1 << 20) : 0;
    if (!memory_.Fits(scratch)) return;
    const int32_t c_dtype = cut.plan.ours ? int32_t{HASTE_FLOAT32} : gemm.dtype;
    const double tolerance = product.dtype == "f32" ? 1e-5 : 1e-2;
    const auto is_right = [&] {
      const std::vector<double> some = SomeOf(gemm.c, gemm.m * gemm.n, c_dtype);
      for (int i = 0; i < kChecked; i += 4) {
        const int64_t at = (gemm.m * gemm.n - 1) * i / (kChecked - 1);
        const int64_t row = at / gemm.n, column = at % gemm.n;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < gemm.k; ++k) {
          const double term = memory_.At(gemm.a, row * gemm.a_row + k * gemm.a_col, gemm.dtype) *
                              memory_.At(gemm.b, k * gemm.b_row + column * gemm.b_col, gemm.dtype);
          sum += term;
          size += std::abs(term);
        }
        if (!(std::abs(some[i] - sum) <= tolerance * size)) return false;
      }
      return true;
    };
    const std::string row = product.name + "," + product.dtype + "," + std::to_string(product.m) +
                            "," + std::to_string(product.n) + "," + std::to_string(product.k) +
                            "," + cut.name;
    Time(
        row,
        [&] {
          return backend_.planned_gemm(gemm, cut.plan, memory_.scratch(), executor_, &status_);
        },
        is_right);
  }
}

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

bool EndsWith(const std::string& row, const char* cut) {
  const std::string end = std::string(",") + cut;
  return row.size() > end.size() && row.compare(row.size() - end.size(), end.size(), end) == 0;
}

double ToleranceOf(const Layer& layer) { return layer.walk.dtype == "f32" ? 1e-4 : 3e-2; }

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
  const std::vector<std::pair<void*, int64_t>> results = {{rnn.y, narrow}, {rnn.gates, wide}};
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
    Time(row, run, [&] { return AreSame(results, config.dtype, ToleranceOf(layer), &first); });
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
  const std::vector<std::pair<void*, int64_t>> results = {{args.dx, rows * layer.features},
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
    Time(row, run, [&] { return AreSame(results, config.dtype, ToleranceOf(layer), &first); });
  });
}

void Timings::Products() {
  PrintGpu(gpu_, cuda_);
  std::puts("product,dtype,m,n,k,cut,microseconds,mhz");
  // Those of gemm_plan_test, then drawn ones.
  static constexpr const char* kNames[] = {"input", "input_gradient", "kernel_gradient"};
  static constexpr const char* kDtypes[] = {"f32", "f32", "f32", "tf32", "bf16"};
  static constexpr int64_t kRows[] = {512,  1024,  2048,  2048,  4096, 6400,
                                      8192, 12800, 16384, 16384, 32768};
  static constexpr int64_t kWidths[] = {256,  384,  512,  640,  768,  1000, 1024,
                                        1536, 2048, 2304, 3072, 4096, 6144};
  // Smaller ones are not planned.
  static constexpr double kLeast = 4e8, kMost = 1.5e11;
  for (const char* dtype : {"f32", "tf32", "bf16"}) {
    for (const char* name : kNames) {
      for (int64_t rows : {2048, 16384}) {
        const int64_t c = 768, width = 3072;
        TimeProduct(name == kNames[0]   ? Product{name, dtype, rows, width, c}
                    : name == kNames[1] ? Product{name, dtype, rows, c, width}
                                        : Product{name, dtype, c, width, rows});
      }
    }
  }
  Draws draws;
  while (!IsOver() && number_ < 4000) {
    const std::string name = draws.Of(kNames), dtype = draws.Of(kDtypes);
    const int64_t rows = draws.Of(kRows), c = draws.Of(kWidths), width = draws.Of(kWidths);
    const double products = static_cast<double>(rows) * c * width;
    if (products < kLeast || products > kMost) continue;
    TimeProduct(name == kNames[2] ? Product{name, dtype, c, width, rows}
                                  : Product{name, dtype, rows, width, c});
  }
  End();
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

}  // namespace
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
