// Numbers of the fields that are read or written, of TensorFlow's .proto files. They never change.
#ifndef HASTE_FRAMEWORKS_TF_GRAPH_PROTO_H_
#define HASTE_FRAMEWORKS_TF_GRAPH_PROTO_H_

namespace haste {
namespace tf {
namespace proto {

enum GraphDef { kGraphNode = 1, kGraphLibrary = 2 };
enum FunctionDefLibrary { kLibraryFunction = 1 };
enum FunctionDef { kFunctionSignature = 1, kFunctionAttr = 5 };
enum OpDef { kOpName = 1, kOpInput = 2, kOpOutput = 3 };
enum ArgDef { kArgName = 1, kArgType = 3 };
enum NodeDef { kNodeName = 1, kNodeOp, kNodeInput, kNodeDevice, kNodeAttr, kNodeDebugInfo };
enum AttrValue {
  kAttrList = 1,
  kAttrString,
  kAttrInt,
  kAttrFloat,
  kAttrBool,
  kAttrType,
  kAttrShape,
  kAttrTensor,
  kAttrPlaceholder,
  kAttrFunction,
};
enum NameAttrList { kListName = 1, kListAttr = 2 };
enum TensorProto { kTensorType = 1 };
enum DataType {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kInt8 = 6,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kHalf = 19,
};

}  // namespace proto
}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_GRAPH_PROTO_H_
