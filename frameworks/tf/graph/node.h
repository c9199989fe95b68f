// A node of a GraphDef, and the edges between nodes.
#ifndef HASTE_FRAMEWORKS_TF_GRAPH_NODE_H_
#define HASTE_FRAMEWORKS_TF_GRAPH_NODE_H_

#include <string>
#include <string_view>
#include <vector>

namespace haste {
namespace tf {

// Views are into the graph.
struct Node {
  std::string_view name, op, device, debug_info;
  std::vector<std::string_view> inputs;      // "node", "node:1", then "^node"
  std::vector<std::string_view> attributes;  // entries of the map

  // False if it is malformed.
  bool Read(std::string_view message);

  // The function that it calls; empty if it is no call.
  std::string_view Function() const;
};

struct Edge {
  std::string_view node;
  int output = 0;
  bool control = false;

  // False if it is malformed.
  bool Read(std::string_view text);
  std::string Text() const;
};

// "CPU" of "/job:localhost/replica:0/task:0/device:CPU:0"; empty if the device is not known yet.
std::string_view DeviceType(std::string_view device);

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_GRAPH_NODE_H_
