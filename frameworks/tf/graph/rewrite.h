// Makes calls of tagged functions the ops that the tags name.
#ifndef HASTE_FRAMEWORKS_TF_GRAPH_REWRITE_H_
#define HASTE_FRAMEWORKS_TF_GRAPH_REWRITE_H_

#include <string>
#include <string_view>

#include "frameworks/tf/graph/op_table.h"

namespace haste {
namespace tf {

struct Rewritten {
  int calls = 0;        // that became ops; 0: the graph stays as it is
  std::string graph;    // the new GraphDef, if there are any
  std::string problem;  // why a tagged call stays one, or empty
  bool unknown =
      false;  // of `problem`: the tag is of a newer version, or names what is not in `ops`
};

// graph: a GraphDef. on_gpu: whether the ops have GPU kernels here.
//
// A call stays as it is unless all of it is certain: the graph computes the same in any case.
Rewritten RewriteGraph(std::string_view graph, const OpTable& ops, bool on_gpu);

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_GRAPH_REWRITE_H_
