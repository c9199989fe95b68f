// The bodies of the ops, run by a call of the test's own for every cell: a thread waits for the
// next call in inference, and not in training.
#include "frameworks/ops/rnn_run.h"

#include <stdlib.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frameworks/ops/call.h"
#include "frameworks/ops/rnn_op.h"
#include "haste/c_api.h"
#include "tests/lib/check.h"

namespace haste_test {
namespace {

using haste::Op;

// Tensors are zeros; optional ones are left out.
class TestCall : public haste::Call<TestCall> {
 public:
  TestCall(const haste::Signature& signature, haste::Sizes sizes)
      : Call(signature, HASTE_CPU, std::move(sizes)) {}

  bool Begin() const { return true; }
  const void* Input(int i) {
    return i < 0 || signature_.inputs[i].optional ? nullptr : Zeros(signature_.inputs[i].dims);
  }
  void* Output(int i) { return i < 0 ? nullptr : Zeros(signature_.outputs[i].dims); }
  void EmptyOutput(int) const {}
  void* OutputInPlace(int i, int input, const void** data) {
    *data = Input(input);
    return Output(i);
  }
  HastePackedWeights* Packed(const std::vector<int>&, const std::vector<int>&) { return nullptr; }
  void ForgetPacked(const std::vector<int>&) const {}
  void LetThreadWait() { ++waits; }
  bool ok() const { return error.empty(); }
  bool Invalid(const std::string& message) {
    error = message;
    return false;
  }
  void Report(const HasteStatus& status) { error = status.message; }
  void* Scratch(size_t bytes) {
    constexpr size_t kAlignment = 64;
    memory_.emplace_back(aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment));
    return memory_.back().get();
  }

  int waits = 0;
  std::string error;

 private:
  struct Free {
    void operator()(void* memory) const { free(memory); }
  };
  void* Zeros(const std::string& dims) {
    size_t count = 1;
    for (int64_t size : sizes_.Shape(dims)) count *= size;
    memory_.emplace_back(calloc(count, sizeof(float)));
    return memory_.back().get();
  }
  std::vector<std::unique_ptr<void, Free>> memory_;
};

void Test(Op kind, const HasteCellInfo& cell, bool save) {
  haste::RnnOp op(kind, cell);
  op.options.save = save;
  op.options.reverse = {0, 1};
  op.options.wanted.assign(op.optional_gradients(), 1);
  op.options.config.cell = cell.name;
  op.options.engine = "auto";
  op.options.config.recurrent_activation = HASTE_SIGMOID;
  op.options.config.epsilon = 1e-3f;
  haste::Sizes sizes = haste::CellSizes(cell);
  const std::pair<char, int64_t> all[] = {{'N', 3}, {'T', 2}, {'K', 2}, {'H', 5}, {'C', 4}};
  for (const auto& [letter, size] : all) sizes.Set(letter, size, "the test", "");
  TestCall call(op.signature, sizes);
  haste::Run(op, &call);
  EXPECT_TRUE(call.ok(), "%s: %s", op.signature.op.c_str(), call.error.c_str());
  const int waits = !op.backward() && !save;
  EXPECT_TRUE(call.waits == waits, "%s, save %d: %d times", op.signature.op.c_str(), save,
              call.waits);
}

}  // namespace
}  // namespace haste_test

int main() {
  for (int i = 0; i < haste_cell_count(); ++i) {
    const HasteCellInfo& cell = *haste_cell(i);
    for (bool layer : {false, true}) {
      if (layer && !haste::HasLayer(cell)) continue;
      for (bool save : {false, true}) {
        haste_test::Test(layer ? haste::Op::kLayer : haste::Op::kForward, cell, save);
      }
      haste_test::Test(layer ? haste::Op::kLayerBackward : haste::Op::kBackward, cell, false);
    }
  }
  return haste_test::Report("rnn_run_test");
}
