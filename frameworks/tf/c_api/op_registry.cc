#include "frameworks/tf/c_api/op_registry.h"

#include <stdio.h>

#include <utility>

#include "frameworks/tf/c_api/tf_status.h"
#include "frameworks/tf/graph/op_table.h"

namespace haste {
namespace tf {
namespace {

bool KnownShape(TF_ShapeInferenceContext* context, TF_ShapeHandle* handle,
                std::vector<int64_t>* shape) {
  if (!TF_ShapeInferenceContextRankKnown(context, handle)) return false;
  const int64_t rank = TF_ShapeInferenceContextRank(context, handle);
  for (int64_t i = 0; i < rank; ++i) {
    DimensionHandle dim(TF_NewDimensionHandle());
    TF_ShapeInferenceContextDim(context, handle, i, dim.get());
    shape->push_back(TF_DimensionHandleValueKnown(dim.get()) ? TF_DimensionHandleValue(dim.get())
                                                             : kUnknown);
  }
  return true;
}

void SetOutput(TF_ShapeInferenceContext* context, int index, const std::vector<int64_t>& shape,
               TF_Status* status) {
  ShapeHandle all(TF_ShapeInferenceContextScalar(context));
  for (int64_t size : shape) {
    // The size is unsigned, but -1 stands for an unknown dimension.
    ShapeHandle one(TF_ShapeInferenceContextVectorFromSize(context, static_cast<size_t>(size)));
    ShapeHandle joined(TF_NewShapeHandle());
    TF_ShapeInferenceContextConcatenateShapes(context, all.get(), one.get(), joined.get(), status);
    if (TF_GetCode(status) != TF_OK) return;
    all = std::move(joined);
  }
  TF_ShapeInferenceContextSetOutput(context, index, all.get(), status);
}

}  // namespace

void InferShapes(const Signature& signature, Sizes sizes, TF_ShapeInferenceContext* context,
                 TF_Status* status) {
  // Optional arguments are checked last, so that a disagreement is reported as their error.
  for (bool optional : {false, true}) {
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      if (signature.inputs[i].optional != optional) continue;
      ShapeHandle handle(TF_NewShapeHandle());
      TF_ShapeInferenceContextGetInput(context, static_cast<int>(i), handle.get(), status);
      if (TF_GetCode(status) != TF_OK) return;
      std::vector<int64_t> shape;
      if (!KnownShape(context, handle.get(), &shape)) continue;
      // A vector of unknown length may be one that was left out.
      if (optional && shape.size() == 1 && shape[0] == kUnknown) continue;
      std::string error;
      if (!sizes.Bind(signature.inputs[i], shape, &error)) {
        TF_SetStatus(status, TF_INVALID_ARGUMENT, error.c_str());
        return;
      }
    }
  }
  TF_ShapeInferenceContextSetUnknownShape(context, status);
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    if (signature.outputs[i].optional) continue;
    if (TF_GetCode(status) != TF_OK) return;
    SetOutput(context, static_cast<int>(i), sizes.Shape(signature.outputs[i].dims), status);
  }
}

void RegisterOp(const Signature& signature, const std::vector<const char*>& attributes,
                ShapeFunction shapes) {
  bool int8 = false;
  for (const Argument& a : signature.inputs) int8 |= a.type == "int8";
  const char* const types =
      int8 ? "T: {half, bfloat16, float}" : "T: {half, bfloat16, float, double}";
  OpShape& shape = RegisteredOps()[signature.op];
  AddAttribute(types, &shape);
  for (const char* attribute : attributes) AddAttribute(attribute, &shape);
  for (const Argument& a : signature.inputs) shape.inputs.push_back(a.type);
  for (const Argument& a : signature.outputs) shape.outputs.push_back(a.type);
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder(signature.op.c_str());
  TF_OpDefinitionBuilderAddAttr(builder, types);
  for (const char* attribute : attributes) TF_OpDefinitionBuilderAddAttr(builder, attribute);
  for (const Argument& a : signature.inputs) {
    TF_OpDefinitionBuilderAddInput(builder, (a.name + ": " + a.type).c_str());
  }
  for (const Argument& a : signature.outputs) {
    TF_OpDefinitionBuilderAddOutput(builder, (a.name + ": " + a.type).c_str());
  }
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shapes);
  Status status;
  TF_RegisterOpDefinition(builder, status.get());
  if (!status.ok()) {
    fprintf(stderr, "haste: cannot register %s: %s\n", signature.op.c_str(),
            TF_Message(status.get()));
  }
}

void RegisterKernel(const std::string& op, const char* device, const KernelFunctions& functions) {
  for (TF_DataType type : {TF_HALF, TF_BFLOAT16, TF_FLOAT, TF_DOUBLE}) {
    TF_KernelBuilder* builder = TF_NewKernelBuilder(op.c_str(), device, functions.create,
                                                    functions.compute, functions.destroy);
    Status status;
    TF_KernelBuilder_TypeConstraint(builder, "T", type, status.get());
    const std::string name = op + device + std::to_string(type);
    if (status.ok()) {
      TF_RegisterKernelBuilder(name.c_str(), builder, status.get());
    } else {
      TF_DeleteKernelBuilder(builder);
    }
    if (!status.ok()) {
      fprintf(stderr, "haste: cannot register %s: %s\n", name.c_str(), TF_Message(status.get()));
    }
  }
}

}  // namespace tf
}  // namespace haste
