#include "frameworks/tf/graph/op_table.h"

#include <algorithm>

namespace haste {
namespace tf {

void AddAttribute(std::string_view specification, OpShape* op) {
  const size_t colon = specification.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name(specification.substr(0, colon));
  std::string_view kind = specification.substr(colon + 1);
  kind.remove_prefix(std::min(kind.find_first_not_of(' '), kind.size()));
  // "{half, float}" is a type that is one of these.
  op->attributes[name] =
      !kind.empty() && kind[0] == '{' ? "type" : std::string(kind.substr(0, kind.find(' ')));
}

OpTable& RegisteredOps() {
  static OpTable* const table = new OpTable;  // outlives TensorFlow's threads
  return *table;
}

}  // namespace tf
}  // namespace haste
