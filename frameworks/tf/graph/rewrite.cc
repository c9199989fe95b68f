#include "frameworks/tf/graph/rewrite.h"

#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frameworks/tf/graph/node.h"
#include "frameworks/tf/graph/proto.h"
#include "frameworks/tf/graph/tag.h"
#include "frameworks/tf/graph/wire.h"

namespace haste {
namespace tf {
namespace {

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

void AppendAttribute(std::string_view name, const std::string& value, std::string* node) {
  std::string entry;
  AppendBytesField(1, name, &entry);
  AppendBytesField(2, value, &entry);
  AppendBytesField(proto::kNodeAttr, entry, node);
}

// What a call has and the op keeps: attributes of the node itself, which begin with "_", other than
// those that speak of the call or of its outputs.
bool KeepsAttribute(std::string_view name) {
  return StartsWith(name, "_") && name != "_output_shapes" && name != "_collective_manager_ids" &&
         name != "_read_only_resource_inputs";
}

// Whether the attribute says that a compiler takes the node, which has no kernel of ours.
bool IsForCompiler(std::string_view name, std::string_view value) {
  if (!StartsWith(name, "_Xla") && !StartsWith(name, "_xla") && !StartsWith(name, "_tpu")) {
    return false;
  }
  WireField field;
  WireReader reader(value);
  const bool off =
      reader.Next(&field) && field.Is(proto::kAttrBool, WireField::kVarint) && field.varint == 0;
  return !off;
}

class Rewriter {
 public:
  Rewriter(const OpTable& ops, bool on_gpu) : ops_(ops), on_gpu_(on_gpu) {}

  Rewritten Rewrite(std::string_view graph) {
    // A graph that cannot be read is left to TensorFlow, whose error says more.
    if (!ReadLibraries(graph) || tags_.empty() || !ReadNodes(graph) || calls_.empty() ||
        !Write(graph)) {
      result_.calls = 0;
      result_.graph.clear();
    }
    return std::move(result_);
  }

 private:
  struct Call {
    Node node;
    const Tag* tag;
    std::vector<Edge> data, controls;
  };

  bool ReadLibraries(std::string_view graph);
  bool ReadLibrary(std::string_view library);
  bool ReadNodes(std::string_view graph);
  bool CanBecomeOp(const Node& node, const Tag& tag, Call* call) const;
  bool Write(std::string_view graph);
  bool WriteNode(std::string_view message);
  bool WriteOp(const Call& call);
  bool Mapped(Edge* edge) const;
  std::string WriteConstant(const Call& call, int input);

  const OpTable& ops_;
  const bool on_gpu_;
  Rewritten result_;
  std::unordered_map<std::string_view, Tag> tags_;    // by function
  std::unordered_map<std::string_view, Call> calls_;  // by node
  std::unordered_set<std::string> names_;             // of all nodes
  bool has_frames_ = false;
};

bool Rewriter::ReadLibraries(std::string_view graph) {
  WireReader reader(graph);
  for (WireField field; reader.Next(&field);) {
    if (!field.Is(proto::kGraphLibrary, WireField::kBytes)) continue;
    if (!ReadLibrary(field.bytes)) return false;
  }
  return reader.ok();
}

bool Rewriter::ReadLibrary(std::string_view library) {
  WireReader reader(library);
  for (WireField field; reader.Next(&field);) {
    if (!field.Is(proto::kLibraryFunction, WireField::kBytes)) continue;
    Tag tag;
    std::string problem;
    const TagResult result = ReadTag(field.bytes, ops_, &tag, &problem);
    if (result == TagResult::kTag) {
      // One name, two functions: not a graph that TensorFlow takes.
      if (!tags_.emplace(tag.function, std::move(tag)).second) return false;
    } else if (result != TagResult::kNone && result_.problem.empty()) {
      result_.problem = problem;
      result_.unknown = result == TagResult::kUnknown;
    }
  }
  return reader.ok();
}

bool Rewriter::ReadNodes(std::string_view graph) {
  WireReader reader(graph);
  for (WireField field; reader.Next(&field);) {
    if (!field.Is(proto::kGraphNode, WireField::kBytes)) continue;
    Node node;
    if (!node.Read(field.bytes)) return false;
    if (!names_.emplace(node.name).second) return false;
    has_frames_ |= node.op == "Enter" || node.op == "RefEnter";
    const auto tag = tags_.find(node.Function());
    Call call;
    if (tag == tags_.end() || !CanBecomeOp(node, tag->second, &call)) continue;
    calls_.emplace(node.name, std::move(call));
  }
  return reader.ok();
}

bool Rewriter::CanBecomeOp(const Node& node, const Tag& tag, Call* call) const {
  const std::string_view device = DeviceType(node.device);
  if (!device.empty() && device != "CPU" && !(device == "GPU" && on_gpu_)) return false;
  for (std::string_view entry : node.attributes) {
    std::string_view name, value;
    if (!ReadEntry(entry, &name, &value) || IsForCompiler(name, value)) return false;
  }
  for (std::string_view input : node.inputs) {
    Edge edge;
    if (!edge.Read(input) || (!edge.control && !call->controls.empty())) return false;
    (edge.control ? call->controls : call->data).push_back(edge);
  }
  call->node = node;
  call->tag = &tag;
  return call->data.size() == tag.inputs.size();
}

// An edge from a call as one from the op. False if the call has no such output.
bool Rewriter::Mapped(Edge* edge) const {
  if (edge->control) return true;
  const auto source = calls_.find(edge->node);
  if (source == calls_.end()) return true;
  const std::vector<int>& outputs = source->second.tag->outputs;
  if (static_cast<size_t>(edge->output) >= outputs.size()) return false;
  edge->output = outputs[edge->output];
  return true;
}

bool Rewriter::Write(std::string_view graph) {
  result_.graph.reserve(graph.size() + graph.size() / 8);
  WireReader reader(graph);
  for (WireField field; reader.Next(&field);) {
    if (!field.Is(proto::kGraphNode, WireField::kBytes)) {
      result_.graph.append(field.whole);
    } else if (!WriteNode(field.bytes)) {
      return false;
    }
  }
  return reader.ok();
}

bool Rewriter::WriteNode(std::string_view message) {
  std::string_view name;
  if (!ReadBytes(message, proto::kNodeName, &name)) return false;
  const auto call = calls_.find(name);
  if (call != calls_.end()) return WriteOp(call->second);
  std::string made;
  WireReader reader(message);
  for (WireField field; reader.Next(&field);) {
    if (!field.Is(proto::kNodeInput, WireField::kBytes)) {
      made.append(field.whole);
      continue;
    }
    Edge edge;
    if (!edge.Read(field.bytes)) return false;
    const int before = edge.output;
    if (!Mapped(&edge)) return false;
    if (edge.output == before) {
      made.append(field.whole);
    } else {
      AppendBytesField(proto::kNodeInput, edge.Text(), &made);
    }
  }
  AppendBytesField(proto::kGraphNode, made, &result_.graph);
  return reader.ok();
}

bool Rewriter::WriteOp(const Call& call) {
  const Tag& tag = *call.tag;
  std::map<int, std::string> inputs;  // by position among those of the op
  for (size_t i = 0; i < call.data.size(); ++i) {
    Edge edge = call.data[i];
    if (!Mapped(&edge)) return false;
    inputs[tag.inputs[i]] = edge.Text();
  }
  for (const auto& constant : tag.constants) {
    const int input = constant.first;
    if (inputs.count(input) == 0) inputs[input] = WriteConstant(call, input);
  }
  std::string made;
  AppendBytesField(proto::kNodeName, call.node.name, &made);
  AppendBytesField(proto::kNodeOp, tag.op, &made);
  for (const auto& input : inputs) AppendBytesField(proto::kNodeInput, input.second, &made);
  for (const Edge& edge : call.controls) AppendBytesField(proto::kNodeInput, edge.Text(), &made);
  AppendBytesField(proto::kNodeDevice, call.node.device, &made);
  for (std::string_view entry : tag.attributes) AppendBytesField(proto::kNodeAttr, entry, &made);
  for (std::string_view entry : call.node.attributes) {
    std::string_view name, value;
    ReadEntry(entry, &name, &value);
    if (KeepsAttribute(name)) AppendBytesField(proto::kNodeAttr, entry, &made);
  }
  if (!call.node.debug_info.empty()) {
    AppendBytesField(proto::kNodeDebugInfo, call.node.debug_info, &made);
  }
  AppendBytesField(proto::kGraphNode, made, &result_.graph);
  ++result_.calls;
  return true;
}

// Writes a node for an input that Grappler moved into the function; returns the node's name.
std::string Rewriter::WriteConstant(const Call& call, int input) {
  std::string name = std::string(call.node.name) + "/haste_input_" + std::to_string(input);
  while (!names_.insert(name).second) name += "_";
  std::string made, type, value;
  AppendBytesField(proto::kNodeName, name, &made);
  AppendBytesField(proto::kNodeOp, "Const", &made);
  // Within a loop's frame a constant must depend on something of the frame.
  if (has_frames_ && !call.data.empty()) {
    AppendBytesField(proto::kNodeInput, "^" + std::string(call.data[0].node), &made);
  }
  AppendBytesField(proto::kNodeDevice, call.node.device, &made);
  AppendVarintField(proto::kAttrType, call.tag->constant_types.at(input), &type);
  AppendAttribute("dtype", type, &made);
  AppendBytesField(proto::kAttrTensor, call.tag->constants.at(input), &value);
  AppendAttribute("value", value, &made);
  AppendBytesField(proto::kGraphNode, made, &result_.graph);
  return name;
}

}  // namespace

Rewritten RewriteGraph(std::string_view graph, const OpTable& ops, bool on_gpu) {
  return Rewriter(ops, on_gpu).Rewrite(graph);
}

}  // namespace tf
}  // namespace haste
