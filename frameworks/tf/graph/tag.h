// The tag of a function: which op its call stands for. haste_keras/serving/README.md states it.
#ifndef HASTE_FRAMEWORKS_TF_GRAPH_TAG_H_
#define HASTE_FRAMEWORKS_TF_GRAPH_TAG_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/tf/graph/op_table.h"

namespace haste {
namespace tf {

constexpr int kTagVersion = 1;

// What a call of a tagged function becomes. Views are into the graph.
struct Tag {
  std::string_view function;
  std::string_view op;
  std::vector<std::string_view> attributes;  // entries of NodeDef.attr
  // The op's input or output that each argument or result of the function is. Grappler may have
  // made a copy of the function without those that are constant or that nothing reads.
  std::vector<int> inputs, outputs;
  std::map<int, std::string_view> constants;  // input → TensorProto
  std::map<int, uint64_t> constant_types;     // input → its DataType
  uint64_t type = 0;                          // T, a DataType
};

enum class TagResult {
  kNone,     // not tagged, or not as one of our ops
  kTag,      // *tag is read, and fits the op
  kUnknown,  // an op, an attribute or a version that this library does not know; *problem says
             // which
  kBroken,   // something else does not fit; *problem says what
};

// Reads the tag of a FunctionDef.
TagResult ReadTag(std::string_view function, const OpTable& ops, Tag* tag, std::string* problem);

// The number of a DataType, from how an op definition spells it; `type` is that of "T".
uint64_t TypeNumber(std::string_view spelt, uint64_t type);

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_GRAPH_TAG_H_
