// Weights that stay packed between calls: the same bits as without, for every cell, dtype and size;
// never those of weights that have changed.
#include "lib/engine/packed_weights.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "haste/rnn.h"
#include "tests/lib/check.h"
#include "tests/lib/simd_targets.h"
#include "tests/lib/stored.h"

namespace haste_test {
namespace {

struct Size {
  int64_t batch, time;
};

// Weights of a layer of a cell, and its calls.
class Layer {
 public:
  Layer(const HasteCellInfo& cell, int32_t dtype, bool int8, int64_t hidden, unsigned seed)
      : cell_(cell), dtype_(dtype), int8_(int8), H(hidden), random_(seed) {
    const bool dense = cell.recurrence == HASTE_DENSE;
    R_ = Matrix(cell.recurrence == HASTE_NONE ? 0 : dense ? H : 1, dense && int8);
    W_ = Matrix(C, int8);
    b_ = Draw(Columns(), 0.3);
    for (int e = 0; e < cell.extras; ++e) extras_.push_back(Draw(Columns(), 0.3));
  }

  // Other numbers in the same memory.
  void Change() {
    for (char& byte : R_) byte ^= 1;
    for (char& byte : W_) byte ^= 1;
  }

  // y and the final states. formed: of the layer, else of the recurrence.
  std::vector<char> Run(const Size& size, bool formed, HastePackedWeights* packed,
                        int threads = 2) const {
    haste::RnnConfig config = haste::Config(cell_.name, static_cast<HasteDtype>(dtype_), HASTE_CPU,
                                            size.batch, size.time, K, H);
    const uint8_t reverse[K] = {0, 1};
    config.reverse = reverse;
    if (cell_.exponential) config.recurrent_activation = HASTE_EXPONENTIAL;
    if (int8_) config.weights_dtype = HASTE_INT8;
    haste::Executor executor;
    executor.threads = threads;

    std::mt19937 random(static_cast<unsigned>(100 * size.batch + size.time));
    std::normal_distribution<double> normal;
    const auto input = [&](int64_t count) {
      Tensor values(count);
      for (double& v : values) v = normal(random);
      return Stored(dtype_, values);
    };
    const int64_t rows = size.batch * size.time, step = size.batch * K * H;
    Stored x = input(rows * C), wx = input(rows * Columns());
    std::vector<Stored> gates, states;
    haste::ForwardArgs args;
    args.wx = wx.data();
    for (int g = 0; cell_.separate_gates && g < cell_.gates; ++g) {
      gates.push_back(input(rows * K * H));
      args.x[g] = gates.back().data();
    }
    args.R = R_.data();
    args.R_scale = int8_ ? scale_.data() : nullptr;
    for (size_t e = 0; e < extras_.size(); ++e) args.extra[e] = extras_[e].data();
    Stored y(dtype_, rows * K * H);
    args.y = y.data();
    for (int s = 0; s < cell_.states; ++s) states.emplace_back(dtype_, step);
    for (int s = 0; s < cell_.states; ++s) args.sT[s] = states[s].data();
    args.packed = packed;
    haste::LayerForwardArgs layer;
    layer.features = C;
    layer.x = x.data();
    layer.W = W_.data();
    layer.W_scale = int8_ ? scale_.data() : nullptr;
    layer.b = b_.data();

    size_t bytes = 0;
    ExpectOk(formed ? haste::LayerForwardWorkspaceBytes(config, layer, &bytes, executor)
                    : haste::WorkspaceBytes(config, false, &bytes, executor));
    Scratch scratch(bytes);
    ExpectOk(formed ? haste::LayerForward(config, layer, args, scratch.data(), executor)
                    : haste::Forward(config, args, scratch.data(), executor));
    std::vector<char> result;
    const auto add = [&](Stored& tensor, int64_t count) {
      const char* from = static_cast<const char*>(tensor.data());
      result.insert(result.end(), from, from + count * haste::DtypeSize(dtype_));
    };
    add(y, rows * K * H);
    for (Stored& state : states) add(state, step);
    return result;
  }

  std::string Name() const {
    return std::string(cell_.name) + (int8_ ? ", int8" : "") + ", dtype " + std::to_string(dtype_) +
           ", H=" + std::to_string(H);
  }
  bool HasLayer() const { return !cell_.separate_gates; }
  bool Dense() const { return cell_.recurrence == HASTE_DENSE; }
  // Whether W is packed too; of 16 bits it depends on the processor.
  bool FormsInput() const { return !cell_.normalizes && (int8_ || haste::DtypeSize(dtype_) > 2); }

 private:
  static constexpr int64_t K = 2, C = 20;
  int64_t Columns() const { return K * cell_.gates * H; }

  std::vector<char> Draw(int64_t count, double size) {
    std::normal_distribution<double> normal;
    Tensor values(count);
    for (double& v : values) v = size * normal(random_);
    Stored stored(dtype_, values);
    const char* const from = static_cast<const char*>(stored.data());
    return {from, from + count * haste::DtypeSize(dtype_)};
  }
  std::vector<char> Matrix(int64_t depth, bool int8) {
    if (!int8) return Draw(depth * Columns(), 0.3);
    scale_.assign(Columns(), 0.004f);
    std::vector<char> q(depth * Columns());
    for (char& v : q) v = static_cast<char>(static_cast<int>(random_() % 255) - 127);
    return q;
  }

  const HasteCellInfo& cell_;
  const int32_t dtype_;
  const bool int8_;
  const int64_t H;
  std::mt19937 random_;
  std::vector<char> R_, W_, b_;
  std::vector<std::vector<char>> extras_;
  std::vector<float> scale_;
};

// One row of one, few and many steps; several rows; and again the first, of panels that are there.
constexpr Size kSizes[] = {{1, 1}, {1, 5}, {1, 40}, {2, 1}, {5, 9}, {33, 3}, {1, 1}};

void SameBits(Layer& layer, bool formed) {
  haste::PackedWeights packed;
  const char* const of = formed ? "layer" : "recurrence";
  for (const Size& size : kSizes) {
    const std::vector<char> want = layer.Run(size, formed, nullptr);
    haste::PackedWeights fresh;
    EXPECT_TRUE(layer.Run(size, formed, fresh.get()) == want, "%s: %s, N=%d T=%d, first call",
                layer.Name().c_str(), of, static_cast<int>(size.batch),
                static_cast<int>(size.time));
    for (const int threads : {1, 3}) {
      EXPECT_TRUE(layer.Run(size, formed, packed.get(), threads) == want,
                  "%s: %s, N=%d T=%d, %d threads, packed before", layer.Name().c_str(), of,
                  static_cast<int>(size.batch), static_cast<int>(size.time), threads);
    }
  }
  if (layer.Dense()) EXPECT_TRUE(packed.bytes() > 0, "%s: nothing packed", layer.Name().c_str());
}

// Packed weights are what is read, until they are cleared.
void Changed(Layer& layer) {
  haste::PackedWeights packed;
  const Size size = {2, 3};
  const bool formed = layer.FormsInput();
  const std::vector<char> before = layer.Run(size, formed, packed.get());
  layer.Change();
  const std::vector<char> after = layer.Run(size, formed, nullptr);
  EXPECT_TRUE(before != after, "%s: the change changes nothing", layer.Name().c_str());
  EXPECT_TRUE(layer.Run(size, formed, packed.get()) == before,
              "%s: packed weights are read, not those they were made of", layer.Name().c_str());
  packed.Clear();
  EXPECT_TRUE(packed.bytes() == 0, "%s: memory after a clear", layer.Name().c_str());
  EXPECT_TRUE(layer.Run(size, formed, packed.get()) == after, "%s: after a clear",
              layer.Name().c_str());
  layer.Change();
}

// Weights elsewhere are other weights; so is the recurrence of a layer.
void Others(const HasteCellInfo& cell) {
  haste::PackedWeights packed;
  const Size size = {3, 4};
  Layer one(cell, HASTE_FLOAT32, false, 24, 1), two(cell, HASTE_FLOAT32, false, 24, 2);
  for (const Layer* layer : {&one, &two, &one}) {
    for (const bool formed : {false, true}) {
      if (formed && !layer->HasLayer()) continue;
      EXPECT_TRUE(layer->Run(size, formed, packed.get()) == layer->Run(size, formed, nullptr),
                  "%s: other weights, %s", layer->Name().c_str(), formed ? "layer" : "recurrence");
    }
  }
}

// Calls at once, of which one packs.
void Threads(const Layer& layer) {
  const Size size = {4, 6};
  const std::vector<char> want = layer.Run(size, layer.HasLayer(), nullptr);
  haste::PackedWeights packed;
  std::vector<std::vector<char>> got(6);
  std::vector<std::thread> threads;
  for (std::vector<char>& result : got) {
    threads.emplace_back(
        [&] { result = layer.Run(size, layer.HasLayer(), packed.get(), /*threads=*/2); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<char>& result : got) {
    EXPECT_TRUE(result == want, "%s: calls at once", layer.Name().c_str());
  }
}

void NullPointers() {
  HasteStatus status = {};
  size_t bytes = 0;
  EXPECT_TRUE(haste_packed_weights_create(nullptr, &status) == HASTE_INVALID_ARGUMENT &&
                  strstr(status.message, "packed") != nullptr,
              "%s", status.message);
  EXPECT_TRUE(haste_packed_weights_clear(nullptr, &status) == HASTE_INVALID_ARGUMENT, "clear");
  EXPECT_TRUE(haste_packed_weights_bytes(nullptr, &bytes, &status) == HASTE_INVALID_ARGUMENT,
              "bytes");
  EXPECT_TRUE(haste_packed_weights_free(nullptr, &status) == HASTE_OK, "free");
}

void AllCells(unsigned seed) {
  for (int i = 0; i < haste_cell_count(); ++i) {
    const HasteCellInfo& cell = *haste_cell(i);
    std::vector<std::pair<int32_t, bool>> kinds = {{HASTE_FLOAT32, false},
                                                   {HASTE_FLOAT64, false},
                                                   {HASTE_FLOAT16, false},
                                                   {HASTE_BFLOAT16, false}};
    if (cell.recurrence == HASTE_DENSE) {
      kinds.emplace_back(HASTE_FLOAT32, true);
      kinds.emplace_back(HASTE_BFLOAT16, true);
    }
    for (const auto& [dtype, int8] : kinds) {
      for (const int64_t hidden : {32, 37}) {
        Layer layer(cell, dtype, int8, hidden, seed);
        SameBits(layer, false);
        if (layer.HasLayer()) SameBits(layer, true);
        if (layer.Dense()) Changed(layer);
        Threads(layer);
      }
    }
    Others(cell);
  }
}

// A child that is forked while a call packs has nobody who ends that.
void Forks() {
  HastePackedWeights packed;
  const haste::PackedKey key = {};
  const auto bytes = [] { return size_t{64}; };
  HastePackedWeights::Use packing(&packed, key, bytes);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    {
      HastePackedWeights::Use(&packed, key, bytes).Filled();
    }
    const bool found = HastePackedWeights::Use(&packed, key, bytes).filled();
    packed.Clear();
    _exit(found && packed.bytes() == 0 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(status == 0, "the child: %d", status);
}

}  // namespace
}  // namespace haste_test

int main() {
  const unsigned seed = haste_test::RandomSeed();
  return haste_test::OnTargets("packed_weights_test", {"baseline", "avx2", "avx3", "avx3_dot"},
                               [&](const char*) {
                                 haste_test::AllCells(seed);
                                 haste_test::NullPointers();
                                 haste_test::Forks();
                               });
}
