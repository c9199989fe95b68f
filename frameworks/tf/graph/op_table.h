// What this library's ops are, as far as the graph optimizer checks it.
#ifndef HASTE_FRAMEWORKS_TF_GRAPH_OP_TABLE_H_
#define HASTE_FRAMEWORKS_TF_GRAPH_OP_TABLE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace haste {
namespace tf {

struct OpShape {
  // As an op definition spells them: "T", "bool", "int64".
  std::vector<std::string> inputs, outputs;
  // Of each attribute: "bool", "list(bool)", "float", "list(float)", "string", "type".
  std::map<std::string, std::string, std::less<>> attributes;
};

using OpTable = std::map<std::string, OpShape, std::less<>>;

// An attribute from its specification, "engine: string = 'auto'" say.
void AddAttribute(std::string_view specification, OpShape* op);

// The ops that are registered. Written by static initialisers alone.
OpTable& RegisteredOps();

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_GRAPH_OP_TABLE_H_
