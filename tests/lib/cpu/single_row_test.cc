// A row's result must not depend on the rows beside it. The CPU engine reads R and W in place for a
// single row, and kernels multiply tiles of one to eight rows: the first of several equals it bit
// for bit.
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "lib/base/dtypes.h"
#include "tests/lib/problem.h"

namespace haste_test {
namespace {

// Elements of a dtype, by rows of the batch.
class Array {
 public:
  Array(int32_t dtype, int64_t count)
      : dtype_(dtype), size_(haste::DtypeSize(dtype)), bytes_(count * size_) {}

  Array& Fill(std::mt19937& random, double scale) {
    std::normal_distribution<double> normal(0, scale);
    for (int64_t i = 0; i < count(); ++i) Set(i, normal(random));
    return *this;
  }
  // The same row again and again.
  Array Times(int64_t rows) const {
    Array all(dtype_, rows * count());
    for (int64_t n = 0; n < rows; ++n)
      memcpy(all.data() + n * bytes_.size(), data(), bytes_.size());
    return all;
  }
  bool BeginsAs(const Array& other) const {
    return memcmp(data(), other.data(), other.bytes_.size()) == 0;
  }
  // Copies them to `memory`, to begin `after` elements behind a cache line's begin.
  const char* CopyTo(int64_t after, std::vector<char>* memory) const {
    constexpr size_t kLine = 64;
    memory->resize(bytes_.size() + after * size_ + kLine);
    char* to = memory->data();
    to += (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine + after * size_;
    memcpy(to, data(), bytes_.size());
    return to;
  }
  int64_t count() const { return static_cast<int64_t>(bytes_.size() / size_); }
  char* data() { return bytes_.data(); }
  const char* data() const { return bytes_.data(); }

 private:
  void Set(int64_t i, double value) {
    const float single = static_cast<float>(value);
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    // Truncated; halves that would be subnormal are 0.
    const uint32_t magnitude = bits & 0x7FFFFFFF, sign = bits >> 16 & 0x8000;
    const uint32_t half = magnitude < 0x38800000 ? 0 : (magnitude - 0x38000000) >> 13;
    const uint16_t upper =
        static_cast<uint16_t>(dtype_ == HASTE_FLOAT16 ? sign | half : bits >> 16);
    const void* from = dtype_ == HASTE_FLOAT64   ? static_cast<const void*>(&value)
                       : dtype_ == HASTE_FLOAT32 ? static_cast<const void*>(&single)
                                                 : static_cast<const void*>(&upper);
    memcpy(data() + i * size_, from, size_);
  }

  int32_t dtype_;
  size_t size_;
  std::vector<char> bytes_;
};

struct Case {
  int32_t dtype;
  int64_t time, lanes, hidden, features;
  bool regularised;
  int32_t threads;
  int64_t after = 0;  // elements from a cache line's begin to R
};

// y, the final states and the reserve, of n times the same row.
std::vector<Array> Run(const HasteCellInfo& cell, const Case& c, int64_t n) {
  std::mt19937 random(7);
  const int64_t row = c.time * c.lanes * c.hidden, state = c.lanes * c.hidden;
  haste::RnnConfig config = haste::Config(cell.name, static_cast<HasteDtype>(c.dtype), HASTE_CPU, n,
                                          c.time, c.lanes, c.hidden);
  if (cell.exponential) config.recurrent_activation = HASTE_EXPONENTIAL;
  const std::vector<uint8_t> reverse = {0, 1};
  config.reverse = reverse.data();
  std::vector<uint8_t> mask(n * c.time, 1);
  const int64_t seed[2] = {3, 4};
  haste::ForwardArgs args = {};
  if (c.regularised) {
    config.training = 1;
    config.recurrent_dropout = 0.25f;
    config.zoneout[0] = 0.2f;
    for (int64_t i = 0; i < n * c.time; ++i) mask[i] = i % c.time % 3 != 0;
    args.mask = mask.data();
    args.seed = seed;
  }
  const auto rows = [&](const Array& one) { return one.Times(n); };
  const auto make = [&](int64_t count, double scale) {
    return Array(c.dtype, count).Fill(random, scale);
  };

  const Array x = rows(make(c.time * c.features, 1));
  const Array W = make(c.features * state * cell.gates, 0.3), b = make(state * cell.gates, 0.3);
  const Array R = make(state * cell.gates * c.hidden, 0.2), extra = make(state * cell.gates, 0.3);
  const Array initial = rows(make(state, 1));
  std::vector<Array> out;  // y, states, wx, gates, saved
  out.emplace_back(c.dtype, n * row);
  for (int s = 0; s < cell.states; ++s) out.emplace_back(c.dtype, n * state);
  out.emplace_back(c.dtype, n * row * cell.gates);
  out.emplace_back(c.dtype, n * row * cell.gates);
  for (int i = 0; i < cell.saved; ++i) out.emplace_back(c.dtype, n * row);

  std::vector<char> of_R;
  args.R = R.CopyTo(c.after, &of_R);
  args.extra[0] = extra.data();
  args.y = out[0].data();
  for (int s = 0; s < cell.states; ++s) {
    args.s0[s] = initial.data();
    args.sT[s] = out[1 + s].data();
  }
  args.keep = 1;
  args.gates = out[2 + cell.states].data();
  for (int i = 0; i < cell.saved; ++i) args.saved[i] = out[3 + cell.states + i].data();
  haste::Executor executor = {};
  executor.threads = c.threads;
  const auto layer = haste::LayerForwardArgs()
                         .set_features(c.features)
                         .set_x(x.data())
                         .set_W(W.data())
                         .set_b(b.data())
                         .set_wx(out[1 + cell.states].data());
  haste::ScratchMemory scratch(HASTE_CPU);
  ExpectOk(haste::LayerForward(config, layer, args, scratch, executor));
  return out;
}

void CheckRecurrences() {
  std::vector<Case> cases;
  for (int32_t dtype : {HASTE_FLOAT32, HASTE_FLOAT64, HASTE_FLOAT16, HASTE_BFLOAT16}) {
    // Whole vectors or not, panels of every remainder; one step (the projection too), many.
    for (int64_t hidden : {16, 48, 80, 112, 30}) {
      for (int64_t time : {1, 9}) cases.push_back({dtype, time, 2, hidden, 20, time > 1, 2});
    }
  }
  cases.push_back({HASTE_FLOAT32, 20, 1, 288, 8, false, 2});  // large, and many steps: packed
  cases.push_back({HASTE_FLOAT32, 4, 1, 288, 8, false, 2});   // large, in place, by two threads
  for (int64_t after : {0, 1}) {  // in place; many steps packed if vectors cross cache lines
    for (int64_t time : {9, 40}) {
      cases.push_back({HASTE_FLOAT32, time, 2, 48, 8, true, 2, after});
    }
  }
  for (int32_t i = 0; i < haste_cell_count(); ++i) {
    const HasteCellInfo& cell = *haste_cell(i);
    if (cell.recurrence != HASTE_DENSE || cell.normalizes) continue;
    for (const Case& c : cases) {
      const std::vector<Array> one = Run(cell, c, 1);
      for (const int64_t n : {2, 5, 14}) {  // tiles of one to seven rows
        const std::vector<Array> more = Run(cell, c, n);
        for (size_t k = 0; k < one.size(); ++k) {
          EXPECT_TRUE(more[k].BeginsAs(one[k]), "%s, dtype %d, N=%d, T=%d, H=%d: output %zu",
                      cell.name, static_cast<int>(c.dtype), static_cast<int>(n),
                      static_cast<int>(c.time), static_cast<int>(c.hidden), k);
        }
      }
    }
  }
}

// A product alone: strides, no bias, columns that do not fill vectors, a depth in parts.
void CheckProducts() {
  std::mt19937 random(9);
  for (int32_t dtype : {HASTE_FLOAT32, HASTE_FLOAT64, HASTE_FLOAT16, HASTE_BFLOAT16}) {
    for (int64_t columns : {8, 144, 400, 37}) {
      for (bool biased : {false, true}) {
        for (bool transposed : {false, true}) {
          const int64_t depth = columns == 144 ? 600 : 53;
          const Array row = Array(dtype, depth).Fill(random, 1), a = row.Times(2);
          const Array b = Array(dtype, depth * columns).Fill(random, 1);
          const Array bias = Array(dtype, columns).Fill(random, 1);
          Array one(dtype, columns), two(dtype, 2 * columns);
          HasteGemm gemm = HASTE_INIT(HasteGemm);
          gemm.dtype = dtype;
          gemm.n = columns;
          gemm.k = depth;
          gemm.a = a.data();
          gemm.a_row = depth;
          gemm.a_col = 1;
          gemm.b = b.data();
          gemm.b_row = transposed ? 1 : columns;
          gemm.b_col = transposed ? depth : 1;
          gemm.c_row = columns;
          gemm.bias = biased ? bias.data() : nullptr;
          for (Array* c : {&one, &two}) {
            gemm.m = c == &one ? 1 : 2;
            gemm.c = c->data();
            HasteStatus status = {};
            EXPECT_TRUE(haste_gemm(&gemm, nullptr, nullptr, &status) == HASTE_OK, "%s",
                        status.message);
          }
          EXPECT_TRUE(two.BeginsAs(one), "dtype %d, %d columns, bias %d, transposed %d",
                      static_cast<int>(dtype), static_cast<int>(columns), biased, transposed);
        }
      }
    }
  }
}

}  // namespace
}  // namespace haste_test

int main() {
  haste_test::CheckRecurrences();
  haste_test::CheckProducts();
  return haste_test::Report("single_row_test");
}
