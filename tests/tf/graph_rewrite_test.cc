// The graph optimizer without TensorFlow: wire format, tags and rewriting, on graphs that are
// written here, and on damaged ones.
#include <stdint.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/tf/graph/node.h"
#include "frameworks/tf/graph/op_table.h"
#include "frameworks/tf/graph/proto.h"
#include "frameworks/tf/graph/rewrite.h"
#include "frameworks/tf/graph/tag.h"
#include "frameworks/tf/graph/wire.h"
#include "tests/lib/check.h"

using namespace haste::tf;  // NOLINT

namespace {

std::string Bytes(int number, std::string_view content) {
  std::string out;
  AppendBytesField(number, content, &out);
  return out;
}

std::string Number(int number, uint64_t value) {
  std::string out;
  AppendVarintField(number, value, &out);
  return out;
}

std::string Entry(int map, std::string_view key, std::string_view value) {
  return Bytes(map, Bytes(1, key) + Bytes(2, value));
}

// An op of three inputs (a, a mask, a seed) and three outputs.
OpTable Ops() {
  OpTable ops;
  OpShape& op = ops["HasteToy"];
  op.inputs = {"T", "bool", "int64"};
  op.outputs = {"T", "T", "T"};
  AddAttribute("T: {half, bfloat16, float, double}", &op);
  AddAttribute("reverse: list(bool)", &op);
  AddAttribute("zoneout: list(float)", &op);
  AddAttribute("rate: float = 0.0", &op);
  AddAttribute("engine: string = 'auto'", &op);
  AddAttribute("save: bool = false", &op);
  return ops;
}

struct Toy {
  std::string op = "HasteToy";
  uint64_t version = kTagVersion, arguments = 3;
  bool has_constants = true;
  std::string more;  // entries of the tag
  std::vector<int> inputs = {0, 1, 2}, outputs = {0, 1, 2};
  bool specialized = false;
  uint64_t mask_type = proto::kBool;

  std::string Attributes() const {
    std::string all;
    all += Entry(2, "T", Number(proto::kAttrType, proto::kFloat));
    all += Entry(2, "reverse", Bytes(proto::kAttrList, Bytes(proto::kAttrBool, "\1")));
    all += Entry(2, "zoneout", Bytes(proto::kAttrList, ""));
    all += Entry(2, "rate", std::string("\x25\0\0\0\0", 5));
    all += Entry(2, "engine", Bytes(proto::kAttrString, "auto"));
    all += Entry(2, "save", Number(proto::kAttrBool, 0));
    all += Entry(2, "_version", Number(proto::kAttrInt, version));
    all += Entry(2, "_arguments", Number(proto::kAttrInt, arguments));
    if (has_constants) {
      const std::string empty = Bytes(2, Bytes(2, Number(1, 0)));
      all += Entry(2, "_input_1",
                   Bytes(proto::kAttrTensor, Number(proto::kTensorType, mask_type) + empty));
      all += Entry(2, "_input_2",
                   Bytes(proto::kAttrTensor, Number(proto::kTensorType, proto::kInt64) + empty));
    }
    return all + more;
  }

  std::string Function() const {
    const uint64_t types[] = {proto::kFloat, mask_type, proto::kInt64};
    std::string signature = Bytes(proto::kOpName, "body");
    for (int i : inputs) {
      signature += Bytes(proto::kOpInput, Bytes(proto::kArgName, "inputs_" + std::to_string(i)) +
                                              Number(proto::kArgType, types[i]));
    }
    for (int i : outputs) {
      const std::string name = i == 0 ? "identity" : "identity_" + std::to_string(i);
      signature += Bytes(proto::kOpOutput,
                         Bytes(proto::kArgName, name) + Number(proto::kArgType, proto::kFloat));
    }
    std::string function = Bytes(proto::kFunctionSignature, signature);
    function += Entry(proto::kFunctionAttr, "_implements",
                      Bytes(proto::kAttrFunction, Bytes(proto::kListName, op) + Attributes()));
    if (specialized) {
      function +=
          Entry(proto::kFunctionAttr, "_GrapplerSpecializedFunc", Number(proto::kAttrBool, 1));
    }
    return Bytes(proto::kGraphLibrary, Bytes(proto::kLibraryFunction, function));
  }
};

std::string MakeNode(std::string_view name, std::string_view op,
                     const std::vector<std::string>& inputs, std::string_view device = "",
                     std::string_view attributes = "") {
  std::string node = Bytes(proto::kNodeName, name) + Bytes(proto::kNodeOp, op);
  for (const std::string& input : inputs) node += Bytes(proto::kNodeInput, input);
  if (!device.empty()) node += Bytes(proto::kNodeDevice, device);
  return Bytes(proto::kGraphNode, node + std::string(attributes));
}

std::string MakeCall(const std::vector<std::string>& inputs, std::string_view device = "",
                     const std::string& more = "") {
  const std::string f =
      Entry(proto::kNodeAttr, "f", Bytes(proto::kAttrFunction, Bytes(proto::kListName, "body")));
  return MakeNode("call", "PartitionedCall", inputs, device, f + more);
}

constexpr char kCpu[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kGpu[] = "/job:localhost/replica:0/task:0/device:GPU:0";

Rewritten Run(const std::string& graph, bool on_gpu = false) {
  return RewriteGraph(graph, Ops(), on_gpu);
}

std::vector<Node> NodesOf(std::string_view graph) {
  std::vector<Node> nodes;
  WireReader reader(graph);
  for (WireField field; reader.Next(&field);) {
    if (!field.Is(proto::kGraphNode, WireField::kBytes)) continue;
    nodes.emplace_back();
    EXPECT_TRUE(nodes.back().Read(field.bytes), "a node of the new graph");
  }
  EXPECT_TRUE(reader.ok(), "the new graph");
  return nodes;
}

std::string Describe(const Node& node) {
  std::string text = std::string(node.name) + " " + std::string(node.op) + "(";
  for (std::string_view input : node.inputs) text += std::string(input) + ",";
  return text + ")" + std::string(node.device);
}

void ExpectNodes(const Rewritten& rewritten, const std::vector<std::string>& expected) {
  const std::vector<Node> nodes = NodesOf(rewritten.graph);
  EXPECT_TRUE(nodes.size() == expected.size(), "%zu nodes", nodes.size());
  for (size_t i = 0; i < nodes.size() && i < expected.size(); ++i) {
    EXPECT_TRUE(Describe(nodes[i]) == expected[i], "%s, not %s", Describe(nodes[i]).c_str(),
                expected[i].c_str());
  }
}

void TestWholeCall() {
  const std::string graph = MakeNode("x", "Placeholder", {}) + MakeNode("m", "M", {}) +
                            MakeCall({"x", "m:1", "x:2", "^m"}, kCpu,
                                     Entry(proto::kNodeAttr, "_class", "") +
                                         Entry(proto::kNodeAttr, "_output_shapes", "")) +
                            MakeNode("out", "Identity", {"call:2", "^call"}) + Toy().Function();
  const Rewritten rewritten = Run(graph);
  EXPECT_TRUE(rewritten.calls == 1, "%s", rewritten.problem.c_str());
  ExpectNodes(rewritten,
              {"x Placeholder()", "m M()", std::string("call HasteToy(x,m:1,x:2,^m,)") + kCpu,
               "out Identity(call:2,^call,)"});
  // The six attributes of the op, and _class.
  EXPECT_TRUE(NodesOf(rewritten.graph)[2].attributes.size() == 7, "attributes of the op");
  EXPECT_TRUE(Run(rewritten.graph).calls == 0, "a second time");
}

// Grappler's copy: the mask and the seed are constants of its body, the middle output is gone.
void TestSpecializedCall() {
  Toy toy;
  toy.inputs = {0};
  toy.outputs = {0, 2};
  toy.specialized = true;
  const std::string around = MakeCall({"x:1"}) + MakeNode("out", "Identity", {"call:1"}) +
                             MakeNode("call/haste_input_1", "NoOp", {}) + toy.Function();
  ExpectNodes(Run(around), {"call/haste_input_1_ Const()", "call/haste_input_2 Const()",
                            "call HasteToy(x:1,call/haste_input_1_,call/haste_input_2,)",
                            "out Identity(call:2,)", "call/haste_input_1 NoOp()"});
  // In a loop's frame a constant hangs on something of the frame.
  const Rewritten in_frame = Run(MakeNode("e", "Enter", {"x"}) + around);
  EXPECT_TRUE(Describe(NodesOf(in_frame.graph)[1]) == "call/haste_input_1_ Const(^x,)",
              "a constant in a frame");
  toy.has_constants = false;
  const Rewritten unknown = Run(MakeCall({"x"}) + toy.Function());
  EXPECT_TRUE(unknown.calls == 0 && !unknown.problem.empty(), "an input that no one knows");
}

// A direct call of the function, and edges from call to call.
void TestDirectCalls() {
  Toy toy;
  toy.outputs = {1};
  toy.specialized = true;
  const Rewritten rewritten = Run(MakeNode("a", "body", {"x", "m", "s"}) +
                                  MakeNode("b", "body", {"a", "m", "s"}) + toy.Function());
  EXPECT_TRUE(rewritten.calls == 2, "%d calls", rewritten.calls);
  ExpectNodes(rewritten, {"a HasteToy(x,m,s,)", "b HasteToy(a:1,m,s,)"});
}

void ExpectStock(const char* what, const Toy& toy, bool unknown, const std::string& call = "") {
  const Rewritten rewritten =
      Run((call.empty() ? MakeCall({"x", "m", "s"}) : call) + toy.Function());
  EXPECT_TRUE(rewritten.calls == 0 && rewritten.graph.empty(), "%s", what);
  EXPECT_TRUE(rewritten.unknown == unknown, "%s: %s", what, rewritten.problem.c_str());
}

void TestWhatStaysStock() {
  Toy toy;
  toy.version = 2;
  ExpectStock("a newer version", toy, true);
  toy = Toy();
  toy.op = "HasteFuture";
  ExpectStock("an unknown op", toy, true);
  toy = Toy();
  toy.op = "Other";
  ExpectStock("another's tag", toy, false);
  toy = Toy();
  toy.more = Entry(2, "future", Number(proto::kAttrBool, 1));
  ExpectStock("an unknown attribute", toy, true);
  toy = Toy();
  toy.arguments = 4;
  ExpectStock("another number of arguments", toy, false);
  toy = Toy();
  toy.mask_type = proto::kInt32;
  ExpectStock("another type", toy, false);
  toy = Toy();
  toy.inputs = {0, 1};
  ExpectStock("an input less, though not Grappler's copy", toy, false);
  toy.specialized = true;
  toy.inputs = {1, 0, 2};
  ExpectStock("another order", toy, false, MakeCall({"x", "m"}));
  toy = Toy();
  ExpectStock("an input that the call lacks", toy, false, MakeCall({"x", "m"}));
  ExpectStock("data after a control edge", toy, false, MakeCall({"x", "^m", "m", "s"}));
  ExpectStock("a device without our kernels", toy, false, MakeCall({"x", "m", "s"}, kGpu));
  ExpectStock("a node for XLA", toy, false,
              MakeCall({"x", "m", "s"}, kCpu,
                       Entry(proto::kNodeAttr, "_XlaMustCompile", Number(proto::kAttrBool, 1))));
  ExpectStock("an edge to no output", toy, false,
              MakeCall({"x", "m", "s"}) + MakeNode("out", "Identity", {"call:3"}));
  ExpectStock("two nodes of one name", toy, false,
              MakeCall({"x", "m", "s"}) + MakeCall({"x", "m", "s"}));
  ExpectStock("two functions of one name", toy, false, MakeCall({"x", "m", "s"}) + toy.Function());
  EXPECT_TRUE(Run(MakeCall({"x", "m", "s"}, kGpu) + toy.Function(), true).calls == 1,
              "a GPU with our kernels");
}

void TestWire() {
  for (const uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{128}, ~uint64_t{0}}) {
    WireField field;
    const std::string message = Number(3, value);
    WireReader reader(message);
    EXPECT_TRUE(reader.Next(&field) && field.varint == value, "a varint");
    EXPECT_TRUE(!reader.Next(&field) && reader.ok(), "its end");
  }
  const std::string wrong[] = {std::string("\0\0", 2),
                               "\x0b",
                               "\x0a\x05"
                               "abc",
                               "\x08",
                               "\x09"
                               "1234567",
                               "\x0d"
                               "123",
                               "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                               "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"};
  for (const std::string& message : wrong) {
    std::vector<WireField> fields;
    EXPECT_TRUE(!ReadFields(message, &fields), "a malformed message of %zu bytes", message.size());
  }
}

// Damaged graphs never crash the reader, and what comes out can be read.
void TestDamage() {
  Toy toy;
  toy.inputs = {0};
  toy.outputs = {0, 2};
  toy.specialized = true;
  const std::string whole = MakeNode("x", "Placeholder", {}) + MakeCall({"x", "^x"}, kCpu) +
                            MakeNode("out", "Identity", {"call:1"}) + toy.Function();
  EXPECT_TRUE(Run(whole).calls == 1, "the whole graph");
  const OpTable ops = Ops();
  for (size_t size = 0; size < whole.size(); ++size) {
    // In memory of its own, so that a sanitizer sees a read past the end.
    const std::vector<char> part(whole.begin(), whole.begin() + size);
    RewriteGraph(std::string_view(part.data(), part.size()), ops, true);
  }
  std::mt19937 random(7);
  int changed = 0;
  for (int round = 0; round < 200000; ++round) {
    std::vector<char> graph(whole.begin(), whole.end());
    for (uint32_t i = 0, count = 1 + random() % 4; i < count; ++i) {
      const size_t at = random() % graph.size();
      switch (random() % 4) {
        case 0: graph[at] = static_cast<char>(random()); break;
        case 1: graph[at] = static_cast<char>(graph[at] ^ (1 << random() % 8)); break;
        case 2: graph.erase(graph.begin() + at); break;
        default: graph.insert(graph.begin() + at, static_cast<char>(random()));
      }
    }
    const Rewritten rewritten =
        RewriteGraph(std::string_view(graph.data(), graph.size()), ops, true);
    if (rewritten.calls == 0) continue;
    ++changed;
    NodesOf(rewritten.graph);
  }
  EXPECT_TRUE(changed > 100, "%d damaged graphs were still whole enough", changed);
}

}  // namespace

int main() {
  TestWire();
  TestWholeCall();
  TestSpecializedCall();
  TestDirectCalls();
  TestWhatStaysStock();
  TestDamage();
  return haste_test::Report("graph_rewrite_test");
}
