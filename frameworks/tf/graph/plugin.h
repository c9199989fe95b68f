// A graph optimizer (Grappler) of TensorFlow's: where this library is loaded, portable models run
// its ops.
#ifndef HASTE_FRAMEWORKS_TF_GRAPH_PLUGIN_H_
#define HASTE_FRAMEWORKS_TF_GRAPH_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#include "haste/c_api.h"

extern "C" {
// 1 if the optimizer is registered. Otherwise 0, and `text` says why not.
HASTE_API int32_t haste_tf_graph_plugin(char* text, size_t capacity);

// How many calls in the graphs of this process became ops.
HASTE_API int64_t haste_tf_graph_calls(void);
}

#endif  // HASTE_FRAMEWORKS_TF_GRAPH_PLUGIN_H_
