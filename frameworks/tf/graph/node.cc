#include "frameworks/tf/graph/node.h"

#include "frameworks/tf/graph/proto.h"
#include "frameworks/tf/graph/wire.h"

namespace haste {
namespace tf {

bool Node::Read(std::string_view message) {
  *this = {};
  WireReader reader(message);
  for (WireField field; reader.Next(&field);) {
    if (field.number > proto::kNodeDebugInfo) continue;
    if (field.type != WireField::kBytes) return false;
    switch (field.number) {
      case proto::kNodeName: name = field.bytes; break;
      case proto::kNodeOp: op = field.bytes; break;
      case proto::kNodeInput: inputs.push_back(field.bytes); break;
      case proto::kNodeDevice: device = field.bytes; break;
      case proto::kNodeAttr: attributes.push_back(field.bytes); break;
      case proto::kNodeDebugInfo: debug_info = field.bytes; break;
    }
  }
  return reader.ok() && !name.empty();
}

std::string_view Node::Function() const {
  if (op != "PartitionedCall" && op != "StatefulPartitionedCall") return op;
  for (std::string_view entry : attributes) {
    std::string_view key, value, function, called;
    if (!ReadEntry(entry, &key, &value) || key != "f") continue;
    if (!ReadBytes(value, proto::kAttrFunction, &function)) return {};
    return ReadBytes(function, proto::kListName, &called) ? called : std::string_view();
  }
  return {};
}

bool Edge::Read(std::string_view text) {
  *this = {};
  control = !text.empty() && text[0] == '^';
  node = text.substr(control ? 1 : 0);
  const size_t colon = node.rfind(':');
  if (colon == std::string_view::npos) return !node.empty();
  const std::string_view digits = node.substr(colon + 1);
  node = node.substr(0, colon);
  if (control || node.empty() || digits.empty() || digits.size() > 6) return false;
  for (const char c : digits) {
    if (c < '0' || c > '9') return false;
    output = 10 * output + (c - '0');
  }
  return true;
}

std::string Edge::Text() const {
  const std::string text = (control ? "^" : "") + std::string(node);
  return output == 0 ? text : text + ":" + std::to_string(output);
}

std::string_view DeviceType(std::string_view device) {
  constexpr std::string_view kKey = "/device:";
  const size_t at = device.find(kKey);
  if (at == std::string_view::npos) return {};
  const std::string_view type = device.substr(at + kKey.size());
  return type.substr(0, type.find(':'));
}

}  // namespace tf
}  // namespace haste
